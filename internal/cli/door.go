package cli

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"baton"
	"baton/api"
	"baton/server/httpapi"
)

// patience is how long a request waits for a server that is starting: less than clients give each
// of three servers in their usual time (remotestore.Config.Timeout), so that they learn what they waited for.
const patience = 1500 * time.Millisecond

// door is the server's HTTP port. It is there before the store is, which may
// have to wait for other servers: until it is opened the process is alive and not ready, and
// requests wait for a while; not those that look how the server is.
type door struct {
	address net.Addr
	server  *http.Server
	served  chan error // receives once, when it no longer serves

	opened  chan struct{}
	handler *httpapi.Handler // set before opened is closed
}

func newDoor(listener net.Listener, log *slog.Logger) *door {
	d := &door{address: listener.Addr(), served: make(chan error, 1), opened: make(chan struct{})}
	d.server = httpapi.NewServer(d, log)
	go func() { d.served <- d.server.Serve(listener) }() // close waits for it
	return d
}

// open lets requests through.
func (d *door) open(h *httpapi.Handler) {
	d.handler = h
	close(d.opened)
}

// close ends all at once.
func (d *door) close() error {
	return errors.Join(d.server.Close(), ignoreClosed(<-d.served))
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case <-d.opened:
		d.handler.ServeHTTP(w, r)
		return
	default:
	}
	switch r.URL.Path {
	case "/healthz":
		answer(w, http.StatusOK, api.HealthResponse{Status: "ok"})
		return
	case "/readyz", "/v1/cluster":
	default:
		select {
		case <-d.opened:
			d.handler.ServeHTTP(w, r)
			return
		case <-time.After(patience):
		case <-r.Context().Done():
		}
	}
	status, body := api.ErrorOf(&baton.UnavailableError{Op: "start"}, time.Now())
	body.Message = "the server is starting; its log says what it waits for"
	w.Header().Set("Retry-After", strconv.FormatInt(max(1, *body.RetryAfter/1000), 10))
	answer(w, status, body)
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // a client that is gone has nothing to be told
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
