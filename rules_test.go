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

// Each rule of docs/safety.md has a test here, or beside the code it is about,
// that attacks it. Rule 1 is attacked by the simulated fleet, whose nodes have
// clocks of their own, rule 6 by the ledgers' own suite.

var errNoReply = &baton.UnavailableError{Op: "test", Err: errors.New("no reply")}

// Rule 2: trust counts from before the send, however long the answer took.
func TestTrustCountsFromTheSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		h := &hooks{Store: newMem(t, clock)}
		h.onAcquire = func(_ int, call func() (baton.Lease, error)) (baton.Lease, error) {
			lease, err := call()
			time.Sleep(2 * time.Second) // the answer dawdles
			return lease, err
		}
		h.onRenew = func(_ int, call func() (baton.Lease, error)) (baton.Lease, error) {
			time.Sleep(time.Second) // the request does
			lease, err := call()
			time.Sleep(500 * time.Millisecond)
			return lease, err
		}
		e := newElector(t, h, "a", clock, func(c *baton.Config) { c.Jitter = func() float64 { return 0 } })
		l := mustCampaign(t, e)
		if left := l.Remaining(); left != testTTL-testMargin-2*time.Second {
			t.Fatalf("after a grant that took 2s, %v are left", left)
		}
		// The first renewal leaves RenewEvery after the campaign's request did.
		time.Sleep(testTTL/3 - 2*time.Second + 1500*time.Millisecond)
		synctest.Wait()
		if left := l.Remaining(); left != testTTL-testMargin-1500*time.Millisecond {
			t.Fatalf("after a renewal that took 1.5s, %v are left", left)
		}
	})
}

// Rules 2 and 5: renewals whose answers come out of order.
func TestRenewalAnswersOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		h := &hooks{Store: newMem(t, clock)}
		late := make(chan struct{})
		h.onRenew = func(n int, call func() (baton.Lease, error)) (baton.Lease, error) {
			lease, err := call()
			if n == 1 {
				<-late
			}
			return lease, err
		}
		e := newElector(t, h, "a", clock)
		l := mustCampaign(t, e)
		time.Sleep(testTTL / 2) // the first hangs, the second has come through
		synctest.Wait()
		if _, renews, _ := h.counts(); renews < 2 {
			t.Fatal("a renewal that hangs keeps the next one from being sent")
		}
		before := l.Remaining()
		close(late)
		synctest.Wait()
		if after := l.Remaining(); after != before {
			t.Fatalf("the older answer moved what is left from %v to %v", before, after)
		}
	})
}

// Rule 5: an answer that comes after the local end revives nothing, and the
// next leadership has a term and an instance of its own.
func TestLateAnswerRevivesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		h := &hooks{Store: mem}
		h.onRenew = func(n int, call func() (baton.Lease, error)) (baton.Lease, error) {
			lease, err := call() // the store has extended it
			time.Sleep(testTTL)  // and the holder does not hear of it in time
			return lease, err
		}
		e := newElector(t, h, "a", clock)
		first := mustCampaign(t, e)
		<-first.Context().Done()
		if !errors.Is(first.Cause(), baton.ErrLapsed) {
			t.Fatalf("ended because %v", first.Cause())
		}
		<-first.Over()
		if lease := get(t, mem); lease.Term != first.Term() || !lease.Held() {
			t.Fatalf("the store should still hold it: %+v", lease)
		}
		h.onRenew = nil
		synctest.Wait()
		second := mustCampaign(t, e)
		if first.Valid() || first.Context().Err() == nil {
			t.Fatal("revived")
		}
		if second.Term() <= first.Term() || second.Token().InstanceID == first.Token().InstanceID {
			t.Fatalf("leads again as %v after %v", second.Token(), first.Token())
		}
	})
}

