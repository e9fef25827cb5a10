package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"time"

	"baton"
	"baton/api"
)

// guard is what holds for all requests, whether they have a route or not.
func (h *Handler) guard(next http.Handler) http.Handler {
	// A page of another site that is open in the operator's browser must not
	// be able to step leaders down here.
	crossOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { //nolint:errorlint // it is compared as net/http does
				panic(p)
			}
			h.log.Error("request failed inside", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			h.fail(w, &baton.UnavailableError{Op: r.Method + " " + r.URL.Path, Err: errors.New("internal error")})
		}()
		w.Header()["X-Content-Type-Options"] = noSniff
		if r.ProtoMajor > 1 || r.Header.Get("Expect") != "" {
			// The connection's last request may have left one. An answer over HTTP/1 gets
			// its own before anything is written, but for the go-ahead that a client waits for.
			h.endWrite(w)
		}
		if r.Body != http.NoBody {
			// Also for a body that no route reads: the connection waits for it to end.
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(h.cfg.BodyTimeout))
		}
		if err := h.check(r); err != nil {
			h.fail(w, err)
			return
		}
		if err := crossOrigin.Check(r); err != nil {
			h.fail(w, fmt.Errorf("%w: %w", baton.ErrNotAllowed, err))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Values of headers that all answers share: nobody changes one in place.
var (
	noSniff  = []string{"nosniff"}
	typeJSON = []string{"application/json"}
	noStore  = []string{"no-store"}
)

// check refuses what no route should see.
func (h *Handler) check(r *http.Request) error {
	if err := h.checkHost(r); err != nil {
		return err
	}
	if err := checkPath(r); err != nil {
		return err
	}
	return checkQuery(r)
}

// serve runs a route, writes its answer and counts it.
func (h *Handler) serve(rt route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		x := &exchange{w: w, r: r}
		status, body, err := rt.handle(x)
		code := "OK"
		switch {
		case err != nil:
			kind, _ := baton.KindOf(err)
			if code = kind.Code; r.Context().Err() != nil {
				code = "CANCELLED" // by the client; one that closed only its own half still reads the answer
			}
			h.fail(w, err)
		case body != nil:
			h.allowWrite(w)
			writeJSON(w, status, body)
		}
		if !x.lasts {
			h.svc.Observe(rt.op, code, time.Since(began))
		}
		if h.log.Enabled(r.Context(), slog.LevelDebug) {
			h.log.Debug("request", "op", rt.op, "path", r.URL.Path, "code", code, "took", time.Since(began), "from", r.RemoteAddr)
		}
	}
}

// allowWrite gives the client WriteTimeout from now to accept what is written next.
func (h *Handler) allowWrite(w http.ResponseWriter) {
	// A writer without deadlines, as tests may use, has none to set.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(h.cfg.WriteTimeout))
}

// endWrite takes the limit back. It has to be, while an exchange goes on: over
// HTTP/2 a stream whose deadline passes is closed, even if nothing is being written.
func (h *Handler) endWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
}

func (h *Handler) fail(w http.ResponseWriter, err error) {
	kind, _ := baton.KindOf(err)
	h.failAs(w, kind.HTTP, err)
}

func (h *Handler) failAs(w http.ResponseWriter, status int, err error) {
	_, body := api.ErrorOf(err, h.svc.Now())
	if body.RetryAfter != nil {
		seconds := (*body.RetryAfter + 999) / 1000
		w.Header().Set("Retry-After", strconv.FormatInt(max(seconds, 1), 10))
	}
	h.allowWrite(w)
	writeJSON(w, status, body)
}

// checkQuery refuses parameters that cannot be decoded, which would otherwise count as not given.
func checkQuery(r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		return &baton.InvalidArgumentError{Field: "query", Value: r.URL.RawQuery, Want: "name=value pairs with valid percent-encoding, between &"}
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	raw, err := json.Marshal(body)
	if err != nil {
		// Only a type of package api that cannot be marshalled gets here.
		panic(fmt.Sprintf("marshal %T: %v", body, err))
	}
	head := w.Header()
	head["Content-Type"], head["Cache-Control"] = typeJSON, noStore
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n')) // a client that is gone has nothing to be told
}

// decode reads the body into v, in bounded size, and in the time that guard has set.
func (h *Handler) decode(x *exchange, v any, fields api.Fields) error {
	if x.r.ContentLength > api.MaxBody {
		return fmt.Errorf("body: %w: at most %d bytes", baton.ErrTooLarge, api.MaxBody)
	}
	err := api.Decode(x.r.Body, v, fields)
	if err == nil {
		// From here on a read only waits for the client to hang up.
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Time{})
	}
	return err
}
