package baton_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"baton"
)

func TestUnreadyCandidateDoesNotCampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		var ready atomic.Bool
		e := newElector(t, mem, "a", clock, func(c *baton.Config) {
			c.Ready = func(context.Context) error {
				if !ready.Load() {
					return errors.New("cache is cold")
				}
				return nil
			}
		})
		terms := make(chan *baton.Leadership, 2)
		done := make(chan error)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			done <- baton.Run(ctx, e, func(ctx context.Context, l *baton.Leadership) error {
				terms <- l
				<-ctx.Done()
				return nil
			})
		}()
		time.Sleep(time.Minute)
		if len(terms) != 0 || get(t, mem).Term != 0 {
			t.Fatal("an unready candidate campaigned")
		}
		ready.Store(true)
		l := <-terms
		ready.Store(false)
		<-l.Context().Done()
		if !errors.Is(l.Cause(), baton.ErrUnready) {
			t.Fatalf("an unready leader stopped because of %v", l.Cause())
		}
		time.Sleep(time.Minute)
		if len(terms) != 0 || get(t, mem).Held() {
			t.Fatal("an unready leader leads")
		}
		cancel()
		<-done
	})
}

// A candidate that becomes unready while it waits does not take the turn away
// from one that is ready.
func TestUnreadyCandidateLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		l := mustCampaign(t, newElector(t, mem, "a", clock))
		var unready atomic.Bool
		b := newElector(t, mem, "b", clock, func(c *baton.Config) {
			c.Ready = func(context.Context) error {
				if unready.Load() {
					return errors.New("no disk")
				}
				return nil
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() { _, err := b.Campaign(ctx); gone <- err }()
		synctest.Wait()
		unready.Store(true)
		time.Sleep(20 * time.Second)
		if err := l.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := clock.Now()
		mustCampaign(t, newElector(t, mem, "c", clock))
		if took := clock.Now() - start; took > 500*time.Millisecond {
			t.Fatalf("the ready one waited %v for the unready one", took)
		}
		cancel()
		<-gone
	})
}

// A check that hangs, and does not even heed its context, is not an answer
// that the node is ready.
func TestHangingReadinessCheckIsUnready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		var asked, asking atomic.Int32
		hang := make(chan struct{})
		e := newElector(t, newMem(t, clock), "a", clock, func(c *baton.Config) {
			c.Ready = func(context.Context) error {
				if asking.Add(1) > 1 {
					t.Error("asked again before it answered")
				}
				defer asking.Add(-1)
				if asked.Add(1) == 2 {
					<-hang
				}
				return nil
			}
		})
		l := mustCampaign(t, e)
		<-l.Context().Done()
		if !errors.Is(l.Cause(), baton.ErrUnready) {
			t.Fatalf("stopped because of %v", l.Cause())
		}
		if err := l.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}

		// Nor does it keep a campaign from being called off, or from being won once it is over.
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := e.Campaign(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		close(hang)
		synctest.Wait()
		mustCampaign(t, e)
	})
}

// A check that was called off says nothing about later.
func TestReadinessIsNotAskedOfThePast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		holder := mustCampaign(t, newElector(t, mem, "b", clock))
		var asked atomic.Int32
		e := newElector(t, mem, "a", clock, func(c *baton.Config) {
			c.ReadyEvery = time.Minute
			c.Ready = func(ctx context.Context) error {
				if asked.Add(1) != 2 {
					return nil
				}
				<-ctx.Done() // its turn comes meanwhile
				return ctx.Err()
			}
		})
		elected := make(chan *baton.Leadership)
		go func() { elected <- mustCampaign(t, e) }()
		time.Sleep(time.Minute + time.Second)
		if err := holder.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := <-elected
		time.Sleep(3 * time.Minute)
		if !l.Valid() || asked.Load() < 4 {
			t.Fatalf("asked %d times, and over because of %v", asked.Load(), l.Cause())
		}
	})
}

// stopCounter counts the timers that are stopped.
type stopCounter struct {
	jumpClock
	stopped atomic.Int64
}

func (c *stopCounter) AfterFunc(d time.Duration, f func()) func() bool {
	stop := c.jumpClock.AfterFunc(d, f)
	return func() bool {
		c.stopped.Add(1)
		return stop()
	}
}

// A candidate may wait for weeks, and everything it does meanwhile comes to an end meanwhile.
func TestWaitingPilesUpNothing(t *testing.T) {
	for _, line := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			clock := &stopCounter{}
			mem := newMem(t, &jumpClock{})
			mustCampaign(t, newElector(t, mem, "b", &jumpClock{}))
			var store baton.Store = mem
			if !line {
				store = &hooks{Store: mem}
			}
			e := newElector(t, store, "a", clock, func(c *baton.Config) {
				c.Ready = func(context.Context) error { return nil }
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = e.Campaign(ctx)
			}()
			time.Sleep(200 * testTTL)
			synctest.Wait()
			before := clock.stopped.Load()
			cancel()
			<-done
			synctest.Wait()
			if n := clock.stopped.Load() - before; n > 20 {
				t.Errorf("line %v: %d timers were left to the end", line, n)
			}
		})
	}
}
