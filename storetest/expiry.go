package storetest

import (
	"errors"
	"time"

	"baton"
)

var expiryCases = []Case{
	rule("Expiry/NotBeforeThePromiseEnds", expiryNotEarly),
	rule("Expiry/OpensTheGroup", expiryOpens),
	rule("Expiry/StaleRequestsAfterATakeover", expiryStale),
}

// takeOver campaigns until it wins, and returns when it knew.
func (e *env) takeOver(s baton.Store, c baton.Candidate, ttl, limit time.Duration) (baton.Lease, time.Time) {
	e.Helper()
	var won baton.Lease
	e.until(limit, "the group open for another", func() bool {
		l, err := s.Acquire(e.Context(), e.group, c, ttl)
		if err == nil {
			won = l
			return true
		}
		if !errors.Is(err, baton.ErrHeld) {
			e.Fatalf("campaign for a group whose lease runs out: %v", err)
		}
		return false
	})
	return won, time.Now()
}

// expiryNotEarly has nothing of speed in it: whoever is granted the group is told after the grant, and the grant may
// not come before the old holder's promise, counted from before it asked, has ended.
func expiryNotEarly(e *env) {
	other := e.open()
	a, b := candidate("node-a"), candidate("node-b")
	sent := time.Now()
	l := e.grant(e.store, a, e.short)
	promised := sent.Add(l.Remaining)
	for range 3 {
		e.pause(l.TTL / 8)
		sent = time.Now()
		r, err := e.store.Renew(e.Context(), l.ID(), e.short)
		if errors.Is(err, baton.ErrNotLeader) {
			break // this process was held up; what was promised before still counts
		}
		if err != nil {
			e.Fatalf("renew: %v", err)
		}
		promised = sent.Add(r.Remaining)
	}
	_, won := e.takeOver(other, b, e.long, e.lapse(l.TTL))
	const grain = 5 * time.Millisecond // of the two clocks
	if early := promised.Sub(won); early > grain {
		e.Errorf("another was granted the group %v before the holder's promise ended", early)
	}
}

func expiryOpens(e *env) {
	l := e.grant(e.store, candidate("node-a"), e.short)
	b := candidate("node-b")
	next, _ := e.takeOver(e.open(), b, e.long, e.lapse(l.TTL))
	e.checkHolder("the lease after the expiry", next, b)
	if next.Term <= l.Term {
		e.Errorf("term %d after %d", next.Term, l.Term)
	}
	e.checkHeld(e.store, b, next.Term)
}

func expiryStale(e *env) {
	other := e.open()
	a, b := candidate("node-a"), candidate("node-b")
	old := e.grant(e.store, a, e.short)
	now, _ := e.takeOver(other, b, e.long, e.lapse(old.TTL))
	_, err := e.store.Renew(e.Context(), old.ID(), e.short)
	e.wantNotLeader("renewal after the takeover", err, &now)
	e.wantNotLeader("release after the takeover", e.store.Release(e.Context(), old.ID()), &now)
	_, err = e.store.Acquire(e.Context(), e.group, a, e.short)
	if !errors.Is(err, baton.ErrHeld) && !errors.Is(err, baton.ErrConflict) {
		e.Errorf("acquire by the instance that was taken over: got %v, want it held, or the instance ended", err)
	}
	e.checkHeld(e.store, b, now.Term)
}
