package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/internal/boottime"
	"baton/internal/leak"
	"baton/store/memstore"
)

func TestMain(m *testing.M) { leak.Main(m) }

// jumpClock is the bubble's clock with a hand on it: after a jump time has
// passed and no timer has fired, as after a suspend.
type jumpClock struct{ ahead atomic.Int64 }

func (c *jumpClock) Now() time.Duration {
	return boottime.Monotonic().Now() + time.Duration(c.ahead.Load())
}

func (c *jumpClock) AfterFunc(d time.Duration, f func()) func() bool {
	return boottime.Monotonic().AfterFunc(d, f)
}

func (c *jumpClock) jump(d time.Duration) { c.ahead.Add(int64(d)) }

func open(t *testing.T, cfg memstore.Config) *memstore.Store {
	t.Helper()
	if cfg.Clock == nil {
		cfg.Clock = boottime.Monotonic()
	}
	s, err := memstore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func node(id string, instance int) baton.Candidate {
	return baton.Candidate{NodeID: id, InstanceID: fmt.Sprintf("%s-%d", id, instance)}
}

func acquire(t *testing.T, s baton.Store, c baton.Candidate, ttl time.Duration) baton.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), "g", c, ttl)
	if err != nil {
		t.Fatalf("acquire for %s: %v", c.NodeID, err)
	}
	return l
}

func TestConfigIsChecked(t *testing.T) {
	for field, cfg := range map[string]memstore.Config{
		"FirstTerm":      {FirstTerm: baton.MaxTerm + 1},
		"RetainPerGroup": {RetainPerGroup: -1},
		"RetainTotal":    {RetainTotal: -1},
	} {
		_, err := memstore.New(cfg)
		var invalid *baton.InvalidArgumentError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestFirstTerm(t *testing.T) {
	first := baton.Term(time.Now().UnixMilli() << 10)
	s := open(t, memstore.Config{FirstTerm: first})
	if l, err := s.Get(t.Context(), "g"); err != nil || l.Term != first-1 || l.Held() {
		t.Errorf("before: %+v, %v", l, err)
	}
	if l := acquire(t, s, node("a", 1), time.Minute); l.Term != first {
		t.Errorf("the first term is %d: want %d", l.Term, first)
	}
}

func TestTermsRunOut(t *testing.T) {
	s := open(t, memstore.Config{FirstTerm: baton.MaxTerm})
	l := acquire(t, s, node("a", 1), time.Minute)
	if err := s.Release(t.Context(), l.ID()); err != nil {
		t.Fatal(err)
	}
	_, err := s.Acquire(t.Context(), "g", node("a", 2), time.Minute)
	var conflict *baton.ConflictError
	if !errors.As(err, &conflict) || conflict.Reason != baton.ConflictTermsExhausted {
		t.Errorf("after the last term: %v", err)
	}
}

// TestExpiryIsToldInTime renews a lease, then lets it run out while nobody looks at it.
func TestExpiryIsToldInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memstore.Config{})
		start := time.Now()
		l := acquire(t, s, node("a", 1), 10*time.Second)
		time.AfterFunc(6*time.Second, func() {
			if _, err := s.Renew(t.Context(), l.ID(), 10*time.Second); err != nil {
				t.Errorf("renew: %v", err)
			}
		})
		for e, err := range s.Watch(t.Context(), "g", "") {
			if err != nil {
				t.Fatal(err)
			}
			if e.Type == baton.LeaderChanged {
				continue
			}
			if e.Reason != baton.Expired || e.PreviousNodeID != "a" || time.Since(start) != 16*time.Second {
				t.Errorf("after %v: %+v", time.Since(start), e)
			}
			break
		}
	})
}

