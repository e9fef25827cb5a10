package storetest

import "baton"

var releaseCases = []Case{
	rule("Release/OpensTheGroup", releaseOpens),
	rule("Release/EndsTheLeadership", releaseEnds),
	rule("Release/UnknownLeadership", releaseUnknown),
	rule("Release/InstanceEnded", releaseInstanceEnded),
}

func releaseOpens(e *env) {
	other := e.open()
	l := e.grant(e.store, candidate("node-a"), e.long)
	e.release(e.store, l.ID())
	e.checkVacant(other, l.Term)
	b := candidate("node-b")
	lb := e.grant(other, b, e.long)
	e.checkHeld(e.store, b, lb.Term)
}

func releaseEnds(e *env) {
	l := e.grant(e.store, candidate("node-a"), e.long)
	e.release(e.open(), l.ID())
	_, err := e.store.Renew(e.Context(), l.ID(), e.long)
	e.wantNotLeader("renewal after the release", err, nil)
	e.wantNotLeader("second release", e.store.Release(e.Context(), l.ID()), nil)
	e.checkVacant(e.store, l.Term)
}

func releaseUnknown(e *env) {
	id := baton.LeaseID{Group: e.group, NodeID: "node-a", InstanceID: randomHex(16), Term: 1}
	e.wantNotLeader("release in a group that nobody ever led", e.store.Release(e.Context(), id), nil)
}

// A request to acquire that was delayed beyond the release must not win a
// second leadership that nobody waits for.
func releaseInstanceEnded(e *env) {
	a := candidate("node-a")
	l := e.grant(e.store, a, e.long)
	e.release(e.store, l.ID())
	for _, s := range []baton.Store{e.store, e.open()} {
		_, err := s.Acquire(e.Context(), e.group, a, e.long)
		e.wantConflict("acquire by the instance that was released", err, baton.ConflictInstanceEnded)
	}
	e.checkVacant(e.store, l.Term)
	e.grant(e.store, candidate("node-a"), e.long)
}