// Rule 5, at the store: not even by asking again as the same instance.
func TestEndedInstanceIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		e := newElector(t, mem, "a", clock)
		l := mustCampaign(t, e)
		if err := l.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		var conflict *baton.ConflictError
		_, err := mem.Acquire(t.Context(), "g", baton.Candidate{NodeID: "a", InstanceID: l.Token().InstanceID}, testTTL)
		if !errors.As(err, &conflict) || conflict.Reason != baton.ConflictInstanceEnded {
			t.Fatalf("got %v", err)
		}
	})
}

// An elector whose campaign won, lost its answers and was ended meanwhile is
// refused as that instance, and goes on as another.
func TestCampaignOutlivesItsInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		h := &hooks{Store: mem}
		h.onAcquire = func(n int, call func() (baton.Lease, error)) (baton.Lease, error) {
			lease, err := call()
			if n == 1 {
				if err := mem.Release(t.Context(), lease.ID()); err != nil {
					t.Error(err)
				}
				return baton.Lease{}, errNoReply
			}
			return lease, err
		}
		l := mustCampaign(t, newElector(t, h, "a", clock))
		if l.Term() != 2 {
			t.Fatalf("leads in term %d", l.Term())
		}
	})
}

// Rules 7 and 8: the reply to a winning campaign is lost; asked again, the
// store gives the leadership that was won, and no other.
func TestLostReplyToAWinningCampaign(t *testing.T) {
	for _, line := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			clock := &jumpClock{}
			mem := newMem(t, clock)
			h := &hooks{Store: mem}
			h.onAcquire = func(n int, call func() (baton.Lease, error)) (baton.Lease, error) {
				lease, err := call()
				if n <= 3 {
					return baton.Lease{}, errNoReply
				}
				return lease, err
			}
			var store baton.Store = h
			if line {
				store = lined(h, mem)
			}
			start := clock.Now()
			l := mustCampaign(t, newElector(t, store, "a", clock))
			if l.Term() != 1 {
				t.Fatalf("line %v: leads in term %d: it won term 1", line, l.Term())
			}
			if waited := clock.Now() - start; waited >= testTTL {
				t.Fatalf("line %v: waited %v for its own lease", line, waited)
			}
		})
	}
}

// A campaign that is called off while it may have won leaves nothing behind.
func TestCalledOffCampaignGivesBackWhatItWon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		h := &hooks{Store: mem}
		ctx, cancel := context.WithCancel(t.Context())
		h.onAcquire = func(_ int, call func() (baton.Lease, error)) (baton.Lease, error) {
			_, _ = call()
			cancel()
			return baton.Lease{}, errNoReply
		}
		e := newElector(t, h, "a", clock)
		if _, err := e.Campaign(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		synctest.Wait()
		if lease := get(t, mem); lease.Held() || lease.Term != 1 {
			t.Fatalf("left behind: %+v", lease)
		}
	})
}

// Rule 8: no answer is not "no". A store that is silent for less than the
// lease lasts costs nothing; a moment longer, and the leader stops in time.
func TestSilenceIsNotALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		h := &hooks{Store: mem}
		var silent atomic.Bool
		h.onRenew = func(_ int, call func() (baton.Lease, error)) (baton.Lease, error) {
			if silent.Load() {
				return baton.Lease{}, errNoReply
			}
			return call()
		}
		advice, err := baton.Advise(testTTL, 0)
		if err != nil {
			t.Fatal(err)
		}
		l := mustCampaign(t, newElector(t, h, "a", clock))
		for i := range 20 {
			silent.Store(true)
			time.Sleep(advice.SurvivesOutage)
			if !l.Valid() || l.Context().Err() != nil {
				t.Fatalf("outage %d ended the leadership: %v", i, l.Cause())
			}
			silent.Store(false)
			time.Sleep(testTTL/2 + time.Duration(i)*100*time.Millisecond)
		}
		silent.Store(true)
		<-l.Context().Done()
		lease := get(t, mem)
		if !l.Valid() || lease.Remaining < testMargin+testGrace {
			t.Fatalf("stopped with %v left at the store: too late", lease.Remaining)
		}
	})
}

