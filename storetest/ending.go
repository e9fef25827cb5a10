package storetest

import (
	"errors"
	"strings"
	"time"

	"baton"
)

var endingCases = []Case{
	rule("Ending/Gentle", endGently),
	rule("Ending/GentleRunsOut", endRunsOut),
	rule("Ending/Immediate", endAtOnce),
	rule("Ending/Replaced", endReplaced),
	rule("Ending/Transfer", endTransfer),
	rule("Ending/SuccessorNotInLine", endNotInLine),
	rule("Ending/ExactTerm", endExactTerm),
	rule("Ending/Validation", endValidation),
}

func (e *env) end(s baton.Ender, term baton.Term, ending baton.Ending) {
	e.Helper()
	if err := s.End(e.Context(), e.group, term, ending); err != nil {
		e.Fatalf("end term %d with %+v: %v", term, ending, err)
	}
}

// transfer ends a leadership in favour of a node that waits, as soon as it does.
func (e *env) transfer(s baton.Ender, term baton.Term, ending baton.Ending) {
	e.Helper()
	e.until(e.patience, ending.Successor+" in line", func() bool {
		err := s.End(e.Context(), e.group, term, ending)
		var conflict *baton.ConflictError
		if errors.As(err, &conflict) && conflict.Reason == baton.ConflictNotInLine {
			return false
		}
		if err != nil {
			e.Fatalf("end term %d with %+v: %v", term, ending, err)
		}
		return true
	})
}

func (e *env) checkEnding(what string, l baton.Lease, want baton.Ending) {
	e.Helper()
	if l.Ending == nil {
		e.Fatalf("%s does not show that it is being ended", what)
	}
	if *l.Ending != want {
		e.Errorf("%s is being ended with %+v: want %+v", what, *l.Ending, want)
	}
}

// endGently follows a step-down from the request to the holder's release.
func endGently(e *env) {
	ender, ok := e.ender()
	if !ok {
		return
	}
	w := e.watch(e.open(), "")
	w.next()
	a := candidate("node-a")
	l := e.grant(e.store, a, e.long)
	ending := baton.Ending{Reason: baton.SteppedDown, Note: "rack 7 goes down"}
	e.end(ender, l.Term, ending)

	before := e.checkHeld(e.open(), a, l.Term)
	e.checkEnding("what get reads", before, ending)
	r := e.renew(e.store, l.ID(), e.long)
	e.checkEnding("the renewed lease", r, ending)
	again, err := e.store.Acquire(e.Context(), e.group, a, e.long)
	if err != nil {
		e.Fatalf("repeated acquire of a lease that is being ended: %v", err)
	}
	if again.ID() != l.ID() {
		e.Errorf("repeated acquire got %s: want %s", again.ID(), l.ID())
	}
	e.checkEnding("the lease of the repeated acquire", again, ending)
	for what, now := range map[string]baton.Lease{"renewal": r, "repeated acquire": again} {
		if now.Remaining > before.Remaining+e.g.TTLStep {
			e.Errorf("a %s extended a lease that is being ended: %v left, %v before", what, now.Remaining, before.Remaining)
		}
	}
	_, err = e.store.Acquire(e.Context(), e.group, candidate("node-b"), e.long)
	e.wantHeld(err, l)

	e.release(e.store, l.ID())
	e.checkVacant(e.store, l.Term)
	next := e.grant(e.store, candidate("node-b"), e.long)
	if next.Term <= l.Term {
		e.Errorf("term %d after %d", next.Term, l.Term)
	}
	w.expect(began(l), lost(l, baton.SteppedDown), began(next))
	e.checkPast(pastTerm{l, baton.SteppedDown, ending.Note}, pastTerm{Lease: next})
}

// endRunsOut has a holder that renews on and never drains: its lease runs out all the same.
func endRunsOut(e *env) {
	ender, ok := e.ender()
	if !ok {
		return
	}
	var l baton.Lease
	e.undisturbed(func() bool {
		sent := time.Now()
		l = e.grant(e.store, candidate("node-a"), e.short)
		err := ender.End(e.Context(), e.group, l.Term, baton.Ending{Reason: baton.SteppedDown})
		if time.Since(sent) >= l.Remaining {
			return false
		}
		if err != nil {
			e.Fatalf("end term %d: %v", l.Term, err)
		}
		return true
	})
	e.until(e.lapse(l.TTL), "the end of a lease that is being ended and renewed all the time", func() bool {
		_, err := e.store.Renew(e.Context(), l.ID(), e.short)
		if err != nil {
			e.wantNotLeader("renewal", err, nil)
		}
		return err != nil
	})
	e.takeOver(e.store, candidate("node-b"), e.long, e.lapse(l.TTL))
}