// TestLateAlarm lets time pass without any timer: whoever looks first ends the lease.
func TestLateAlarm(t *testing.T) {
	looks := map[string]func(t *testing.T, s *memstore.Store, l baton.Lease){
		"get": func(t *testing.T, s *memstore.Store, l baton.Lease) {
			if now, err := s.Get(t.Context(), "g"); err != nil || now.Held() || now.Term != l.Term {
				t.Errorf("%+v, %v", now, err)
			}
		},
		"renew": func(t *testing.T, s *memstore.Store, l baton.Lease) {
			_, err := s.Renew(t.Context(), l.ID(), time.Minute)
			var not *baton.NotLeaderError
			if !errors.As(err, &not) || not.Current.Held() {
				t.Error(err)
			}
		},
		"release": func(t *testing.T, s *memstore.Store, l baton.Lease) {
			if err := s.Release(t.Context(), l.ID()); !errors.Is(err, baton.ErrNotLeader) {
				t.Error(err)
			}
		},
		"end": func(t *testing.T, s *memstore.Store, l baton.Lease) {
			if err := s.End(t.Context(), "g", l.Term, baton.Ending{Reason: baton.SteppedDown}); !errors.Is(err, baton.ErrNotLeader) {
				t.Error(err)
			}
		},
		"acquire": func(t *testing.T, s *memstore.Store, l baton.Lease) {
			if next := acquire(t, s, node("b", 1), time.Minute); next.Term != l.Term+1 {
				t.Errorf("%+v", next)
			}
		},
		"acquire again": func(t *testing.T, s *memstore.Store, _ baton.Lease) {
			_, err := s.Acquire(t.Context(), "g", node("a", 1), time.Minute)
			var conflict *baton.ConflictError
			if !errors.As(err, &conflict) || conflict.Reason != baton.ConflictInstanceEnded {
				t.Error(err)
			}
		},
		"watch": func(t *testing.T, s *memstore.Store, l baton.Lease) {
			for e, err := range s.Watch(t.Context(), "g", "") {
				if err != nil || e.Type != baton.LeaderLost || e.Term != l.Term {
					t.Errorf("%+v, %v", e, err)
				}
				break
			}
		},
		"await": func(t *testing.T, s *memstore.Store, _ baton.Lease) {
			if err := s.Await(t.Context(), "g", node("b", 1)); err != nil {
				t.Error(err)
			}
		},
		"delete": func(t *testing.T, s *memstore.Store, _ baton.Lease) {
			if err := s.DeleteGroup(t.Context(), "g"); err != nil {
				t.Error(err)
			}
		},
		"history": func(t *testing.T, s *memstore.Store, l baton.Lease) {
			past, err := s.History(t.Context(), "g")
			if err != nil || len(past) != 1 || past[0].Reason != baton.Expired || past[0].Term != l.Term {
				t.Errorf("%+v, %v", past, err)
			}
		},
	}
	for name, look := range looks {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := &jumpClock{}
				s := open(t, memstore.Config{Clock: clock})
				l := acquire(t, s, node("a", 1), 10*time.Second)
				clock.jump(10 * time.Second)
				look(t, s, l)
			})
		})
	}
}

func TestLoserIsToldHowLongToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memstore.Config{})
		acquire(t, s, node("a", 1), 10*time.Second)
		time.Sleep(3 * time.Second)
		_, err := s.Acquire(t.Context(), "g", node("b", 1), 10*time.Second)
		var held *baton.HeldError
		if !errors.As(err, &held) || held.RetryAfter != 7*time.Second || held.Lease.Remaining != 7*time.Second {
			t.Errorf("%v", err)
		}
		_, err = s.Renew(t.Context(), baton.LeaseID{Group: "g", NodeID: "b", InstanceID: "b-1", Term: 1}, time.Second)
		var not *baton.NotLeaderError
		if !errors.As(err, &not) || not.Current.NodeID != "a" || not.Current.Remaining != 7*time.Second {
			t.Errorf("%v", err)
		}
	})
}

func TestTurnIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memstore.Config{})
		l := acquire(t, s, node("a", 1), time.Minute)
		called := make(chan error, 1)
		go func() { called <- s.Await(t.Context(), "g", node("b", 1)) }()
		synctest.Wait()
		if err := s.Release(t.Context(), l.ID()); err != nil {
			t.Fatal(err)
		}
		if err := <-called; err != nil {
			t.Fatal(err)
		}
		time.Sleep(400 * time.Millisecond)

		_, err := s.Acquire(t.Context(), "g", node("c", 1), time.Minute)
		var held *baton.HeldError
		if !errors.As(err, &held) || held.Lease.Held() || held.Lease.Term != l.Term || held.RetryAfter != 600*time.Millisecond {
			t.Errorf("out of turn: %v", err)
		}
		// An instance that has led must draw a new one; waiting would not help it.
		_, err = s.Acquire(t.Context(), "g", node("a", 1), time.Minute)
		var conflict *baton.ConflictError
		if !errors.As(err, &conflict) || conflict.Reason != baton.ConflictInstanceEnded {
			t.Errorf("ended, and out of turn: %v", err)
		}

		// Once the turn is over, anyone may come: nobody else waits.
		time.Sleep(held.RetryAfter)
		acquire(t, s, node("c", 1), time.Minute)
	})
}

