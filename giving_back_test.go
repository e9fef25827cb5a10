package baton_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"baton"
)

// A lease that is not given back costs the others a TTL.

// Whoever closes the elector may close the store, or end the process, right after.
func TestCloseWaitsForTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		h := &hooks{Store: mem, onRelease: slowly}
		e := newElector(t, h, "a", clock)
		started, done := make(chan struct{}), make(chan error)
		go func() {
			done <- baton.Run(t.Context(), e, func(ctx context.Context, _ *baton.Leadership) error {
				close(started)
				<-ctx.Done()
				return nil
			})
		}()
		<-started
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if lease := get(t, mem); lease.Held() {
			t.Errorf("closed, and still held: %+v", lease)
		}
		<-done
	})
}

func slowly(_ int, call func() error) error {
	time.Sleep(100 * time.Millisecond)
	return call()
}

// Two resign at once: neither is told that it is over before it is.
func TestResignWaitsForTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		h := &hooks{Store: mem, onRelease: slowly}
		l := mustCampaign(t, newElector(t, h, "a", clock))
		first := make(chan error)
		go func() { first <- l.Resign(t.Context()) }()
		synctest.Wait()
		impatient, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := l.Resign(impatient); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("while the release is under way: %v", err)
		}
		if err := l.Resign(t.Context()); !errors.Is(err, baton.ErrNotLeader) {
			t.Errorf("the second one: %v", err)
		}
		if lease := get(t, mem); lease.Held() {
			t.Errorf("told that it is over, and still held: %+v", lease)
		}
		if err := <-first; err != nil {
			t.Errorf("the first one: %v", err)
		}
		if _, _, releases := h.counts(); releases != 1 {
			t.Errorf("%d releases", releases)
		}
	})
}

// Rule 8: a release without an answer is not done, and can be asked for again.
func TestResignAgainAfterAnUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		l := mustCampaign(t, newElector(t, mem, "a", clock))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Resign(ended); err == nil || baton.IsAnswer(err) {
			t.Fatalf("a release that cannot have been sent: %v", err)
		}
		if l.Valid() {
			t.Fatal("trusted after Resign")
		}
		if err := l.Resign(t.Context()); err != nil || get(t, mem).Held() {
			t.Fatalf("asked again: %v, %+v", err, get(t, mem))
		}
	})
}

// Whoever waits for the answer gets it, also from a store that takes longer than half a TTL to give it.
func TestResignInsists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		h := &hooks{Store: mem}
		l := mustCampaign(t, newElector(t, h, "a", clock))
		var silentFor time.Duration
		start := time.Now()
		h.onRelease = func(_ int, call func() error) error {
			if time.Since(start) < silentFor {
				return errNoReply
			}
			return call()
		}
		silentFor = time.Hour
		err := l.Resign(t.Context())
		if err == nil || baton.IsAnswer(err) || !strings.Contains(err.Error(), "no answer within 10s") {
			t.Errorf("of a store that never answers: %v", err)
		}
		silentFor = time.Since(start) + testTTL*3/4
		if err := l.Resign(t.Context()); err != nil {
			t.Errorf("of a store that answers in the end: %v", err)
		}
	})
}

// The context of the leadership ends as it is resigned; the release does not.
func TestResignUnderItsOwnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		l := mustCampaign(t, newElector(t, mem, "a", clock))
		if err := l.Resign(l.Context()); err != nil || get(t, mem).Held() {
			t.Fatalf("%v, %+v", err, get(t, mem))
		}
	})
}

// Rule 8: a refusal of one request says nothing about an earlier one, whose
// answer was lost: it may have been granted.
func TestRefusedCampaignGivesBackWhatItWon(t *testing.T) {
	for _, refusal := range []error{baton.ErrUnauthenticated, baton.ErrNotAllowed, baton.ErrInvalidTTL} {
		synctest.Test(t, func(t *testing.T) {
			clock := &jumpClock{}
			mem := newMem(t, clock)
			h := &hooks{Store: mem}
			h.onAcquire = func(n int, call func() (baton.Lease, error)) (baton.Lease, error) {
				if n > 1 {
					return baton.Lease{}, refusal
				}
				_, _ = call()
				return baton.Lease{}, errNoReply
			}
			if _, err := newElector(t, h, "a", clock).Campaign(t.Context()); !errors.Is(err, refusal) {
				t.Errorf("got %v, want %v", err, refusal)
			}
			synctest.Wait()
			if lease := get(t, mem); lease.Held() || lease.Term != 1 {
				t.Errorf("%v: left behind: %+v", refusal, lease)
			}
		})
	}
}

// readsBadly is a store whose first reads get no answer.
type readsBadly struct {
	*hooks
	left atomic.Int32
}

func (s *readsBadly) Get(ctx context.Context, group string) (baton.Lease, error) {
	if s.left.Add(-1) >= 0 {
		return baton.Lease{}, errNoReply
	}
	return s.hooks.Get(ctx, group)
}

// Called off while the store is hard to reach: it is asked more than once.
func TestCalledOffCampaignInsists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		store := &readsBadly{hooks: &hooks{Store: mem}}
		store.left.Store(3)
		ctx, cancel := context.WithCancel(t.Context())
		store.onAcquire = func(_ int, call func() (baton.Lease, error)) (baton.Lease, error) {
			_, _ = call()
			cancel()
			return baton.Lease{}, errNoReply
		}
		e := newElector(t, store, "a", clock)
		if _, err := e.Campaign(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if lease := get(t, mem); lease.Held() || lease.Term != 1 {
			t.Fatalf("left behind: %+v", lease)
		}
	})
}

// overtaken is a store whose requests take a moment to arrive, and arrive whether their callers wait or not.
type overtaken struct {
	baton.Store
	arrives time.Duration
	sent    chan struct{}
	inAir   sync.WaitGroup
}

func (s *overtaken) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	granted := make(chan baton.Lease, 1)
	s.inAir.Go(func() {
		time.Sleep(s.arrives)
		if lease, err := s.Store.Acquire(context.WithoutCancel(ctx), group, c, ttl); err == nil {
			granted <- lease
		}
	})
	close(s.sent)
	select {
	case lease := <-granted:
		return lease, nil
	case <-ctx.Done():
		return baton.Lease{}, ctx.Err()
	}
}

// Called off while its request is on the way: looking whether it won must not overtake the request.
func TestCalledOffCampaignWaitsForItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		store := &overtaken{Store: mem, arrives: 100 * time.Millisecond, sent: make(chan struct{})}
		e := newElector(t, store, "a", clock)
		ctx, cancel := context.WithCancel(t.Context())
		called := clock.Now()
		go func() {
			<-store.sent
			cancel()
		}()
		if _, err := e.Campaign(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		if waited := clock.Now() - called; waited > 0 {
			t.Errorf("the caller waited %v", waited)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		store.inAir.Wait()
		if lease := get(t, mem); lease.Held() || lease.Term != 1 {
			t.Fatalf("left behind: %+v", lease)
		}
	})
}
