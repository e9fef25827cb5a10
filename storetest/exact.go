package storetest

import "baton"

var exactCases = []Case{
	rule("ExactTerm/StaleRequestsAfterATakeover", staleAfterTakeover),
	rule("ExactTerm/NearMisses", nearMisses),
	rule("ExactTerm/OldTermOfTheSameNode", oldTermOfSameNode),
}

// staleAfterTakeover sends what an old holder may have sent long ago, after someone else leads.
func staleAfterTakeover(e *env) {
	other := e.open()
	old := e.grant(e.store, candidate("node-a"), e.long)
	e.release(e.store, old.ID())
	b := candidate("node-b")
	now := e.grant(other, b, e.long)
	for range 2 {
		_, err := e.store.Renew(e.Context(), old.ID(), e.long)
		e.wantNotLeader("stale renewal", err, &now)
		e.wantNotLeader("stale release", e.store.Release(e.Context(), old.ID()), &now)
		e.checkHeld(other, b, now.Term)
	}
	e.renew(other, now.ID(), e.long)
}

func nearMisses(e *env) {
	a := candidate("node-a")
	l := e.grant(e.store, a, e.long)
	for what, id := range map[string]baton.LeaseID{
		"the next term":    {Group: e.group, NodeID: a.NodeID, InstanceID: a.InstanceID, Term: l.Term + 1},
		"another instance": {Group: e.group, NodeID: a.NodeID, InstanceID: randomHex(16), Term: l.Term},
		"another node":     {Group: e.group, NodeID: "node-b", InstanceID: a.InstanceID, Term: l.Term},
	} {
		_, err := e.store.Renew(e.Context(), id, e.long)
		e.wantNotLeader("renewal naming "+what, err, &l)
		e.wantNotLeader("release naming "+what, e.store.Release(e.Context(), id), &l)
	}
	e.checkHeld(e.store, a, l.Term)
}

func oldTermOfSameNode(e *env) {
	first := e.grant(e.store, candidate("node-a"), e.long)
	e.release(e.store, first.ID())
	again := candidate("node-a")
	second := e.grant(e.store, again, e.long)
	if second.Term <= first.Term {
		e.Fatalf("second term %d: want above %d", second.Term, first.Term)
	}
	mixed := second.ID()
	mixed.Term = first.Term
	for what, id := range map[string]baton.LeaseID{
		"the first leadership":             first.ID(),
		"the first term, the new instance": mixed,
	} {
		_, err := e.store.Renew(e.Context(), id, e.long)
		e.wantNotLeader("renewal of "+what, err, &second)
		e.wantNotLeader("release of "+what, e.store.Release(e.Context(), id), &second)
	}
	e.checkHeld(e.store, again, second.Term)
}
