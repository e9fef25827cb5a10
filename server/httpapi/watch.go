package httpapi

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"baton"
	"baton/api"
)

// maxCursor is longer than any store's cursor.
const maxCursor = 256

// watch serves the changes of a group, as a stream or as a long-poll.
func (h *Handler) watch(x *exchange) (int, any, error) {
	x.lasts = true
	after, err := cursorOf(x.r)
	if err != nil {
		return 0, nil, err
	}
	wait, poll, err := h.pollOf(x.r)
	if err != nil {
		return 0, nil, err
	}
	done, err := h.beginWatch()
	if err != nil {
		return 0, nil, err
	}
	defer done()
	f, err := h.follow(x.r.Context(), x.group(), after)
	if err != nil {
		return 0, nil, err
	}
	defer f.end()
	if poll {
		answer, err := h.poll(x.r.Context(), f, after, wait)
		return http.StatusOK, answer, err
	}
	return 0, nil, h.stream(x.w, x.r, f)
}

// beginWatch counts a watch in, unless there are too many or the server shuts down.
func (h *Handler) beginWatch() (done func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.closing:
		return nil, fmt.Errorf("shutting down: %w", baton.ErrUnavailable)
	default:
	}
	if h.watches.Load() >= int64(h.cfg.MaxWatches) {
		return nil, fmt.Errorf("%d watches are served already: %w", h.cfg.MaxWatches, baton.ErrRateLimited)
	}
	h.watches.Add(1)
	h.watching.Add(1)
	return func() {
		h.watches.Add(-1)
		h.watching.Done()
	}, nil
}

// cursorOf reads where to go on. A browser that reconnects repeats its first
// URL, so the header, which it adds, wins.
func cursorOf(r *http.Request) (baton.Cursor, error) {
	field, cursor := "Last-Event-ID", r.Header.Get("Last-Event-ID")
	if cursor == "" {
		field, cursor = "cursor", r.URL.Query().Get("cursor")
	}
	ok := len(cursor) <= maxCursor
	for i := 0; ok && i < len(cursor); i++ {
		ok = cursor[i] > ' ' && cursor[i] < 0x7f
	}
	if !ok {
		return "", &baton.InvalidArgumentError{Field: field, Value: cursor, Want: fmt.Sprintf("a cursor that a watch has given, at most %d bytes", maxCursor)}
	}
	return baton.Cursor(cursor), nil
}

// pollOf tells whether a long-poll is asked for, and how long it may wait.
func (h *Handler) pollOf(r *http.Request) (wait time.Duration, poll bool, err error) {
	if r.Method == http.MethodHead {
		return 0, true, nil // a stream without a body would have no end and no use
	}
	given := r.URL.Query().Get("wait_ms")
	if given == "" {
		return min(30*time.Second, h.cfg.MaxPoll), wantsJSON(r.Header.Values("Accept")), nil
	}
	ms, err := strconv.ParseInt(given, 10, 64)
	if err != nil || ms < 0 {
		return 0, false, &baton.InvalidArgumentError{Field: "wait_ms", Value: given, Want: "a whole number of milliseconds, 0 or more"}
	}
	return min(api.Duration(ms), h.cfg.MaxPoll), true, nil
}

// wantsJSON reports whether JSON is accepted by name and event streams are not.
func wantsJSON(accept []string) bool {
	json := false
	for _, a := range strings.Split(strings.Join(accept, ","), ",") {
		switch t, _, _ := mime.ParseMediaType(strings.TrimSpace(a)); t {
		case "text/event-stream":
			return false
		case "application/json":
			json = true
		}
	}
	return json
}

// following is a watch of the service that can be waited for together with other things.
type following struct {
	events chan baton.Event
	failed chan error // at most one, and the last thing
	cancel context.CancelFunc
	ended  chan struct{}
}

// follow begins a watch. The caller ends it.
func (h *Handler) follow(ctx context.Context, group string, after baton.Cursor) (*following, error) {
	ctx, cancel := context.WithCancel(ctx)
	changes, err := h.svc.Watch(ctx, group, after)
	if err != nil {
		cancel()
		return nil, err
	}
	f := &following{events: make(chan baton.Event, 16), failed: make(chan error, 1), cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		for e, err := range changes {
			if err != nil {
				f.failed <- err
				return
			}
			select {
			case f.events <- e:
			case <-ctx.Done():
				return
			}
		}
		f.failed <- &baton.UnavailableError{Op: "watch group " + group, Err: errors.New("the watch ended")}
	}()
	return f, nil
}

func (f *following) end() {
	f.cancel()
	<-f.ended
}

// poll waits for the first change and takes along what came with it.
func (h *Handler) poll(ctx context.Context, f *following, after baton.Cursor, wait time.Duration) (api.WatchResponse, error) {
	// What is there already takes a moment to get here, also for one who will not wait. And
	// without a cursor there is something: the present state, or an error if the store does not tell.
	const moment = 50 * time.Millisecond
	answer := api.WatchResponse{Events: []api.Event{}, Cursor: string(after)}
	take := func(e baton.Event) {
		answer.Events = append(answer.Events, api.EventOf(e))
		answer.Cursor = string(e.Cursor)
	}
	var over <-chan time.Time
	if after != "" {
		over = time.After(max(wait, moment))
	}
	select {
	case e := <-f.events:
		take(e)
	case err := <-f.failed:
		return api.WatchResponse{}, err
	case <-over:
	case <-h.closing:
	case <-ctx.Done():
	}
	for {
		select {
		case e := <-f.events:
			take(e)
		default:
			return answer, nil
		}
	}
}
