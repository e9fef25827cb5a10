package baton_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"baton"
)

func TestRunReturnsTheWorksResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		e := newElector(t, mem, "a", clock)
		failed := errors.New("the work failed")
		for _, want := range []error{nil, failed} {
			err := baton.Run(t.Context(), e, func(ctx context.Context, l *baton.Leadership) error {
				if token, _ := baton.TokenFrom(ctx); token != l.Token() || !l.Valid() {
					t.Errorf("work under token %v, valid %v", token, l.Valid())
				}
				return want
			})
			if !errors.Is(err, want) {
				t.Fatalf("Run returned %v, want %v", err, want)
			}
			if lease := get(t, mem); lease.Held() {
				t.Fatalf("not released: %+v", lease)
			}
		}
	})
}

// Rule 4: stop, then release, then start.
func TestRunDrainsBeforeItReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		h := &hooks{Store: mem}
		returned := false
		h.onRelease = func(_ int, call func() error) error {
			if !returned {
				t.Error("released while the work runs")
			}
			return call()
		}
		e := newElector(t, h, "a", clock)
		ctx, cancel := context.WithCancel(t.Context())
		err := baton.Run(ctx, e, func(ctx context.Context, l *baton.Leadership) error {
			cancel()
			<-ctx.Done()
			// A drain longer than what was left of the lease: it is kept up.
			time.Sleep(testTTL)
			if !l.Valid() {
				t.Error("the lease was not kept up during the drain")
			}
			returned = true
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("Run returned %v", err)
		}
		if lease := get(t, mem); lease.Held() || lease.Term != 1 {
			t.Fatalf("afterwards: %+v", lease)
		}
	})
}

func TestRunJoinsTheDrainsOwnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		e := newElector(t, newMem(t, clock), "a", clock)
		ctx, cancel := context.WithCancel(t.Context())
		dirty := errors.New("checkpoint not written")
		err := baton.Run(ctx, e, func(ctx context.Context, _ *baton.Leadership) error {
			cancel()
			<-ctx.Done()
			return dirty
		})
		if !errors.Is(err, context.Canceled) || !errors.Is(err, dirty) {
			t.Fatalf("Run returned %v", err)
		}
	})
}

func TestRunCampaignsAgainAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		e := newElector(t, mem, "a", clock)
		var terms []baton.Term
		running := 0
		err := baton.Run(t.Context(), e, func(ctx context.Context, l *baton.Leadership) error {
			if running++; running > 1 {
				t.Error("the work runs twice at once")
			}
			defer func() { running-- }()
			terms = append(terms, l.Term())
			switch len(terms) {
			case 1: // ended by the operator, at once
				if err := mem.End(ctx, "g", l.Term(), baton.Ending{Reason: baton.SteppedDown, Immediate: true}); err != nil {
					t.Error(err)
				}
				<-ctx.Done()
				return ctx.Err()
			case 2: // given up from inside
				if err := l.Resign(ctx); err != nil {
					t.Error(err)
				}
				<-ctx.Done()
				if !l.Valid() {
					t.Error("released before the work returned")
				}
				return nil
			case 3: // lost to a ledger's word
				l.Lose(errors.New("stale"))
				return errors.New("stale")
			}
			return nil
		})
		if err != nil || len(terms) != 4 {
			t.Fatalf("Run returned %v after terms %v", err, terms)
		}
		for i := range terms[1:] {
			if terms[i+1] <= terms[i] {
				t.Fatalf("terms do not rise: %v", terms)
			}
		}
	})
}

func TestRunReportsOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		h := &hooks{Store: mem}
		h.onRenew = func(int, func() (baton.Lease, error)) (baton.Lease, error) {
			return baton.Lease{}, &baton.UnavailableError{Op: "renew"}
		}
		overruns := make(chan baton.Overrun, 2)
		e := newElector(t, h, "a", clock, func(c *baton.Config) {
			c.OnOverrun = func(o baton.Overrun) { overruns <- o }
		})
		start := time.Now()
		err := baton.Run(t.Context(), e, func(ctx context.Context, l *baton.Leadership) error {
			if l.Term() > 1 {
				return nil
			}
			<-ctx.Done()
			if d := time.Since(start); d != testTTL-testMargin-testGrace {
				t.Errorf("asked to stop after %v", d)
			}
			time.Sleep(time.Minute) // deaf
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(overruns) != 1 {
			t.Fatalf("%d overruns reported", len(overruns))
		}
		o := <-overruns
		if o.Token.Term != 1 || !errors.Is(o.Cause, baton.ErrLapsed) || o.By > testMargin {
			t.Fatalf("reported %v, late by %v", o, o.By)
		}
	})
}

// A panic that somebody above recovers must not leave a lease behind that is
// renewed for ever.
func TestRunReleasesWhenTheWorkPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		e := newElector(t, mem, "a", clock)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_ = baton.Run(t.Context(), e, func(context.Context, *baton.Leadership) error { panic("work") })
		}()
		if lease := get(t, mem); lease.Held() {
			t.Fatalf("still held: %+v", lease)
		}
	})
}

func TestRunEndsWhenTheElectorIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		e := newElector(t, mem, "a", clock)
		started := make(chan struct{})
		done := make(chan error)
		go func() {
			done <- baton.Run(t.Context(), e, func(ctx context.Context, _ *baton.Leadership) error {
				close(started)
				<-ctx.Done()
				return nil
			})
		}()
		<-started
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, baton.ErrClosed) {
			t.Fatalf("Run returned %v", err)
		}
		if lease := get(t, mem); lease.Held() {
			t.Fatalf("still held: %+v", lease)
		}
	})
}

// between is an elector on which something happens between the election and the work.
type between struct {
	baton.Elector
	happens func(*baton.Leadership)
}

func (b between) Campaign(ctx context.Context) (*baton.Leadership, error) {
	l, err := b.Elector.Campaign(ctx)
	if err == nil {
		b.happens(l)
	}
	return l, err
}

// Rule 4: under a leadership that has ended, which may be another's by now, no work begins.
func TestRunBeginsNoWorkUnderWhatHasEnded(t *testing.T) {
	for _, tc := range []struct {
		name    string
		happens func(*baton.LeaseElector, *baton.Leadership, *jumpClock, context.CancelFunc)
		want    error
	}{
		{"closed", func(e *baton.LeaseElector, _ *baton.Leadership, _ *jumpClock, _ context.CancelFunc) { _ = e.Close() }, baton.ErrClosed},
		{"called off", func(_ *baton.LeaseElector, _ *baton.Leadership, _ *jumpClock, cancel context.CancelFunc) { cancel() }, context.Canceled},
		{"resigned", func(_ *baton.LeaseElector, l *baton.Leadership, _ *jumpClock, _ context.CancelFunc) {
			_ = l.Resign(context.Background())
		}, nil},
		{"paused", func(_ *baton.LeaseElector, _ *baton.Leadership, clock *jumpClock, _ context.CancelFunc) {
			clock.jump(testTTL)
		}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			clock := &jumpClock{}
			mem := newMem(t, clock)
			e := newElector(t, mem, "a", clock)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			first := true
			elector := between{e, func(l *baton.Leadership) {
				if first {
					first = false
					tc.happens(e, l, clock, cancel)
				}
			}}
			err := baton.Run(ctx, elector, func(_ context.Context, l *baton.Leadership) error {
				if !l.Valid() || l.Term() == 1 {
					t.Errorf("%s: work was called under %v", tc.name, l.Token())
				}
				return nil
			})
			if !errors.Is(err, tc.want) {
				t.Errorf("%s: Run returned %v", tc.name, err)
			}
			if lease := get(t, mem); lease.Held() {
				t.Errorf("%s: not released: %+v", tc.name, lease)
			}
		})
	}
}

// A leadership lost without a cause is lost all the same: the work is not done.
func TestRunGoesOnAfterALossWithoutACause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		calls := 0
		err := baton.Run(t.Context(), newElector(t, newMem(t, clock), "a", clock), func(ctx context.Context, l *baton.Leadership) error {
			if calls++; calls == 1 {
				l.Lose(nil)
				return ctx.Err()
			}
			return nil
		})
		if err != nil || calls != 2 {
			t.Fatalf("Run returned %v after %d calls of the work", err, calls)
		}
	})
}

// Work that does not stop keeps its elector from being elected again, by a
// second Run too: it would run twice at once.
func TestOverrunningWorkKeepsItsElectorBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		e := newElector(t, newMem(t, clock), "a", clock, func(c *baton.Config) { c.OnOverrun = func(baton.Overrun) {} })
		hang, done := make(chan struct{}), make(chan error)
		go func() {
			done <- baton.Run(t.Context(), e, func(_ context.Context, l *baton.Leadership) error {
				if l.Term() == 1 {
					<-hang
				}
				return nil
			})
		}()
		synctest.Wait()
		clock.jump(2 * testTTL)
		time.Sleep(testTTL)
		var conflict *baton.ConflictError
		err := baton.Run(t.Context(), e, func(context.Context, *baton.Leadership) error {
			t.Error("the work runs twice at once")
			return nil
		})
		if !errors.As(err, &conflict) || conflict.Reason != baton.ConflictBusy {
			t.Errorf("got %v", err)
		}
		close(hang)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// ExitOnOverrun ends a real process.
func TestExitOnOverrun(t *testing.T) {
	if os.Getenv("BATON_TEST_OVERRUN") != "" {
		baton.ExitOnOverrun(baton.Overrun{Token: baton.Token{Group: "g", Term: 3, InstanceID: "i"}, By: time.Second, Cause: baton.ErrLapsed})
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestExitOnOverrun$")
	cmd.Env = append(os.Environ(), "BATON_TEST_OVERRUN=1")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != baton.ExitOverrun {
		t.Fatalf("the process ended with %v: %s", err, out)
	}
	if !strings.Contains(string(out), "g/3/i") {
		t.Fatalf("it did not say what overran: %s", out)
	}
}
