package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"baton"
)

var lineCases = []Case{
	rule("Line/VacantGroupAtOnce", lineVacant),
	rule("Line/FirstComeFirstServed", lineFIFO),
	rule("Line/OneTurnPerVacancy", lineOneTurn),
	rule("Line/PlaceSurvivesPolls", linePolls),
	rule("Line/DeadFirstIsPassedOver", lineDeadFirst),
	rule("Line/ExpiryCallsTheNext", lineExpiry),
	rule("Line/OutOfTurn", lineOutOfTurn),
	rule("Line/SuccessorGoesFirst", lineSuccessor),
}

const (
	// turnKept is for how long a store keeps a turn, about; a check whose candidate dawdled for half of it says nothing.
	turnKept = time.Second
	// placeKept is for how long a store keeps a place at the least. The request for it has more time than this to arrive.
	placeKept = 4 * time.Second
)

// poll takes or keeps a place in line and goes away again. Where a mere look at the group takes
// long, it stays longer: one that leaves before it has its place has polled in vain, and nobody would notice.
// It returns when it asked for the place and when it left it.
func (e *env) poll(line baton.Line, c baton.Candidate) (came, left time.Time) {
	e.Helper()
	asked := e.clock.Now()
	_, _ = e.store.Get(e.Context(), e.group) // for the time it takes
	ctx, cancel := e.within(300*time.Millisecond + 10*(e.clock.Now()-asked))
	defer cancel()
	came = time.Now()
	left, _ = ctx.Deadline()
	err := line.Await(ctx, e.group, c)
	if errors.Is(err, baton.ErrUnavailable) && ctx.Err() == nil && e.Context().Err() == nil {
		e.Logf("await of %s: %v; once more", c.NodeID, err)
		e.pause(turnKept / 20)
		return e.poll(line, c)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		e.Fatalf("await of %s while the group is held: got %v, want the context's error", c.NodeID, err)
	}
	return came, left
}

// turns is a set of candidates that wait.
type turns struct {
	e      *env
	called chan baton.Candidate
	failed chan error
	away   time.Duration // the longest that one was, between its poll and its wait

	ctx     context.Context
	cancel  context.CancelFunc
	waiting sync.WaitGroup
}

// turns is a set of at most so many. They leave at the end of the check, if not before.
func (e *env) turns(most int) *turns {
	t := &turns{e: e, called: make(chan baton.Candidate, most), failed: make(chan error, most)}
	t.ctx, t.cancel = context.WithCancel(e.Context())
	e.Cleanup(t.leave)
	return t
}

// await lets candidates wait who took their places in this order: each polls first.
func (e *env) await(line baton.Line, cs ...baton.Candidate) *turns {
	e.Helper()
	t := e.turns(len(cs))
	for _, c := range cs {
		_, left := e.poll(line, c)
		t.away = max(t.away, time.Since(left))
		t.wait(line, c)
	}
	e.pause(turnKept / 10) // so that most likely all of them wait when the group opens
	return t
}

// wait lets a candidate wait in the background. Where a wait breaks off, because the servers of the
// store elect another leader, it goes on, as an elector's does.
func (t *turns) wait(line baton.Line, c baton.Candidate) {
	group := t.e.group
	t.waiting.Go(func() {
		for {
			err := line.Await(t.ctx, group, c)
			switch {
			case err == nil:
				t.called <- c
				return
			case t.ctx.Err() != nil:
				return
			case !errors.Is(err, baton.ErrUnavailable):
				t.failed <- err
				return
			}
			t.e.Logf("await of %s: %v; once more", c.NodeID, err)
			t.e.pause(turnKept / 20)
		}
	})
}

// leave lets nobody wait any more.
func (t *turns) leave() {
	t.cancel()
	t.waiting.Wait()
}

