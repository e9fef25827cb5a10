package storetest

import "baton"

var termCases = []Case{
	rule("Terms/RiseThroughRelease", termsThroughRelease),
	rule("Terms/RiseThroughExpiry", termsThroughExpiry),
	rule("Terms/RiseThroughDeletion", termsThroughDeletion),
	{Name: "Terms/RiseThroughRestart", Check: func(t T, h Harness) { termsThroughRestart(newEnv(t, h)) }, alone: true},
}

// rising checks that each term it is shown lies above the one before.
type rising struct{ last baton.Term }

func (r *rising) next(e *env, after string, t baton.Term) {
	e.Helper()
	if t <= r.last {
		e.Errorf("after %s the term is %d: want above %d", after, t, r.last)
	}
	r.last = t
}

func termsThroughRelease(e *env) {
	handles := []baton.Store{e.store, e.open(), e.open()}
	var terms rising
	for i := range 12 {
		l := e.grant(handles[i%3], candidate("node-a"), e.long)
		terms.next(e, "a release", l.Term)
		e.release(handles[(i+1)%3], l.ID())
		e.checkVacant(handles[(i+2)%3], l.Term)
	}
}

func termsThroughExpiry(e *env) {
	var terms rising
	l := e.grant(e.store, candidate("node-a"), e.short)
	for range 2 {
		terms.next(e, "an expiry", l.Term)
		l, _ = e.takeOver(e.open(), candidate("node-a"), e.short, e.lapse(l.TTL))
	}
	terms.next(e, "an expiry", l.Term)
}

func termsThroughDeletion(e *env) {
	r, ok := e.registry()
	if !ok {
		return
	}
	if !e.g.DeletionTerms {
		e.Logf("store %s declares that its terms do not survive deletion", e.g.Store)
		return
	}
	var terms rising
	for range 3 {
		for range 2 {
			l := e.grant(e.store, candidate("node-a"), e.long)
			terms.next(e, "deletion and reuse", l.Term)
			e.release(e.store, l.ID())
		}
		if err := r.DeleteGroup(e.Context(), e.group); err != nil {
			e.Fatalf("delete the vacant group: %v", err)
		}
		if l := e.get(e.store); l.Held() || l.Term < terms.last {
			e.Errorf("the deleted group reads %+v: want it vacant, with a term that the next will exceed, at least %d", l, terms.last)
		}
	}
}

func termsThroughRestart(e *env) {
	if !e.g.DurableTerms {
		e.Logf("store %s declares that its terms do not survive a restart", e.g.Store)
		return
	}
	if e.back.Restart == nil {
		e.Logf("NOT CHECKED: store %s declares durable terms, and the harness cannot restart it", e.g.Store)
		return
	}
	var terms rising
	var unused baton.LeaseID
	for range 2 {
		s := e.open()
		l := e.grant(s, candidate("node-a"), e.long)
		terms.next(e, "a restart", l.Term)
		if unused != (baton.LeaseID{}) {
			_, err := s.Renew(e.Context(), unused, e.long)
			e.wantNotLeader("renewal of a leadership from before the restart", err, &l)
		}
		unused = l.ID()
		e.release(s, l.ID())
		e.back.Restart()
	}
	s := e.open()
	e.checkVacant(s, terms.last)
	terms.next(e, "a restart", e.grant(s, candidate("node-b"), e.long).Term)
}
