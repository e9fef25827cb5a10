package baton_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/store/memstore"
)

func TestNewElectorNamesWhatIsWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMem(t, &jumpClock{})
		good := baton.Config{Group: "g", NodeID: "a"}
		for _, tc := range []struct {
			name   string
			store  baton.Store
			change func(*baton.Config)
			kind   error
			want   []string
		}{
			{"a store that was not made", (*memstore.Store)(nil), func(*baton.Config) {}, baton.ErrInvalidArgument, []string{"store"}},
			{"no store", nil, func(*baton.Config) {}, baton.ErrInvalidArgument, []string{"store"}},
			{"no group", mem, func(c *baton.Config) { c.Group = "" }, baton.ErrInvalidArgument, []string{"Group", `""`, "1 to 128"}},
			{"group too long", mem, func(c *baton.Config) { c.Group = strings.Repeat("g", 129) }, baton.ErrInvalidArgument, []string{"Group", "129 bytes", "128"}},
			{"odd node", mem, func(c *baton.Config) { c.NodeID = "a/b" }, baton.ErrInvalidArgument, []string{"NodeID", "a/b"}},
			{"dots", mem, func(c *baton.Config) { c.NodeID = ".." }, baton.ErrInvalidArgument, []string{"NodeID"}},
			{"metadata", mem, func(c *baton.Config) { c.Metadata = map[string]string{"k": strings.Repeat("v", 5000)} }, baton.ErrInvalidArgument, []string{"metadata", "4096"}},
			{"negative ttl", mem, func(c *baton.Config) { c.TTL = -time.Second }, baton.ErrInvalidTTL, []string{"TTL", "-1s"}},
			{"ttl below the store's", mem, func(c *baton.Config) { c.TTL = time.Microsecond }, baton.ErrInvalidTTL, []string{"TTL", "1µs", mem.Guarantees().MinTTL.String()}},
			{"ttl above all", mem, func(c *baton.Config) { c.TTL = time.Hour }, baton.ErrInvalidTTL, []string{"TTL", "10m0s"}},
			{"negative margin", mem, func(c *baton.Config) { c.Margin = -1 }, baton.ErrInvalidArgument, []string{"Margin"}},
			{"grace above ttl", mem, func(c *baton.Config) { c.StopGrace = time.Minute }, baton.ErrInvalidArgument, []string{"StopGrace", "1m0s", "10s"}},
			{"renews too rarely", mem, func(c *baton.Config) { c.RenewEvery = 4 * time.Second }, baton.ErrInvalidArgument, []string{"RenewEvery", "4s", "10s"}},
			{"negative renewal", mem, func(c *baton.Config) { c.RenewEvery = -1 }, baton.ErrInvalidArgument, []string{"RenewEvery"}},
			{"retries the wrong way round", mem, func(c *baton.Config) { c.RetryMin, c.RetryMax = 2*time.Second, time.Second }, baton.ErrInvalidArgument, []string{"RetryMin", "2s", "1s"}},
			{"negative drain", mem, func(c *baton.Config) { c.DrainTimeout = -1 }, baton.ErrInvalidArgument, []string{"DrainTimeout"}},
			{"endless drain", mem, func(c *baton.Config) { c.DrainTimeout = math.MaxInt64 }, baton.ErrInvalidArgument, []string{"DrainTimeout", "8760h"}},
			{"never asked for readiness", mem, func(c *baton.Config) { c.ReadyEvery = math.MaxInt64 }, baton.ErrInvalidArgument, []string{"ReadyEvery", "8760h"}},
			{"endless retries", mem, func(c *baton.Config) { c.RetryMax = math.MaxInt64 }, baton.ErrInvalidArgument, []string{"RetryMax", "8760h"}},
			{"renews never", mem, func(c *baton.Config) { c.RenewEvery = 1 << 62 }, baton.ErrInvalidArgument, []string{"RenewEvery"}},
			{"renews all the time", mem, func(c *baton.Config) { c.RenewEvery = 4 }, baton.ErrInvalidArgument, []string{"RenewEvery", "4ns", "1ms"}},
			{"looks at the clock all the time", mem, func(c *baton.Config) { c.Margin = 4 }, baton.ErrInvalidArgument, []string{"Margin", "4ns", "1ms"}},
		} {
			cfg := good
			tc.change(&cfg)
			_, err := baton.NewElector(tc.store, cfg)
			if !errors.Is(err, tc.kind) {
				t.Errorf("%s: got %v, want %v", tc.name, err, tc.kind)
				continue
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q does not name %q", tc.name, err, part)
				}
			}
		}
	})
}