// next waits until somebody is called.
func (t *turns) next(limit time.Duration) baton.Candidate {
	t.e.Helper()
	ctx, cancel := t.e.within(limit)
	defer cancel()
	select {
	case c := <-t.called:
		return c
	case err := <-t.failed:
		t.e.Fatalf("await: %v", err)
	case <-ctx.Done():
		t.e.Fatalf("nobody was called within %v of the vacancy", limit)
	}
	return baton.Candidate{}
}

// inTurn acquires for one that was called, and reports whether it did. A turn that has passed, since the
// group became vacant so long ago or for no reason that is seen here, is for another try.
func (t *turns) inTurn(c baton.Candidate, vacant time.Time) (baton.Lease, bool) {
	t.e.Helper()
	l, err := t.e.store.Acquire(t.e.Context(), t.e.group, c, t.e.long)
	switch {
	case time.Since(vacant) > turnKept/2:
		return l, false
	case errors.Is(err, baton.ErrHeld):
		return l, t.e.unlikely("acquire by %s in turn: %v", c.NodeID, err)
	case err != nil:
		t.e.Fatalf("acquire by %s in turn: %v", c.NodeID, err)
	}
	t.e.checkHolder("the lease of the one whose turn it was", l, c)
	return l, true
}

func lineVacant(e *env) {
	line, ok := e.line()
	if !ok {
		return
	}
	a := candidate("node-a")
	if err := e.returns("await at a vacant group", func() error { return line.Await(e.Context(), e.group, a) }); err != nil {
		e.Fatalf("await at a vacant group: %v", err)
	}
	e.grant(e.store, a, e.long)
}

func lineFIFO(e *env) {
	line, ok := e.line()
	if !ok {
		return
	}
	e.undisturbed(func() bool {
		held := e.grant(e.store, candidate("node-0"), e.long)
		var cs []baton.Candidate
		for i := range 4 {
			cs = append(cs, candidate(fmt.Sprintf("node-%d", i+1)))
		}
		t := e.await(line, cs...)
		defer t.leave()
		if t.away > placeKept {
			return false
		}
		for _, want := range cs {
			vacant := time.Now()
			e.release(e.store, held.ID())
			got := t.next(e.patience)
			l, ok := t.inTurn(got, vacant)
			if !ok {
				return false
			}
			if got.NodeID != want.NodeID {
				return e.unlikely("%s was called: want %s, who came first", got.NodeID, want.NodeID)
			}
			held = l
		}
		return true
	})
}

// lineOneTurn lets many wait and counts who is called while the first takes its turn.
func lineOneTurn(e *env) {
	line, ok := e.line()
	if !ok {
		return
	}
	e.undisturbed(func() bool {
		held := e.grant(e.store, candidate("node-0"), e.long)
		var cs []baton.Candidate
		for i := range 8 {
			cs = append(cs, candidate(fmt.Sprintf("node-%d", i+1)))
		}
		t := e.await(line, cs...)
		defer t.leave()
		vacant := time.Now()
		e.release(e.store, held.ID())
		if _, ok := t.inTurn(t.next(e.patience), vacant); !ok {
			return false
		}
		e.pause(turnKept / 2)
		if others := len(t.called); others > 0 {
			return e.unlikely("%d others were called for a vacancy that the first had taken", others)
		}
		return true
	})
}

func linePolls(e *env) {
	line, ok := e.line()
	if !ok {
		return
	}
	e.undisturbed(func() bool {
		held := e.grant(e.store, candidate("node-0"), e.long)
		polling, waiting := candidate("node-polling"), candidate("node-waiting")
		_, left := e.poll(line, polling)
		second := e.await(line, waiting)
		defer second.leave()
		var away time.Duration // the longest that it was, between two polls
		for range 2 {
			e.pause(2 * time.Second)
			came, again := e.poll(line, polling)
			away, left = max(away, came.Sub(left)), again
		}
		e.pause(2 * time.Second)
		first := e.turns(1)
		defer first.leave()
		away = max(away, time.Since(left))
		first.wait(line, polling)
		e.pause(turnKept / 10)
		if max(away, second.away) > placeKept {
			return false
		}
		vacant := time.Now()
		e.release(e.store, held.ID())
		called := ""
		e.until(e.patience, "somebody called", func() bool {
			select {
			case c := <-first.called:
				called = c.NodeID
			case c := <-second.called:
				called = c.NodeID
			default:
			}
			return called != ""
		})
		if time.Since(vacant) > turnKept/2 {
			return false
		}
		if called != polling.NodeID {
			return e.unlikely("%s was called: want %s, who kept the first place by polling", called, polling.NodeID)
		}
		return true
	})
}

