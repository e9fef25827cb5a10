package storetest

import (
	"time"

	"baton"
)

var pastCases = []Case{
	rule("History/Empty", pastEmpty),
	rule("History/TermsAndReasons", pastTerms),
	rule("History/LeaderlessGap", pastGap),
}

// pastTerm is a line that the history must have. A reason that is empty wants the leadership to stand.
type pastTerm struct {
	baton.Lease
	reason baton.Reason
	note   string
}

// checkPast wants exactly these lines, if the store remembers.
func (e *env) checkPast(want ...pastTerm) []baton.PastTerm {
	e.Helper()
	h, ok := e.historian()
	if !ok {
		return nil
	}
	got, err := h.History(e.Context(), e.group)
	if err != nil {
		e.Fatalf("history: %v", err)
	}
	if len(got) != len(want) {
		e.Fatalf("the history has %d terms: want %d: %+v", len(got), len(want), got)
	}
	for i, w := range want {
		p := got[i]
		if p.Term != w.Term || p.NodeID != w.NodeID || p.InstanceID != w.InstanceID {
			e.Errorf("line %d of the history is term %d of %s (%s): want %s", i, p.Term, p.NodeID, p.InstanceID, w.ID())
		}
		if p.Reason != w.reason || p.Note != w.note {
			e.Errorf("term %d ended because %q (%s): want %q (%s)", p.Term, p.Reason, p.Note, w.reason, w.note)
		}
		if p.ElectedAt.IsZero() {
			e.Errorf("term %d has no time of election", p.Term)
		}
		if p.EndedAt.IsZero() != (w.reason == "") {
			e.Errorf("term %d ended at %v for reason %q", p.Term, p.EndedAt, w.reason)
		}
		if p.Gap < 0 || i == 0 && p.Gap != 0 {
			e.Errorf("term %d, line %d, has a gap of %v before it", p.Term, i, p.Gap)
		}
	}
	return got
}

func pastEmpty(e *env) {
	e.checkPast()
}

func pastTerms(e *env) {
	a, b := candidate("node-a"), candidate("node-b")
	la := e.grant(e.store, a, e.long)
	e.checkPast(pastTerm{Lease: la})
	e.grant(e.store, a, e.long)
	e.renew(e.store, la.ID(), e.long)
	e.release(e.store, la.ID())
	e.checkPast(pastTerm{Lease: la, reason: baton.Resigned})
	lb := e.grant(e.store, b, e.short)
	lc, _ := e.takeOver(e.open(), candidate("node-c"), e.long, e.lapse(lb.TTL))
	e.checkPast(
		pastTerm{Lease: la, reason: baton.Resigned},
		pastTerm{Lease: lb, reason: baton.Expired},
		pastTerm{Lease: lc},
	)
}

// pastGap leaves the group without a leader for a while that it measures from inside and outside.
func pastGap(e *env) {
	la := e.grant(e.store, candidate("node-a"), e.long)
	outside := time.Now()
	e.release(e.store, la.ID())
	inside := time.Now()
	e.pause(2500 * time.Millisecond)
	least := time.Since(inside)
	lb := e.grant(e.store, candidate("node-b"), e.long)
	most := time.Since(outside)
	lines := e.checkPast(pastTerm{Lease: la, reason: baton.Resigned}, pastTerm{Lease: lb})
	if lines == nil {
		return
	}
	// The stamps are wall-clock time, perhaps in whole seconds.
	const grain = time.Second
	if gap := lines[1].Gap; gap < least-grain || gap > most+grain {
		e.Errorf("the history shows a gap of %v: it was %v to %v", gap, least, most)
	}
}