// Rule 10: once the lease has run out, renewing is refused even if nobody has
// taken it, and the elector campaigns for a new term.
func TestExpiredLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		e := newElector(t, mem, "a", clock)
		l := mustCampaign(t, e)
		id := baton.LeaseID{Group: "g", NodeID: "a", InstanceID: l.Token().InstanceID, Term: l.Term()}
		clock.jump(testTTL + time.Second) // store and holder alike
		if _, err := mem.Renew(t.Context(), id, testTTL); !errors.Is(err, baton.ErrNotLeader) {
			t.Fatalf("renewing an expired lease: %v", err)
		}
		<-l.Over()
		synctest.Wait()
		if again := mustCampaign(t, e); again.Term() <= l.Term() {
			t.Fatalf("term %d after %d", again.Term(), l.Term())
		}
	})
}

// Rule 3, through the elector: waking code finds its leadership over before
// any timer fired, and what it does not get to do is renew.
func TestPauseLongerThanTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, &jumpClock{}) // the store did not sleep
		h := &hooks{Store: mem}
		l := mustCampaign(t, newElector(t, h, "a", clock))
		_, before, _ := h.counts()
		clock.jump(testTTL)
		if l.Valid() || l.Context().Err() == nil {
			t.Fatal("the leadership looks alive")
		}
		<-l.Over()
		time.Sleep(testTTL)
		if _, after, _ := h.counts(); after != before {
			t.Fatalf("%d renewals after it was over", after-before)
		}
	})
}

// Rule 7: a release that was delayed beyond the takeover touches nothing.
func TestDelayedReleaseTouchesNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		h := &hooks{Store: mem}
		h.onRelease = func(n int, call func() error) error {
			if n == 1 {
				go func() {
					time.Sleep(2 * testTTL)
					_ = call()
				}()
				return errNoReply
			}
			return errNoReply
		}
		a := newElector(t, h, "a", clock)
		first := mustCampaign(t, a)
		if err := first.Resign(t.Context()); err == nil {
			t.Fatal("an unknown outcome was reported as done")
		}
		second := mustCampaign(t, newElector(t, mem, "b", clock))
		time.Sleep(3 * testTTL)
		if !second.Valid() || get(t, mem).Term != second.Term() {
			t.Fatal("a release of the past ended the present")
		}
	})
}

// Resigning while a renewal is on its way: the renewal's answer changes
// nothing, in whichever order the two arrive.
func TestResignDuringRenew(t *testing.T) {
	for _, renewFirst := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			clock := &jumpClock{}
			mem := newMem(t, clock)
			h := &hooks{Store: mem}
			arrived, released := make(chan struct{}), make(chan struct{})
			h.onRenew = func(n int, call func() (baton.Lease, error)) (baton.Lease, error) {
				if n > 1 {
					return call()
				}
				if renewFirst {
					lease, err := call()
					close(arrived)
					<-released
					return lease, err
				}
				close(arrived)
				<-released
				return call()
			}
			l := mustCampaign(t, newElector(t, h, "a", clock))
			<-arrived
			if err := l.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			close(released)
			synctest.Wait()
			if l.Valid() || get(t, mem).Held() {
				t.Fatalf("renew first %v: valid %v, store %+v", renewFirst, l.Valid(), get(t, mem))
			}
		})
	}
}