func TestAdvise(t *testing.T) {
	a, err := baton.Advise(9*time.Second, 100*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if !(a.FailoverBest < a.FailoverTypical && a.FailoverTypical < a.FailoverWorst) {
		t.Errorf("failover %v, %v, %v", a.FailoverBest, a.FailoverTypical, a.FailoverWorst)
	}
	if a.FailoverBest != 6150*time.Millisecond || a.FailoverWorst != 10250*time.Millisecond || a.SurvivesPause != 4100*time.Millisecond {
		t.Errorf("for 9s: %+v", a)
	}
	for _, bad := range []struct{ ttl, latency time.Duration }{
		{0, 0}, {-1, 0}, {time.Hour, 0}, {9 * time.Second, -1}, {9 * time.Second, 5 * time.Second},
	} {
		if _, err := baton.Advise(bad.ttl, bad.latency); !baton.IsAnswer(err) {
			t.Errorf("Advise(%v, %v): %v", bad.ttl, bad.latency, err)
		}
	}
}

func TestOneCampaignAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		e := newElector(t, newMem(t, clock), "a", clock)
		l := mustCampaign(t, e)
		var conflict *baton.ConflictError
		if _, err := e.Campaign(t.Context()); !errors.As(err, &conflict) || conflict.Reason != baton.ConflictBusy {
			t.Fatalf("got %v", err)
		}
		if err := l.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		mustCampaign(t, e)
	})
}

func TestCloseEndsACampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		mustCampaign(t, newElector(t, mem, "a", clock))
		for _, store := range []baton.Store{mem, &hooks{Store: mem}} {
			e := newElector(t, store, "b", clock)
			ended := make(chan error)
			go func() {
				_, err := e.Campaign(t.Context())
				ended <- err
			}()
			synctest.Wait()
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; !errors.Is(err, baton.ErrClosed) {
				t.Fatalf("got %v", err)
			}
			if _, err := e.Campaign(t.Context()); !errors.Is(err, baton.ErrClosed) {
				t.Fatalf("after Close: %v", err)
			}
		}
	})
}

func TestCloseResigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		e := newElector(t, mem, "a", clock)
		l := mustCampaign(t, e)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if l.Valid() || get(t, mem).Held() {
			t.Fatal("closed and still leading")
		}
	})
}

// A crash, with and without a line: the next one leads when the lease has run out, and not before.
func TestFailover(t *testing.T) {
	for _, line := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			clock := &jumpClock{}
			mem := newMem(t, clock)
			var store baton.Store = &hooks{Store: mem}
			if line {
				store = mem
			}
			lease, err := store.Acquire(t.Context(), "g", baton.Candidate{NodeID: "crashed", InstanceID: "i"}, testTTL)
			if err != nil {
				t.Fatal(err)
			}
			start := clock.Now()
			l := mustCampaign(t, newElector(t, store, "b", clock))
			took := clock.Now() - start
			if took < lease.Remaining || took > lease.Remaining+time.Second {
				t.Errorf("line %v: led after %v of a lease of %v", line, took, lease.Remaining)
			}
			if l.Term() != 2 {
				t.Errorf("line %v: term %d", line, l.Term())
			}
		})
	}
}

