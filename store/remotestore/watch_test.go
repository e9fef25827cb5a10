package remotestore_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"baton"
	"baton/api"
	"baton/store/remotestore"
)

// switched is a server whose handler can be exchanged under its clients.
type switched struct{ now atomic.Pointer[http.Handler] }

func (s *switched) set(h http.Handler) { s.now.Store(&h) }

func (s *switched) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*s.now.Load()).ServeHTTP(w, r) }

// collected reads a watch in the background.
type collected struct {
	t      *testing.T
	events chan baton.Event
	last   chan error
}

func collect(t *testing.T, ctx context.Context, c *remotestore.Client, group string) *collected {
	w := &collected{t: t, events: make(chan baton.Event, 100), last: make(chan error, 1)}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e, err := range c.Watch(ctx, group, "") {
			if err != nil {
				w.last <- err
				continue
			}
			w.events <- e
		}
		close(w.last)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

func (w *collected) next() baton.Event {
	w.t.Helper()
	select {
	case e := <-w.events:
		return e
	case err := <-w.last:
		w.t.Fatalf("the watch ended: %v", err)
	case <-time.After(patience):
		w.t.Fatal("no event")
	}
	return baton.Event{}
}

// A server that shuts down says bye, comes back on the same store, and the
// watch goes on from its cursor: every change once, none missed, no gap.
func TestWatchSurvivesRestart(t *testing.T) {
	t.Parallel()
	memory := newMemory(t)
	var door switched
	handler := newHandler(t, memory)
	door.set(handler)
	s := serve(t, &door)
	c := openClient(t, remotestore.Config{Servers: []string{s.URL}, WatchPatience: patience})
	ctx := within(t)
	w := collect(t, ctx, c, "g")
	w.next()

	term := baton.Term(0)
	for range 5 {
		lease, err := memory.Acquire(ctx, "g", candidate("n"), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if term++; lease.Term != term {
			t.Fatalf("term %d: want %d", lease.Term, term)
		}
		door.set(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { refuse(w, 10*time.Millisecond) }))
		if err := handler.Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
		if err := memory.Release(ctx, lease.ID()); err != nil {
			t.Fatal(err)
		}
		handler = newHandler(t, memory)
		door.set(handler)
		for _, want := range []baton.EventType{baton.LeaderChanged, baton.LeaderLost} {
			if e := w.next(); e.Type != want || e.Term != term || e.Gap {
				t.Fatalf("event %+v: want %s of term %d, without a gap", e, want, term)
			}
		}
	}
	if n := len(w.events); n != 0 {
		t.Errorf("%d events too many", n)
	}
}

// A server that forgets comes back empty: the cursor is foreign to it, and the watch says so.
func TestWatchAtAServerThatForgot(t *testing.T) {
	t.Parallel()
	var door switched
	before := newHandler(t, newMemory(t))
	door.set(before)
	s := serve(t, &door)
	c := openClient(t, remotestore.Config{Servers: []string{s.URL}, WatchPatience: patience})
	w := collect(t, within(t), c, "g")
	w.next()
	door.set(newHandler(t, newMemory(t)))
	s.CloseClientConnections()
	if e := w.next(); !e.Gap {
		t.Errorf("event %+v: want a gap", e)
	}
}

// A connection that is silent, without heartbeats, is given up for another.
func TestWatchNoticesSilence(t *testing.T) {
	t.Parallel()
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// What is after the cursor: a client that was held up may have given up before it saw the last one.
		seen, err := strconv.ParseUint(cmp.Or(r.URL.Query().Get("cursor"), "0"), 10, 64)
		if err != nil {
			t.Errorf("a cursor that nobody gave: %v", err)
		}
		n := seen + 1
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: %s\n\n", encode(api.Event{Type: "LEADER_CHANGED", GroupID: "g", Term: n, LeaderNodeID: "n", Cursor: fmt.Sprint(n)}))
		_ = http.NewResponseController(w).Flush()
		hang(w, r)
	}))
	c := openClient(t, remotestore.Config{Servers: []string{s.URL}, WatchIdle: 50 * time.Millisecond, WatchPatience: patience})
	w := collect(t, within(t), c, "g")
	for want := baton.Term(1); want <= 3; want++ {
		if e := w.next(); e.Term != want {
			t.Fatalf("event %+v: want term %d", e, want)
		}
	}
}