// A gentle ending reaches the holder with its next renewal; it drains while
// the lease is good, releases, and the reason is remembered.
func TestGentleEndingDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		a, b := newElector(t, mem, "a", clock), newElector(t, mem, "b", clock)
		stopped := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		terms := make(chan baton.Term, 2)
		go func() {
			done <- baton.Run(ctx, a, func(ctx context.Context, l *baton.Leadership) error {
				terms <- l.Term()
				<-ctx.Done()
				if l.Term() == 1 {
					time.Sleep(time.Second)
					if !l.Valid() || !errors.Is(l.Cause(), baton.ErrEnding) {
						t.Errorf("while draining: valid %v, cause %v", l.Valid(), l.Cause())
					}
					close(stopped)
				}
				return nil
			})
		}()
		<-terms
		elected := make(chan *baton.Leadership)
		go func() { elected <- mustCampaign(t, b) }()
		synctest.Wait()
		if err := mem.End(t.Context(), "g", 1, baton.Ending{Reason: baton.Transferred, Successor: "b"}); err != nil {
			t.Fatal(err)
		}
		l := <-elected
		select {
		case <-stopped:
		default:
			t.Fatal("b leads while a drains")
		}
		if l.Term() != 2 {
			t.Fatalf("b leads in term %d", l.Term())
		}
		past, err := mem.History(t.Context(), "g")
		if err != nil || len(past) == 0 || past[0].Reason != baton.Transferred {
			t.Fatalf("history %+v, %v", past, err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

// ResignTo: the named node goes first, although another was in line before it.
func TestResignTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		l := mustCampaign(t, newElector(t, mem, "a", clock))
		if err := l.ResignTo(t.Context(), "c"); !errors.Is(err, baton.ErrConflict) {
			t.Fatalf("transfer to a node that is not in line: %v", err)
		}
		if !l.Valid() || l.Context().Err() != nil {
			t.Fatal("a refused transfer ended the leadership")
		}
		elected := make(chan string)
		for _, node := range []string{"b", "c"} {
			e := newElector(t, mem, node, clock)
			go func() {
				if won, err := e.Campaign(t.Context()); err == nil {
					elected <- node
					_ = won.Resign(t.Context())
				}
			}()
			synctest.Wait()
		}
		if err := l.ResignTo(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		if first := <-elected; first != "c" {
			t.Fatalf("%s leads, not the one that was named", first)
		}
		<-elected
	})
}

// An operator's ending meets a transfer that is under way: the leadership
// ends once, and the next one has a term of its own.
func TestEndingDuringTransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		a, b := newElector(t, mem, "a", clock), newElector(t, mem, "b", clock)
		l := mustCampaign(t, a)
		elected := make(chan *baton.Leadership)
		go func() { elected <- mustCampaign(t, b) }()
		synctest.Wait()
		if err := mem.End(t.Context(), "g", 1, baton.Ending{Reason: baton.Transferred, Successor: "b"}); err != nil {
			t.Fatal(err)
		}
		if err := mem.End(t.Context(), "g", 1, baton.Ending{Reason: baton.SteppedDown, Immediate: true, Note: "now"}); err != nil {
			t.Fatal(err)
		}
		next := <-elected
		<-l.Over()
		if err := l.Resign(t.Context()); !errors.Is(err, baton.ErrNotLeader) {
			t.Fatalf("resigning what was ended: %v", err)
		}
		if !next.Valid() || next.Term() != 2 || get(t, mem).Term != 2 {
			t.Fatalf("b: valid %v, term %d", next.Valid(), next.Term())
		}
	})
}

// A lease that was asked to end before its holder heard that it had won is
// given back, and not led on.
func TestWonButEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := &jumpClock{}
		mem := newMem(t, clock)
		h := &hooks{Store: mem}
		h.onAcquire = func(n int, call func() (baton.Lease, error)) (baton.Lease, error) {
			lease, err := call()
			if n == 1 && err == nil {
				if err := mem.End(t.Context(), "g", lease.Term, baton.Ending{Reason: baton.SteppedDown}); err != nil {
					t.Error(err)
				}
				return baton.Lease{}, errNoReply
			}
			return lease, err
		}
		l := mustCampaign(t, newElector(t, h, "a", clock))
		if l.Term() != 2 {
			t.Fatalf("leads in term %d, which was to end", l.Term())
		}
	})
}