// With a store that keeps no line, whoever resigns lets another one in.
func TestResignerDoesNotWinItsOwnGroupBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		a := newElector(t, &hooks{Store: mem}, "a", clock)
		b := newElector(t, &hooks{Store: mem}, "b", clock)
		l := mustCampaign(t, a)
		won := make(chan *baton.Leadership)
		go func() { won <- mustCampaign(t, b) }()
		synctest.Wait()
		if err := l.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		again := make(chan error)
		go func() {
			_, err := a.Campaign(ctx)
			again <- err
		}()
		<-won
		cancel()
		if err := <-again; !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestDuplicateNodeIsNamed(t *testing.T) {
	for _, line := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			clock := &jumpClock{}
			mem := newMem(t, clock)
			var store baton.Store = mem
			if !line {
				store = &hooks{Store: mem}
			}
			l := mustCampaign(t, newElector(t, store, "a", clock))
			_, err := newElector(t, store, "a", clock).Campaign(t.Context())
			var duplicate *baton.DuplicateNodeError
			if !errors.As(err, &duplicate) || duplicate.Held.InstanceID != l.Token().InstanceID {
				t.Fatalf("line %v: got %v", line, err)
			}
			if !errors.Is(err, baton.ErrConflict) || !strings.Contains(err.Error(), `"a"`) {
				t.Fatalf("line %v: the error says %q", line, err)
			}
		})
	}
}

// A node that crashed and came back under its name waits for its own old
// lease, and is not taken for a duplicate.
func TestRestartedNodeIsNoDuplicate(t *testing.T) {
	for _, line := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			clock := &jumpClock{}
			mem := newMem(t, clock)
			var store baton.Store = mem
			if !line {
				store = &hooks{Store: mem}
			}
			lease, err := mem.Acquire(t.Context(), "g", baton.Candidate{NodeID: "a", InstanceID: "before"}, testTTL)
			if err != nil {
				t.Fatal(err)
			}
			go func() { // its last renewal was still on the way
				time.Sleep(time.Second)
				_, _ = mem.Renew(context.Background(), lease.ID(), testTTL)
			}()
			if l := mustCampaign(t, newElector(t, store, "a", clock)); l.Term() != 2 {
				t.Fatalf("line %v: term %d", line, l.Term())
			}
		})
	}
}

// One vacancy of a group with a thousand in line: the store is asked by the
// one whose turn it is, and hardly by anyone else.
func TestHerdInLine(t *testing.T) {
	const candidates = 1000
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		h := &hooks{Store: mem}
		store := lined(h, mem)
		l := mustCampaign(t, newElector(t, store, "leader", clock))
		ctx, cancel := context.WithCancel(t.Context())
		won := make(chan *baton.Leadership, candidates)
		ended := make(chan struct{}, candidates)
		for i := range candidates {
			e := newElector(t, store, fmt.Sprintf("n%04d", i), clock)
			go func() {
				defer func() { ended <- struct{}{} }()
				if l, err := e.Campaign(ctx); err == nil {
					won <- l
				}
			}()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		for round := range 3 {
			before, _, _ := h.counts()
			if err := l.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			l = <-won
			time.Sleep(time.Minute)
			after, _, _ := h.counts()
			t.Logf("vacancy %d: %d acquire attempts for %d candidates", round, after-before, candidates-round)
			if after-before > 3 {
				t.Errorf("%d acquire attempts at one vacancy", after-before)
			}
		}
		cancel()
		for range candidates {
			<-ended
		}
	})
}

// A first in line that died costs about a second, not a TTL.
func TestDeadFirstInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		l := mustCampaign(t, newElector(t, mem, "leader", clock))
		// It waits, as a process does whose connection is still open, and
		// will not act on its turn.
		dead := baton.Candidate{NodeID: "dead", InstanceID: "dead"}
		called := make(chan error, 1)
		go func() { called <- mem.Await(t.Context(), "g", dead) }()
		synctest.Wait()
		won := make(chan *baton.Leadership)
		e := newElector(t, mem, "next", clock)
		go func() { won <- mustCampaign(t, e) }()
		synctest.Wait()
		start := clock.Now()
		if err := l.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-won
		if err := <-called; err != nil {
			t.Fatalf("the dead one was not called: %v", err)
		}
		if took := clock.Now() - start; took < 500*time.Millisecond || took > 2*time.Second {
			t.Fatalf("the next one led after %v", took)
		}
	})
}