// manualClock moves only when it is told to.
type manualClock struct {
	mu     sync.Mutex
	now    time.Duration
	timers map[*manualTimer]bool
	armed  chan time.Duration // what timers were set for
}

type manualTimer struct {
	at time.Duration
	f  func()
}

func (c *manualClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manualClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	timer := &manualTimer{at: c.now + d, f: f}
	c.timers[timer] = true
	c.armed <- d
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		was := c.timers[timer]
		delete(c.timers, timer)
		return was
	}
}

func (c *manualClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += d
	for timer := range c.timers {
		if timer.at <= c.now {
			delete(c.timers, timer)
			go timer.f()
		}
	}
}

// Heartbeats keep a watch that has nothing to say; when they stop, it looks for another server.
func TestWatchIsKeptByHeartbeats(t *testing.T) {
	t.Parallel()
	const idle = 45 * time.Second
	connected, beat := make(chan struct{}), make(chan struct{})
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		rc := http.NewResponseController(w)
		_ = rc.Flush()
		connected <- struct{}{}
		for {
			select {
			case <-beat:
				_, _ = fmt.Fprint(w, ": still here\n\n")
				_ = rc.Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	clock := &manualClock{now: 1, timers: map[*manualTimer]bool{}, armed: make(chan time.Duration, 1000)}
	c := openClient(t, remotestore.Config{Servers: []string{s.URL}, WatchIdle: idle, Clock: clock})
	collect(t, within(t), c, "g")
	// armed waits until the client has set a timer that is so.
	armed := func(so func(time.Duration) bool) {
		t.Helper()
		limit := time.After(patience)
		for {
			select {
			case d := <-clock.armed:
				if so(d) {
					return
				}
			case <-limit:
				t.Fatal("the client sets no such timer")
			}
		}
	}
	listening := func(d time.Duration) bool { return d == idle }
	pausing := func(d time.Duration) bool { return d < time.Second }
	<-connected
	armed(listening)
	for range 20 {
		beat <- struct{}{}
		armed(listening)
		clock.advance(idle * 2 / 3)
		select {
		case <-connected:
			t.Fatal("the watch was given up although it was alive")
		default:
		}
	}
	clock.advance(idle)
	armed(pausing)
	clock.advance(time.Second)
	select {
	case <-connected:
	case <-time.After(patience):
		t.Fatal("the watch was not given up although it was silent")
	}
}

// A watch that has lost its only server ends in bounded time, with an error, once.
func TestWatchEndsWithoutServers(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(newHandler(t, newMemory(t)))
	c := openClient(t, remotestore.Config{Servers: []string{s.URL}, WatchPatience: 300 * time.Millisecond})
	w := collect(t, within(t), c, "g")
	w.next()
	kill(s)
	select {
	case err := <-w.last:
		wantUnavailable(t, "the last yield", err)
	case <-time.After(patience):
		t.Fatal("the watch did not end")
	}
	if err, more := <-w.last; more {
		t.Errorf("another yield after the error: %v", err)
	}
}

// An error that the server sends before it ends a stream is the watch's own.
func TestWatchReportsTheServersError(t *testing.T) {
	t.Parallel()
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "event: error\ndata: %s\n\n", `{"error":"NOT_FOUND","message":"no such group"}`)
	}))
	c := openClient(t, remotestore.Config{Servers: []string{s.URL}})
	w := collect(t, within(t), c, "g")
	select {
	case err := <-w.last:
		if kind, _ := baton.KindOf(err); kind.Err != baton.ErrNotFound {
			t.Errorf("got %v, want ErrNotFound", err)
		}
	case <-time.After(patience):
		t.Fatal("the watch did not end")
	}
}