// lineDeadFirst lets the first in line die, once before its turn and once in it. The
// old lease was for as long as can be, so a store that counts such a loss in TTLs exceeds the patience.
func lineDeadFirst(e *env) {
	line, ok := e.line()
	if !ok {
		return
	}
	held := e.grant(e.store, candidate("node-0"), e.roundTTL(e.g.MaxTTL))
	e.poll(line, candidate("node-gone"))
	t := e.await(line, candidate("node-1"), candidate("node-2"))
	e.release(e.store, held.ID())
	t.next(e.patience)         // is called, and never comes
	next := t.next(e.patience) // is called in its place
	e.takeOver(e.store, next, e.long, e.patience)
}

func lineExpiry(e *env) {
	line, ok := e.line()
	if !ok {
		return
	}
	l := e.grant(e.store, candidate("node-0"), e.short)
	t := e.turns(1)
	t.wait(line, candidate("node-1"))
	c := t.next(e.lapse(l.TTL))
	next, _ := e.takeOver(e.store, c, e.long, e.lapse(l.TTL))
	if next.Term <= l.Term {
		e.Errorf("term %d after %d", next.Term, l.Term)
	}
}

// lineOutOfTurn comes from aside while a turn is kept. A store may let it in: the line is a courtesy. If it does
// not, it says that the group is vacant and when to come again, and whoever has the turn gets in.
func lineOutOfTurn(e *env) {
	line, ok := e.line()
	if !ok {
		return
	}
	e.undisturbed(func() bool {
		held := e.grant(e.store, candidate("node-0"), e.long)
		t := e.await(line, candidate("node-1"))
		defer t.leave()
		vacant := time.Now()
		e.release(e.store, held.ID())
		first := t.next(e.patience)
		aside := candidate("node-aside")
		l, err := e.store.Acquire(e.Context(), e.group, aside, e.long)
		if err == nil {
			e.checkHolder("the lease of the one from aside", l, aside)
			e.Logf("store %s lets candidates in out of turn", e.g.Store)
			return true
		}
		if time.Since(vacant) > turnKept/2 {
			return false
		}
		var out *baton.HeldError
		if !errors.As(err, &out) {
			e.Fatalf("acquire out of turn: got %v, want *HeldError", err)
		}
		if out.Lease.Held() || out.Lease.Term != held.Term || out.RetryAfter <= 0 {
			e.Errorf("out of turn is answered with %+v and retry after %v: want the vacant state, and a wait", out.Lease, out.RetryAfter)
		}
		_, ok := t.inTurn(first, vacant)
		return ok
	})
}

func lineSuccessor(e *env) {
	line, ok := e.line()
	ender, can := e.ender()
	if !ok || !can {
		return
	}
	e.undisturbed(func() bool {
		held := e.grant(e.store, candidate("node-0"), e.long)
		t := e.await(line, candidate("node-1"), candidate("node-2"), candidate("node-3"))
		defer t.leave()
		e.transfer(ender, held.Term, baton.Ending{Reason: baton.Transferred, Successor: "node-2"})
		vacant := time.Now()
		e.release(e.store, held.ID())
		first := t.next(e.patience)
		if _, ok := t.inTurn(first, vacant); !ok {
			return false
		}
		if first.NodeID != "node-2" {
			return e.unlikely("%s was called: want the named successor, node-2", first.NodeID)
		}
		return true
	})
}
