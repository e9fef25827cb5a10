// Package httpapi is the HTTP door of the election service: JSON over plain
// net/http, changes as Server-Sent Events or long-polls.
//
// Every answer that is not a success has a body of package api's Error, also
// for paths and methods that do not exist. The routes are those of
// api/openapi.json, no more and no less; a test holds both to it.
package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"baton/server"
	"baton/web"
)

// Config is what the door can be told. The zero value is ready to use.
type Config struct {
	// Heartbeat is how often a silent event stream shows that it lives; 15 s if zero.
	Heartbeat time.Duration
	// WriteTimeout is how long a client may take to accept an answer, or one
	// message of a stream, before it is dropped; 10 s if zero.
	WriteTimeout time.Duration
	// BodyTimeout is how long a client may take to send its body; 10 s if zero.
	BodyTimeout time.Duration
	// MaxPoll bounds how long a long-poll waits; 60 s if zero.
	MaxPoll time.Duration
	// MaxWatches bounds how many watches are served at once; 50,000 if zero.
	MaxWatches int
	// Hosts are names, besides loopback's own, by which a server that listens
	// on loopback may be called, as by a proxy in front of it; "*" is any.
	Hosts []string
	// NoUI leaves the dashboard out.
	NoUI bool
	// Logger is slog.Default() if nil.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{
		{&c.Heartbeat, 15 * time.Second},
		{&c.WriteTimeout, 10 * time.Second},
		{&c.BodyTimeout, 10 * time.Second},
		{&c.MaxPoll, time.Minute},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	if c.MaxWatches == 0 {
		c.MaxWatches = 50_000
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Handler serves the API.
type Handler struct {
	svc *server.Service
	cfg Config
	log *slog.Logger

	mux     *http.ServeMux
	handler http.Handler // mux behind everything that holds for all routes
	routes  []route
	metrics http.Handler
	web     http.Handler // nil if there is none

	lastHost atomic.Pointer[string] // a name that was found to be allowed

	closing   chan struct{}
	closeOnce sync.Once
	watches   atomic.Int64
	mu        sync.Mutex // orders new watches before or after closing
	watching  sync.WaitGroup
}

// New returns the API of svc.
func New(svc *server.Service, cfg Config) *Handler {
	h := &Handler{svc: svc, cfg: cfg.withDefaults(), closing: make(chan struct{}), mux: http.NewServeMux()}
	h.log = h.cfg.Logger
	h.metrics = promhttp.HandlerFor(svc.Metrics(), promhttp.HandlerOpts{})
	if !h.cfg.NoUI {
		h.web = http.StripPrefix("/ui", web.Handler())
	}
	h.routes = h.routeList()
	for _, r := range h.routes {
		h.mux.HandleFunc(r.method+" "+r.pattern, h.serve(r))
	}
	h.mux.HandleFunc("/", h.noRoute)
	h.handler = h.guard(h.mux)
	return h
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.handler.ServeHTTP(w, r) }

// Shutdown ends what could last: streams with a hint to reconnect, long-polls
// and waits in line with what they have. Other requests go on; ending those is
// http.Server's part, to be called after this. It returns when all have ended, or with ctx.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.closeOnce.Do(func() {
		h.mu.Lock()
		close(h.closing)
		h.mu.Unlock()
		h.svc.Drain()
	})
	ended := make(chan struct{})
	go func() {
		h.watching.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// NewServer returns a server for handler with the limits that a port open to
// strangers needs. Writing is limited by the handler itself, answer by answer,
// since streams and waits last for as long as they are wanted.
func NewServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext:       onListener,
	}
}