// TestHolderNeedNotWait: its Acquire was granted and the answer lost, so it goes back into line.
func TestHolderNeedNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memstore.Config{})
		l := acquire(t, s, node("a", 1), time.Minute)
		if err := s.Await(t.Context(), "g", node("a", 1)); err != nil {
			t.Fatal(err)
		}
		if again := acquire(t, s, node("a", 1), time.Minute); again.ID() != l.ID() {
			t.Errorf("%+v", again)
		}
	})
}

func TestExpiryCallsTheSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memstore.Config{})
		l := acquire(t, s, node("a", 1), 10*time.Second)
		called := make(chan string, 2)
		ctx, cancel := context.WithCancel(t.Context())
		for _, id := range []string{"b", "c"} {
			go func() {
				if s.Await(ctx, "g", node(id, 1)) == nil {
					called <- id
				}
			}()
			synctest.Wait()
		}
		if err := s.End(t.Context(), "g", l.Term, baton.Ending{Reason: baton.Transferred, Successor: "c"}); err != nil {
			t.Fatal(err)
		}
		if first := <-called; first != "c" {
			t.Errorf("%s was called", first)
		}
		acquire(t, s, node("c", 1), time.Minute)
		cancel()
	})
}

func TestCursors(t *testing.T) {
	first := func(s baton.Store, after baton.Cursor) baton.Event {
		for e, err := range s.Watch(t.Context(), "g", after) {
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		t.Fatal("the watch yields nothing")
		return baton.Event{}
	}
	s := open(t, memstore.Config{RetainPerGroup: 2})
	start := first(s, "").Cursor
	l := acquire(t, s, node("a", 1), time.Minute)
	if e := first(s, start); e.Gap || e.Term != l.Term || e.Type != baton.LeaderChanged {
		t.Errorf("what came after the cursor: %+v", e)
	}
	if err := s.Release(t.Context(), l.ID()); err != nil {
		t.Fatal(err)
	}
	next := acquire(t, s, node("b", 1), time.Minute)
	if e := first(s, start); !e.Gap || e.Term != next.Term {
		t.Errorf("after a cursor whose next event is gone: %+v", e)
	}
	if e := first(open(t, memstore.Config{}), start); !e.Gap || e.Type != baton.LeaderLost {
		t.Errorf("after another store's cursor: %+v", e)
	}
}

// TestCloseDoesNotWaitForLeases also sees to it, in a bubble, that no timer goroutine is left.
func TestCloseDoesNotWaitForLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memstore.Config{})
		start := time.Now()
		for i, ttl := range []time.Duration{10 * time.Minute, time.Minute, 5 * time.Minute} {
			if _, err := s.Acquire(t.Context(), fmt.Sprint("g", i), node("a", 1), ttl); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("close took %v", waited)
		}
		for what, err := range map[string]error{
			"end":    s.End(t.Context(), "g0", 1, baton.Ending{Reason: baton.SteppedDown}),
			"delete": s.DeleteGroup(t.Context(), "g0"),
		} {
			if !errors.Is(err, baton.ErrUnavailable) {
				t.Errorf("%s after close: %v", what, err)
			}
		}
	})
}

func BenchmarkRenew(b *testing.B) {
	s, err := memstore.New(memstore.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	l, err := s.Acquire(b.Context(), "g", node("a", 1), time.Minute)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Renew(b.Context(), l.ID(), time.Minute); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	s, err := memstore.New(memstore.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		l, err := s.Acquire(b.Context(), "g", node("a", i), time.Minute)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Release(b.Context(), l.ID()); err != nil {
			b.Fatal(err)
		}
	}
}
