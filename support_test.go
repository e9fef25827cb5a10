package baton_test

import (
	"context"
	"io"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"baton"
	"baton/internal/boottime"
	"baton/internal/leak"
	"baton/store/memstore"
)

func TestMain(m *testing.M) { leak.Main(m) }

// jumpClock is the bubble's clock, with a hand on it: jump is a pause of the
// process or the machine, after which time has passed and no timer has fired yet.
type jumpClock struct{ ahead atomic.Int64 }

func (c *jumpClock) Now() time.Duration {
	return boottime.Monotonic().Now() + time.Duration(c.ahead.Load())
}

func (c *jumpClock) AfterFunc(d time.Duration, f func()) func() bool {
	return boottime.Monotonic().AfterFunc(d, f)
}

func (c *jumpClock) jump(d time.Duration) { c.ahead.Add(int64(d)) }

// hooks is a store whose calls a test can bend. It hides the optional
// capabilities of the store beneath; withLine gives them back.
type hooks struct {
	baton.Store

	mu       sync.Mutex
	acquires int
	renews   int
	releases int

	// Each is called with the number of the call, from 1, and the real thing.
	onAcquire func(n int, call func() (baton.Lease, error)) (baton.Lease, error)
	onRenew   func(n int, call func() (baton.Lease, error)) (baton.Lease, error)
	onRelease func(n int, call func() error) error
	onWatch   func(call iter.Seq2[baton.Event, error]) iter.Seq2[baton.Event, error]
}

func (h *hooks) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	h.mu.Lock()
	h.acquires++
	n := h.acquires
	h.mu.Unlock()
	call := func() (baton.Lease, error) { return h.Store.Acquire(ctx, group, c, ttl) }
	if h.onAcquire == nil {
		return call()
	}
	return h.onAcquire(n, call)
}

func (h *hooks) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	h.mu.Lock()
	h.renews++
	n := h.renews
	h.mu.Unlock()
	call := func() (baton.Lease, error) { return h.Store.Renew(ctx, id, extend) }
	if h.onRenew == nil {
		return call()
	}
	return h.onRenew(n, call)
}

func (h *hooks) Release(ctx context.Context, id baton.LeaseID) error {
	h.mu.Lock()
	h.releases++
	n := h.releases
	h.mu.Unlock()
	call := func() error { return h.Store.Release(ctx, id) }
	if h.onRelease == nil {
		return call()
	}
	return h.onRelease(n, call)
}

func (h *hooks) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	seq := h.Store.Watch(ctx, group, after)
	if h.onWatch == nil {
		return seq
	}
	return h.onWatch(seq)
}

func (h *hooks) counts() (acquires, renews, releases int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.acquires, h.renews, h.releases
}

// withLine is hooks with the line and the ender of the store beneath.
type withLine struct {
	*hooks
	baton.Line
	baton.Ender
}

func lined(h *hooks, mem *memstore.Store) withLine { return withLine{hooks: h, Line: mem, Ender: mem} }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

const (
	testTTL    = 10 * time.Second
	testMargin = testTTL / 10
	testGrace  = testTTL / 10
)

func newMem(t *testing.T, clock baton.Clock) *memstore.Store {
	t.Helper()
	mem, err := memstore.New(memstore.Config{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mem.Close() })
	return mem
}

// newElector builds an elector with the timing of these tests; change bends it.
func newElector(t *testing.T, store baton.Store, node string, clock baton.Clock, change ...func(*baton.Config)) *baton.LeaseElector {
	t.Helper()
	cfg := baton.Config{
		Group: "g", NodeID: node, TTL: testTTL, Clock: clock, Logger: quiet,
		Jitter: func() float64 { return 0.5 },
	}
	for _, f := range change {
		f(&cfg)
	}
	e, err := baton.NewElector(store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func mustCampaign(t *testing.T, e baton.Elector) *baton.Leadership {
	t.Helper()
	l, err := e.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func get(t *testing.T, s baton.Store) baton.Lease {
	t.Helper()
	lease, err := s.Get(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	return lease
}
