package baton_test

import (
	"context"
	"errors"
	"iter"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"baton"
)

// Stores that answer oddly: an elector makes nothing unsafe of it, and does not run hot.

// acquiresIn counts the attempts of a campaign at this store, called off after a while.
func acquiresIn(t *testing.T, d time.Duration, store baton.Store, h *hooks, clock baton.Clock) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	h.onAcquire = stopsAt(1000, h.onAcquire)
	if _, err := newElector(t, store, "a", clock).Campaign(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("the campaign ended with %v", err)
	}
	n, _, _ := h.counts()
	return n
}

type acquireHook = func(int, func() (baton.Lease, error)) (baton.Lease, error)

// stopsAt keeps a loop that takes no time from going on for ever.
func stopsAt(most int, hook acquireHook) acquireHook {
	return func(n int, call func() (baton.Lease, error)) (baton.Lease, error) {
		switch {
		case n > most:
			time.Sleep(time.Hour)
			return baton.Lease{}, errNoReply
		case hook != nil:
			return hook(n, call)
		}
		return call()
	}
}

func TestGrantOfSomethingElseIsNotLed(t *testing.T) {
	for name, bend := range map[string]func(*baton.Lease){
		"another group":    func(l *baton.Lease) { l.Group = "other" },
		"no term":          func(l *baton.Lease) { l.Term = 0 },
		"another instance": func(l *baton.Lease) { l.InstanceID = "other" },
		"another node":     func(l *baton.Lease) { l.NodeID = "other" },
		"nobody":           func(l *baton.Lease) { l.NodeID = "" },
	} {
		synctest.Test(t, func(t *testing.T) {
			clock := &jumpClock{}
			h := &hooks{Store: newMem(t, clock)}
			h.onAcquire = func(_ int, call func() (baton.Lease, error)) (baton.Lease, error) {
				lease, err := call()
				bend(&lease)
				return lease, err
			}
			if l, err := newElector(t, h, "a", clock).Campaign(t.Context()); err == nil {
				t.Errorf("%s: leads as %v", name, l.Token())
			}
		})
	}
}

// Rule 5, at a store that has forgotten: no term is led twice by one node.
func TestFallenTermIsNotLed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		h := &hooks{Store: mem}
		h.onAcquire = func(n int, call func() (baton.Lease, error)) (baton.Lease, error) {
			lease, err := call()
			if n > 1 {
				lease.Term = 1
			}
			return lease, err
		}
		e := newElector(t, h, "a", clock)
		if err := mustCampaign(t, e).Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l, err := e.Campaign(t.Context()); err == nil || baton.IsAnswer(err) {
			t.Fatalf("leads in term %d again, or not, because %v", l.Term(), err)
		}
	})
}

// No lease is trusted for longer than a lease can last.
func TestEndlessGrantIsNotTrustedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		clock.jump(time.Hour * 24 * 365 * 100)
		endless := func(_ int, call func() (baton.Lease, error)) (baton.Lease, error) {
			lease, err := call()
			lease.Remaining = math.MaxInt64
			return lease, err
		}
		h := &hooks{Store: newMem(t, clock), onAcquire: endless, onRenew: endless}
		l := mustCampaign(t, newElector(t, h, "a", clock))
		time.Sleep(3 * testTTL)
		if left := l.Remaining(); left <= 0 || left > baton.MaxTTL {
			t.Fatalf("trusted for another %v", left)
		}
	})
}

func TestEndlessLeaseOfAnotherIsAskedAboutNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		mustCampaign(t, newElector(t, mem, "b", clock))
		h := &hooks{Store: mem}
		h.onAcquire = func(_ int, call func() (baton.Lease, error)) (baton.Lease, error) {
			lease, err := call()
			var held *baton.HeldError
			if errors.As(err, &held) {
				held.Lease.Remaining = math.MaxInt64
			}
			return lease, err
		}
		if n := acquiresIn(t, time.Minute, h, h, clock); n > 5 {
			t.Fatalf("asked %d times in a minute", n)
		}
	})
}

// A turn that the store keeps for somebody, and for far too long.
func TestEndlessTurnOfAnotherIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		h := &hooks{Store: newMem(t, clock)}
		h.onAcquire = func(n int, call func() (baton.Lease, error)) (baton.Lease, error) {
			if n == 1 {
				return baton.Lease{}, &baton.HeldError{Lease: baton.Lease{Group: "g"}, RetryAfter: math.MaxInt64}
			}
			return call()
		}
		start := clock.Now()
		mustCampaign(t, newElector(t, h, "a", clock))
		if waited := clock.Now() - start; waited > testTTL {
			t.Fatalf("waited %v", waited)
		}
	})
}

// Every grant is asked to end at once.
func TestGrantsThatAreAllEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		h := &hooks{Store: newMem(t, clock)}
		h.onAcquire = func(_ int, call func() (baton.Lease, error)) (baton.Lease, error) {
			lease, err := call()
			if err == nil {
				lease.Ending = &baton.Ending{Reason: baton.SteppedDown}
			}
			return lease, err
		}
		if n := acquiresIn(t, time.Minute, h, h, clock); n > 100 {
			t.Fatalf("asked %d times in a minute", n)
		}
	})
}