func endAtOnce(e *env) {
	ender, ok := e.ender()
	if !ok {
		return
	}
	w := e.watch(e.open(), "")
	w.next()
	a := candidate("node-a")
	l := e.grant(e.store, a, e.long)
	ending := baton.Ending{Reason: baton.SteppedDown, Note: "break the glass", Immediate: true}
	e.end(ender, l.Term, ending)
	e.checkVacant(e.open(), l.Term)
	_, err := e.store.Renew(e.Context(), l.ID(), e.long)
	e.wantNotLeader("renewal after an immediate ending", err, nil)
	e.wantNotLeader("release after an immediate ending", e.store.Release(e.Context(), l.ID()), nil)
	_, err = e.store.Acquire(e.Context(), e.group, a, e.long)
	e.wantConflict("acquire by the instance that was ended", err, baton.ConflictInstanceEnded)
	next := e.grant(e.store, candidate("node-a"), e.long)
	if next.Term <= l.Term {
		e.Errorf("term %d after %d", next.Term, l.Term)
	}
	w.expect(began(l), lost(l, baton.SteppedDown), began(next))
	e.checkPast(pastTerm{l, baton.SteppedDown, ending.Note}, pastTerm{Lease: next})
}

func endReplaced(e *env) {
	ender, ok := e.ender()
	if !ok {
		return
	}
	a := candidate("node-a")
	l := e.grant(e.store, a, e.long)
	e.end(ender, l.Term, baton.Ending{Reason: baton.SteppedDown, Note: "first"})
	second := baton.Ending{Reason: baton.SteppedDown, Note: "second"}
	e.end(ender, l.Term, second)
	e.checkEnding("the lease", e.checkHeld(e.store, a, l.Term), second)
	e.end(ender, l.Term, baton.Ending{Reason: baton.SteppedDown, Note: "third", Immediate: true})
	e.checkVacant(e.store, l.Term)
	e.checkPast(pastTerm{l, baton.SteppedDown, "third"})
}

func endTransfer(e *env) {
	ender, ok := e.ender()
	if !ok {
		return
	}
	w := e.watch(e.open(), "")
	w.next()
	a, b := candidate("node-a"), candidate("node-b")
	l := e.grant(e.store, a, e.long)
	if line, ok := e.store.(baton.Line); ok {
		e.await(line, b)
	}
	ending := baton.Ending{Reason: baton.Transferred, Successor: b.NodeID, Note: "to the bigger machine"}
	e.transfer(ender, l.Term, ending)
	e.checkEnding("the renewed lease", e.renew(e.store, l.ID(), e.long), ending)
	e.release(e.store, l.ID())
	next, _ := e.takeOver(e.store, b, e.long, e.patience)
	w.expect(began(l), lost(l, baton.Transferred), began(next))
	e.checkPast(pastTerm{l, baton.Transferred, ending.Note}, pastTerm{Lease: next})
}

func endNotInLine(e *env) {
	ender, ok := e.ender()
	if !ok {
		return
	}
	if _, ok := e.line(); !ok {
		return
	}
	a := candidate("node-a")
	l := e.grant(e.store, a, e.long)
	for _, immediate := range []bool{false, true} {
		err := ender.End(e.Context(), e.group, l.Term, baton.Ending{Reason: baton.Transferred, Successor: "node-absent", Immediate: immediate})
		e.wantConflict("transfer to a node that is not in line", err, baton.ConflictNotInLine)
	}
	if now := e.checkHeld(e.store, a, l.Term); now.Ending != nil {
		e.Errorf("a refused transfer began to end the lease: %+v", *now.Ending)
	}
}

func endExactTerm(e *env) {
	ender, ok := e.ender()
	if !ok {
		return
	}
	ending := baton.Ending{Reason: baton.SteppedDown, Immediate: true}
	e.wantNotLeader("ending in a group that nobody led", ender.End(e.Context(), e.group, 1, ending), nil)
	old := e.grant(e.store, candidate("node-a"), e.long)
	e.release(e.store, old.ID())
	e.wantNotLeader("ending of a term that is over", ender.End(e.Context(), e.group, old.Term, ending), nil)
	b := candidate("node-b")
	l := e.grant(e.store, b, e.long)
	for _, term := range []baton.Term{old.Term, l.Term + 1} {
		for _, immediate := range []bool{false, true} {
			ending.Immediate = immediate
			e.wantNotLeader("ending of another term", ender.End(e.Context(), e.group, term, ending), &l)
		}
	}
	if now := e.checkHeld(e.store, b, l.Term); now.Ending != nil {
		e.Errorf("an ending of another term began to end this one: %+v", *now.Ending)
	}
}

func endValidation(e *env) {
	ender, ok := e.ender()
	if !ok {
		return
	}
	a := candidate("node-a")
	l := e.grant(e.store, a, e.long)
	for what, ending := range map[string]baton.Ending{
		"no reason":                        {},
		"reason RESIGNED":                  {Reason: baton.Resigned},
		"reason EXPIRED":                   {Reason: baton.Expired},
		"a transfer to nobody":             {Reason: baton.Transferred},
		"a successor that is no id":        {Reason: baton.Transferred, Successor: "no id"},
		"a step-down to one that is no id": {Reason: baton.SteppedDown, Successor: ".."},
		"a note beyond 1 KiB":              {Reason: baton.SteppedDown, Note: strings.Repeat("n", 1025)},
	} {
		e.wantInvalid("end with "+what, ender.End(e.Context(), e.group, l.Term, ending))
	}
	e.wantInvalid("end in a group that is no id", ender.End(e.Context(), "..", l.Term, baton.Ending{Reason: baton.SteppedDown}))
	if now := e.checkHeld(e.store, a, l.Term); now.Ending != nil {
		e.Errorf("a refused ending began to end the lease: %+v", *now.Ending)
	}
}