// Without a line candidates watch the group and try with jitter: the number of attempts is
// bounded, although nobody keeps order.
func TestHerdWithoutALine(t *testing.T) {
	const candidates = 200
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		h := &hooks{Store: mem}
		h.onAcquire = func(_ int, call func() (baton.Lease, error)) (baton.Lease, error) {
			time.Sleep(500 * time.Microsecond) // there and back
			lease, err := call()
			time.Sleep(500 * time.Microsecond)
			return lease, err
		}
		l := mustCampaign(t, newElector(t, h, "leader", clock))
		ctx, cancel := context.WithCancel(t.Context())
		won := make(chan *baton.Leadership, candidates)
		ended := make(chan struct{}, candidates)
		for i := range candidates {
			// Evenly spread instead of random: what full jitter does on average.
			spread := float64(i) / candidates
			e := newElector(t, h, fmt.Sprintf("n%03d", i), clock, func(c *baton.Config) { c.Jitter = func() float64 { return spread } })
			go func() {
				defer func() { ended <- struct{}{} }()
				if l, err := e.Campaign(ctx); err == nil {
					won <- l
				}
			}()
		}
		time.Sleep(2 * testTTL)
		before, _, _ := h.counts()
		if err := l.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-won
		synctest.Wait()
		after, _, _ := h.counts()
		t.Logf("%d acquire attempts for %d candidates without a line", after-before, candidates)
		if after-before > candidates/10 {
			t.Errorf("%d acquire attempts at one vacancy", after-before)
		}
		cancel()
		for range candidates {
			<-ended
		}
	})
}

func TestObserveTellsWhyNobodyLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		h := &hooks{Store: mem}
		var broken atomic.Bool
		h.onWatch = func(seq iter.Seq2[baton.Event, error]) iter.Seq2[baton.Event, error] {
			return func(yield func(baton.Event, error) bool) {
				if broken.Load() {
					yield(baton.Event{}, errNoReply)
					return
				}
				for ev, err := range seq {
					if broken.Load() {
						yield(baton.Event{}, errNoReply)
						return
					}
					if !yield(ev, err) {
						return
					}
				}
			}
		}
		observer := newElector(t, h, "observer", clock)
		events := make(chan baton.Event)
		ctx, cancel := context.WithCancel(t.Context())
		last := make(chan error, 1)
		go func() {
			for ev, err := range observer.Observe(ctx) {
				if err != nil {
					last <- err
					return
				}
				events <- ev
			}
		}()
		expect := func(typ baton.EventType, term baton.Term, node string, reason baton.Reason) baton.Event {
			t.Helper()
			ev := <-events
			if ev.Type != typ || ev.Term != term || ev.NodeID != node || ev.Reason != reason {
				t.Fatalf("observed %+v, want %s of term %d by %q because %q", ev, typ, term, node, reason)
			}
			return ev
		}
		expect(baton.LeaderLost, 0, "", "")
		a := newElector(t, mem, "a", clock)
		l := mustCampaign(t, a)
		expect(baton.LeaderChanged, 1, "a", "")
		if err := l.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(baton.LeaderLost, 1, "", baton.Resigned)
		if _, err := mem.Acquire(t.Context(), "g", baton.Candidate{NodeID: "b", InstanceID: "b"}, testTTL); err != nil {
			t.Fatal(err)
		}
		expect(baton.LeaderChanged, 2, "b", "")
		expect(baton.LeaderLost, 2, "", baton.Expired)

		broken.Store(true)
		if _, err := mem.Acquire(t.Context(), "g", baton.Candidate{NodeID: "c", InstanceID: "c"}, time.Minute); err != nil {
			t.Fatal(err)
		}
		if ev := expect(baton.LeaderUnknown, 0, "", ""); !errors.Is(ev.Err, baton.ErrUnavailable) {
			t.Fatalf("unknown, because %v", ev.Err)
		}
		broken.Store(false)
		if ev := expect(baton.LeaderChanged, 3, "c", ""); !ev.Gap {
			t.Fatal("what was missed is not marked as a gap")
		}
		cancel()
		if err := <-last; !errors.Is(err, context.Canceled) {
			t.Fatalf("the last yield is %v", err)
		}
	})
}