// A watch that is stuck at a vacancy that is over: the answer that somebody
// leads is newer, and is believed.
func TestStuckWatchIsNoVacancy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		mustCampaign(t, newElector(t, mem, "b", clock))
		h := &hooks{Store: mem}
		h.onWatch = func(call iter.Seq2[baton.Event, error]) iter.Seq2[baton.Event, error] {
			return func(yield func(baton.Event, error) bool) {
				if !yield(baton.Event{Type: baton.LeaderLost, Group: "g"}, nil) {
					return
				}
				for _, err := range call {
					if err != nil {
						yield(baton.Event{}, err)
						return
					}
				}
			}
		}
		if n := acquiresIn(t, time.Minute, h, h, clock); n > 10 {
			t.Fatalf("asked %d times in a minute", n)
		}
	})
}

// alwaysFirst is a line that calls everybody at once.
type alwaysFirst struct{ *hooks }

func (alwaysFirst) Await(context.Context, string, baton.Candidate) error { return nil }

func TestLineThatIsAlwaysWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		mustCampaign(t, newElector(t, mem, "b", clock))
		h := &hooks{Store: mem}
		if n := acquiresIn(t, time.Minute, alwaysFirst{h}, h, clock); n > 60 {
			t.Fatalf("asked %d times in a minute", n)
		}
	})
}

// neverExpires is a store that is slow to record that a lease has run out.
type neverExpires struct{ baton.Store }

var runOut = baton.Lease{Group: "g", NodeID: "a", InstanceID: "before", Term: 1, TTL: testTTL}

func (neverExpires) Acquire(context.Context, string, baton.Candidate, time.Duration) (baton.Lease, error) {
	return baton.Lease{}, &baton.HeldError{Lease: runOut}
}

func (neverExpires) Get(context.Context, string) (baton.Lease, error) { return runOut, nil }

// A restarted node finds its own lease, run out and not yet recorded as ended:
// nobody renews it, so nobody else has its name.
func TestLeaseThatHasRunOutIsNoDuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		ctx, cancel := context.WithTimeout(t.Context(), 10*testTTL)
		defer cancel()
		_, err := newElector(t, neverExpires{newMem(t, clock)}, "a", clock).Campaign(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}

// Rule 8: a store that could not decide, and tells of what it ran into, has not answered.
func TestUnavailableIsNoAnswerWhateverItWraps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		h := &hooks{Store: newMem(t, clock)}
		h.onRenew = func(n int, call func() (baton.Lease, error)) (baton.Lease, error) {
			if n == 1 {
				return baton.Lease{}, &baton.UnavailableError{Op: "renew", Err: &baton.NotLeaderError{}}
			}
			return call()
		}
		l := mustCampaign(t, newElector(t, h, "a", clock))
		time.Sleep(2 * testTTL)
		if !l.Valid() {
			t.Fatalf("over because of %v", l.Cause())
		}
	})
}

// Asked to slow down is not told to go away.
func TestObserveOutlastsARateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		h := &hooks{Store: newMem(t, clock)}
		limited := true
		h.onWatch = func(call iter.Seq2[baton.Event, error]) iter.Seq2[baton.Event, error] {
			if !limited {
				return call
			}
			limited = false
			return func(yield func(baton.Event, error) bool) { yield(baton.Event{}, baton.ErrRateLimited) }
		}
		var seen []baton.EventType
		for ev, err := range newElector(t, h, "a", clock).Observe(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if seen = append(seen, ev.Type); len(seen) == 2 {
				break
			}
		}
		if seen[0] != baton.LeaderUnknown || seen[1] != baton.LeaderLost {
			t.Fatalf("saw %v", seen)
		}
	})
}

// wholeSeconds is a store that grants whole seconds.
type wholeSeconds struct{ *hooks }

func (s wholeSeconds) Guarantees() baton.Guarantees {
	g := s.hooks.Guarantees()
	g.MinTTL, g.TTLStep = time.Second, time.Second
	return g
}

func (s wholeSeconds) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	return s.hooks.Acquire(ctx, group, c, (ttl + time.Second - 1).Truncate(time.Second))
}

// The margin is a share of what is granted, which may be more than what was asked for.
func TestMarginOfARoundedTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		store := wholeSeconds{&hooks{Store: newMem(t, clock)}}
		if _, err := baton.NewElector(store, baton.Config{Group: "g", NodeID: "a", TTL: time.Second / 2}); !errors.Is(err, baton.ErrInvalidTTL) {
			t.Errorf("below the least it is not rounded up: %v", err)
		}
		l := mustCampaign(t, newElector(t, store, "a", clock, func(c *baton.Config) { c.TTL = 1100 * time.Millisecond }))
		for range 20 {
			if left := l.Remaining(); left <= 0 || left > 1800*time.Millisecond {
				t.Fatalf("%v of 2s are trusted: no tenth is left for clocks that differ", left)
			}
			time.Sleep(300 * time.Millisecond)
		}
	})
}

// A wait that is late on its way displaces the one that was sent after it:
// that is no reason to give up the campaign.
func TestDisplacedWaitIsTakenUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		displaced := &displacedLine{Line: mem}
		l := mustCampaign(t, newElector(t, withLine{hooks: &hooks{Store: mem}, Line: displaced, Ender: mem}, "a", clock))
		if displaced.calls < 2 || l.Term() != 1 {
			t.Fatalf("leads in term %d after %d waits", l.Term(), displaced.calls)
		}
	})
}

type displacedLine struct {
	baton.Line
	calls int
}

func (d *displacedLine) Await(ctx context.Context, group string, c baton.Candidate) error {
	if d.calls++; d.calls == 1 {
		return &baton.ConflictError{Reason: baton.ConflictBusy}
	}
	return d.Line.Await(ctx, group, c)
}
