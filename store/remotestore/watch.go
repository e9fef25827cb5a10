package remotestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"

	"baton"
	"baton/api"
)

var errIdle = errors.New("the stream went silent")

// Watch follows a group as baton.Store.Watch does.
func (c *Client) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	return func(yield func(baton.Event, error) bool) {
		if err := baton.ValidateID("group", group); err != nil {
			yield(baton.Event{}, err)
			return
		}
		scoped, cancel := c.scope(ctx)
		defer cancel()
		w := &watch{c: c, group: group, cursor: sendable(after)}
		if err := w.run(scoped, yield); err != nil {
			if scoped.Err() != nil {
				err = c.ended(ctx, "watch")
			}
			yield(baton.Event{}, err)
		}
	}
}

// sendable replaces a cursor that no server can have given, and that one would
// refuse, by one that is foreign to all.
func sendable(c baton.Cursor) baton.Cursor {
	const most = 256
	ok := len(c) <= most
	for i := 0; ok && i < len(c); i++ {
		ok = c[i] > ' ' && c[i] < 0x7f
	}
	if !ok {
		return "foreign"
	}
	return c
}

// watch is one watch over as many connections as it takes.
type watch struct {
	c      *Client
	group  string
	cursor baton.Cursor
	// served: the present or last connection was of use.
	served bool
}

// run returns nil when the reader wants no more, and else why the watch is over.
func (w *watch) run(ctx context.Context, yield func(baton.Event, error) bool) error {
	const least, most = 50 * time.Millisecond, time.Second
	pause := least
	down := time.Duration(-1) // since when there is no server that is of use
	for {
		w.served = false
		stopped, err := w.follow(ctx, yield)
		var lost *failure
		var unavailable *baton.UnavailableError
		switch {
		case stopped:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &lost):
		case errors.As(err, &unavailable):
			if down < 0 {
				return err // there never was one
			}
		case errors.Is(err, baton.ErrRateLimited):
			if down < 0 {
				// As text: it is no answer about the group.
				return &baton.UnavailableError{Op: "watch", Err: errors.New(err.Error())}
			}
		default:
			return err
		}
		now := w.c.cfg.Clock.Now()
		if w.served || down < 0 {
			down, pause = now, least
		}
		if now-down >= w.c.cfg.WatchPatience {
			return &baton.UnavailableError{Op: "watch", Err: fmt.Errorf("no server for %v, lastly: %v", (now - down).Round(time.Millisecond), err)}
		}
		w.c.cfg.Logger.Debug("watch interrupted; looking for a server", "group", w.group, "err", err)
		if w.c.sleep(ctx, jitter(pause)) != nil {
			return ctx.Err()
		}
		pause = min(2*pause, most)
	}
}

// follow reads one connection to its end.
func (w *watch) follow(ctx context.Context, yield func(baton.Event, error) bool) (stopped bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	srv, resp, err := w.connect(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = resp.Body.Close() }() // a stream has nothing to flush

	events := newEventReader(&watchedReader{clock: w.c.cfg.Clock, idle: w.c.cfg.WatchIdle, r: resp.Body, silent: func() { cancel(errIdle) }})
	// One that ends at once, again and again, is not of use.
	const worthwhile = time.Second
	began := w.c.cfg.Clock.Now()
	defer func() { w.served = w.served || w.c.cfg.Clock.Now()-began >= worthwhile }()
	for {
		m, err := events.next()
		if err != nil {
			w.c.servers.failed(srv, 0)
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return false, &failure{server: srv.base, err: err}
		}
		switch m.name {
		case api.SSEBye:
			w.c.servers.failed(srv, 0)
			return false, &failure{server: srv.base, err: errors.New("it is shutting down")}
		case api.SSEError:
			return false, w.streamError(srv, m.data)
		}
		var e api.Event
		if err := json.Unmarshal(m.data, &e); err != nil {
			w.c.servers.failed(srv, 0)
			return false, &failure{server: srv.base, err: fmt.Errorf("decode an event: %w", err)}
		}
		event := e.Event()
		switch event.Type {
		case baton.LeaderChanged, baton.LeaderLost:
		default:
			continue // of a later version of the API
		}
		if event.Group != w.group {
			w.c.servers.failed(srv, 0)
			return false, &failure{server: srv.base, err: fmt.Errorf("an event of group %q", event.Group)}
		}
		w.cursor, w.served = event.Cursor, true
		if !yield(event, nil) {
			return true, nil
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
	}
}

// streamError is the error that a server sent before it ended the stream.
func (w *watch) streamError(srv *server, data []byte) error {
	var body api.Error
	if err := json.Unmarshal(data, &body); err != nil {
		w.c.servers.failed(srv, 0)
		return &failure{server: srv.base, err: fmt.Errorf("decode an error: %w", err)}
	}
	err := body.Err("watch", baton.LeaseID{Group: w.group})
	var unavailable *baton.UnavailableError
	if !errors.As(err, &unavailable) {
		return err
	}
	after := min(unavailable.RetryAfter, maxRetryAfter)
	w.c.servers.failed(srv, w.c.cfg.Clock.Now()+after)
	return &failure{server: srv.base, err: errors.New(body.Message), retryAfter: after}
}

// connect opens a stream at the first server that gives one. ctx is the stream's; the time
// that a server has to begin it is bounded as for any call.
func (w *watch) connect(ctx context.Context) (*server, *http.Response, error) {
	k := call{op: "watch", about: baton.LeaseID{Group: w.group}, method: http.MethodGet, path: groupPath(w.group, "/watch")}
	if w.cursor != "" {
		k.path += "?" + url.Values{"cursor": {string(w.cursor)}}.Encode()
	}
	return w.c.openStream(ctx, k, typeStream)
}

// openStream sends a request whose answer takes its time, of the type accepted, to the
// first server that begins one. ctx is the stream's.
func (c *Client) openStream(ctx context.Context, k call, accepted string) (*server, *http.Response, error) {
	var from *server
	var stream *http.Response
	_, err := c.tryServers(ctx, k, func(try context.Context, srv *server) error {
		// The request runs under the stream's context, and until it has begun under the try's too.
		req, cancel := context.WithCancelCause(ctx)
		unhook := context.AfterFunc(try, func() { cancel(context.Cause(try)) })
		resp, err := c.send(req, srv, k, nil, accepted)
		if err != nil {
			cancel(nil)
			return err
		}
		if isSuccess(resp.StatusCode) && hasType(resp, accepted) {
			if !unhook() { // too late after all
				_ = resp.Body.Close()
				return &failure{server: srv.base, err: context.Cause(try)}
			}
			from, stream = srv, resp
			return nil
		}
		defer cancel(nil)
		defer func() { _ = resp.Body.Close() }()
		data, err := io.ReadAll(io.LimitReader(resp.Body, api.MaxBody))
		if err != nil {
			return &failure{server: srv.base, err: fmt.Errorf("read the answer: %w", err)}
		}
		return refusal(srv, k, resp, data)
	})
	return from, stream, err
}

// watchedReader notices when nothing comes for too long, heartbeats included.
type watchedReader struct {
	clock  baton.Clock
	idle   time.Duration
	r      io.Reader
	silent func()
}

func (r *watchedReader) Read(p []byte) (int, error) {
	stop := r.clock.AfterFunc(r.idle, r.silent)
	defer stop()
	return r.r.Read(p)
}
