package baton_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"baton"
)

func newLeadership(clock baton.Clock, change ...func(*baton.LeadershipConfig)) (*baton.Leadership, *baton.Tenure) {
	cfg := baton.LeadershipConfig{
		Token:     baton.Token{Group: "g", Term: 7, InstanceID: "i"},
		Clock:     clock,
		Until:     clock.Now() + 10*time.Second,
		StopGrace: time.Second,
	}
	for _, f := range change {
		f(&cfg)
	}
	return baton.NewLeadership(cfg)
}

func TestLeadershipStopsThenIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLeadership(&jumpClock{})
		time.Sleep(9*time.Second - time.Nanosecond)
		synctest.Wait()
		if l.Context().Err() != nil || !l.Valid() || l.Cause() != nil {
			t.Fatal("stopped before its time")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !errors.Is(l.Cause(), baton.ErrLapsed) || !errors.Is(context.Cause(l.Context()), baton.ErrLapsed) {
			t.Fatalf("a StopGrace before the end the context ends: cause %v", l.Cause())
		}
		if !l.Valid() || l.Remaining() != time.Second {
			t.Fatalf("the lease is good until its end: valid %v, %v left", l.Valid(), l.Remaining())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if l.Valid() || l.Remaining() != 0 {
			t.Fatal("valid at its end")
		}
		<-l.Over()
	})
}

type testKey struct{}

func TestLeadershipCarriesItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, tenure := newLeadership(&jumpClock{})
		defer tenure.End(errors.New("test over"))
		child := context.WithValue(l.Context(), testKey{}, 1)
		if token, ok := baton.TokenFrom(child); !ok || token != l.Token() || token.Term != l.Term() {
			t.Fatalf("the context carries %v, %v", token, ok)
		}
		if from, ok := baton.LeadershipFrom(child); !ok || from != l {
			t.Fatal("the context does not carry its leadership")
		}
		if _, ok := baton.TokenFrom(context.Background()); ok {
			t.Fatal("a token out of nowhere")
		}
	})
}

func TestExtendNeverShortensAndNeverRevives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		l, tenure := newLeadership(clock)
		start := clock.Now()
		if !tenure.Extend(start+20*time.Second) || l.Remaining() != 20*time.Second {
			t.Fatalf("extended to %v", l.Remaining())
		}
		if !tenure.Extend(start+15*time.Second) || l.Remaining() != 20*time.Second {
			t.Fatalf("an older answer moved the deadline to %v", l.Remaining())
		}
		time.Sleep(19 * time.Second) // the stop, not the end
		if tenure.Extend(start + time.Hour) {
			t.Fatal("revived after its context ended")
		}
		time.Sleep(time.Second)
		if l.Valid() {
			t.Fatal("a late answer counted after all")
		}
	})
}

// A drain is not a lapse: the lease may be kept up while the work finishes,
// but the context does not come back.
func TestExtendDuringDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		l, tenure := newLeadership(clock)
		tenure.Stop(baton.ErrEnding)
		if l.Context().Err() == nil || !l.Valid() {
			t.Fatal("want the context ended and the lease good")
		}
		if !tenure.Extend(clock.Now() + time.Minute) {
			t.Fatal("a draining leadership cannot be renewed")
		}
		if l.Context().Err() == nil || l.Remaining() != time.Minute {
			t.Fatalf("context error %v, %v left", l.Context().Err(), l.Remaining())
		}
		tenure.End(errors.New("done"))
	})
}

func TestLoseEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, tenure := newLeadership(&jumpClock{})
		stale := errors.New("the ledger has seen term 8")
		l.Lose(stale)
		l.Lose(errors.New("again"))
		if l.Valid() || l.Context().Err() == nil || !errors.Is(l.Cause(), stale) {
			t.Fatalf("valid %v, cause %v", l.Valid(), l.Cause())
		}
		if tenure.Extend(time.Hour * 1e6) {
			t.Fatal("revived")
		}
		<-l.Over()
	})
}

// Rule 3: a process that wakes from a pause finds the truth before any timer
// has told it.
func TestPauseIsSeenBeforeAnyTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		l, _ := newLeadership(clock)
		ctx := l.Context()
		clock.jump(time.Minute)
		select {
		case <-ctx.Done():
			t.Fatal("a timer fired: this test shows nothing")
		default:
		}
		if ctx.Err() == nil {
			t.Error("the context looks alive after a pause longer than the lease")
		}
		if l.Valid() || l.Remaining() != 0 {
			t.Error("the leadership looks valid after a pause longer than the lease")
		}
	})
}

// Whoever only waits for Done hears of a pause within a tick of waking.
func TestPauseClosesDoneWithinATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		l, _ := newLeadership(clock, func(c *baton.LeadershipConfig) { c.Tick = 100 * time.Millisecond })
		child, cancel := context.WithCancel(l.Context())
		defer cancel()
		time.Sleep(time.Second)
		clock.jump(time.Minute)
		woke := time.Now()
		<-child.Done()
		if d := time.Since(woke); d > 100*time.Millisecond {
			t.Fatalf("Done was closed %v after waking", d)
		}
	})
}

func TestResignOutsideRunReleasesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		releases := 0
		l, _ := newLeadership(&jumpClock{}, func(c *baton.LeadershipConfig) {
			c.Release = func(context.Context) error { releases++; return nil }
		})
		if err := l.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l.Valid() || l.Context().Err() == nil {
			t.Fatal("resigned and still leading")
		}
		if err := l.Resign(t.Context()); !errors.Is(err, baton.ErrNotLeader) {
			t.Fatalf("the second time: %v", err)
		}
		if releases != 1 {
			t.Fatalf("released %d times", releases)
		}
	})
}

// From the moment the release may leave, somebody else may be let in.
func TestNothingIsTrustedOnceReleaseLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *baton.Leadership
		l, _ = newLeadership(&jumpClock{}, func(c *baton.LeadershipConfig) {
			c.Release = func(context.Context) error {
				if l.Valid() {
					t.Error("valid while the release is on its way")
				}
				return errors.New("lost")
			}
		})
		if err := l.Resign(t.Context()); err == nil {
			t.Fatal("a release that failed was reported as done")
		}
	})
}

func TestResignToNeedsAStoreThatTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, tenure := newLeadership(&jumpClock{})
		defer tenure.End(errors.New("test over"))
		var conflict *baton.ConflictError
		if err := l.ResignTo(t.Context(), "b"); !errors.As(err, &conflict) || conflict.Reason != baton.ConflictUnsupported {
			t.Fatalf("got %v", err)
		}
		if err := l.ResignTo(t.Context(), "no spaces"); !errors.Is(err, baton.ErrInvalidArgument) {
			t.Fatalf("got %v", err)
		}
		if !l.Valid() || l.Context().Err() != nil {
			t.Fatal("a transfer that was refused ended the leadership")
		}
	})
}
