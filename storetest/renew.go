package storetest

import (
	"errors"
	"time"

	"baton"
)

var renewCases = []Case{
	rule("Renew/Extends", renewExtends),
	rule("Renew/KeepsTheLeaseAlive", renewKeepsAlive),
	rule("Renew/LessNeverMovesTheDeadlineEarlier", renewLess),
	rule("Renew/MoreThanTheTTL", renewMore),
	rule("Renew/RefusedOnceOver", renewRefusedOnceOver),
	rule("Renew/UnknownLeadership", renewUnknown),
}

// renewExtends waits until part of the lease is used up, renews, and wants it back.
func renewExtends(e *env) {
	e.undisturbed(func() bool {
		a := candidate("node-a")
		ttl := e.roundTTL(max(e.short, 10*e.g.TTLStep))
		l := e.grant(e.store, a, ttl)
		e.until(e.lapse(ttl), "a third of the lease to be used up", func() bool {
			return e.get(e.store).Remaining <= l.TTL*2/3
		})
		sent := time.Now()
		before := e.get(e.store)
		if !before.HeldBy(a) || before.Remaining < l.TTL/4 {
			return false
		}
		r, err := e.store.Renew(e.Context(), l.ID(), ttl)
		if time.Since(sent) > l.TTL/5 {
			return false
		}
		if err != nil {
			e.Fatalf("renew: %v", err)
		}
		if r.ID() != l.ID() || r.TTL != l.TTL {
			e.Errorf("the renewal answers for %s with TTL %v: want %s with %v", r.ID(), r.TTL, l.ID(), l.TTL)
		}
		if r.Remaining <= before.Remaining || r.Remaining > r.TTL {
			e.Errorf("renewed for %v with %v left, it has %v left: want more, at most %v", ttl, before.Remaining, r.Remaining, r.TTL)
		}
		if now := e.get(e.open()); now.Remaining <= before.Remaining && time.Since(sent) < l.TTL/5 {
			e.Errorf("another handle reads %v left after the renewal, %v before it", now.Remaining, before.Remaining)
		}
		return true
	})
}

// renewKeepsAlive holds a lease for three times its TTL, by what it was promised.
func renewKeepsAlive(e *env) {
	e.undisturbed(func() bool {
		a, other := candidate("node-a"), e.open()
		start := time.Now()
		sent := start
		l := e.grant(e.store, a, e.short)
		until := sent.Add(l.Remaining)
		for time.Since(start) < 3*l.TTL {
			e.pause(l.TTL / 10)
			sent = time.Now()
			r, err := e.store.Renew(e.Context(), l.ID(), e.short)
			if !time.Now().Before(until) {
				return false
			}
			if err != nil {
				e.Fatalf("renew with %v of the promise left: %v", time.Until(until), err)
			}
			if u := sent.Add(r.Remaining); u.After(until) {
				until = u
			}
			_, err = other.Acquire(e.Context(), e.group, candidate("node-b"), e.short)
			if !time.Now().Before(until) {
				return false
			}
			e.wantHeld(err, l)
		}
		return true
	})
}

func renewLess(e *env) {
	a := candidate("node-a")
	sent := time.Now()
	l := e.grant(e.store, a, e.long)
	promised := sent.Add(l.Remaining)
	for _, extend := range []time.Duration{time.Millisecond, e.short} {
		r := e.renew(e.store, l.ID(), extend)
		// The answer was given before now, so this much must be left at least.
		if want := time.Until(promised) - e.g.TTLStep; r.Remaining < want {
			e.Errorf("renewed for only %v, the lease has %v left: want no less than the %v it had", extend, r.Remaining, want)
		}
		if r.TTL != l.TTL {
			e.Errorf("renewed for only %v, the TTL became %v: want %v", extend, r.TTL, l.TTL)
		}
	}
	if now, want := e.checkHeld(e.open(), a, l.Term), time.Until(promised)-e.g.TTLStep; now.Remaining < want {
		e.Errorf("after a renewal for less another handle reads %v left: want at least %v", now.Remaining, want)
	}
}

func renewMore(e *env) {
	a := candidate("node-a")
	ttl := e.roundTTL(max(e.g.MinTTL, e.long/2))
	more := e.long
	if more <= ttl {
		e.Logf("the TTL bounds %v to %v leave no room to ask for more", e.g.MinTTL, e.g.MaxTTL)
		return
	}
	l := e.grant(e.store, a, ttl)
	if !e.g.Extends {
		_, err := e.store.Renew(e.Context(), l.ID(), more)
		var invalid *baton.InvalidTTLError
		if !errors.As(err, &invalid) {
			e.Fatalf("renew a lease of %v for %v at a store that does not extend: got %v, want *InvalidTTLError", l.TTL, more, err)
		}
		if now := e.checkHeld(e.store, a, l.Term); now.TTL != l.TTL {
			e.Errorf("the refused renewal changed the TTL to %v", now.TTL)
		}
		return
	}
	sent := time.Now()
	r := e.renew(e.store, l.ID(), more)
	promised := sent.Add(r.Remaining)
	if r.TTL != more || r.Remaining > more || r.Remaining <= ttl {
		e.Errorf("renewed for %v: TTL %v, %v left", more, r.TTL, r.Remaining)
	}
	if now := e.checkHeld(e.open(), a, l.Term); now.TTL != more || now.Remaining < time.Until(promised)-e.g.TTLStep {
		e.Errorf("another handle reads TTL %v with %v left: want %v, and what was promised", now.TTL, now.Remaining, more)
	}
	if r := e.renew(e.store, l.ID(), ttl); r.TTL != more {
		e.Errorf("a later renewal for %v lowered the TTL to %v: want %v, for good", ttl, r.TTL, more)
	}
}

func renewRefusedOnceOver(e *env) {
	a := candidate("node-a")
	l := e.grant(e.store, a, e.short)
	e.waitOver(e.store, l)
	_, err := e.store.Renew(e.Context(), l.ID(), e.short)
	e.wantNotLeader("renewal of a lease that ran out and that nobody has taken", err, nil)
	_, err = e.store.Renew(e.Context(), l.ID(), e.short)
	e.wantNotLeader("the same again", err, nil)
}

func renewUnknown(e *env) {
	id := baton.LeaseID{Group: e.group, NodeID: "node-a", InstanceID: randomHex(16), Term: 1}
	_, err := e.store.Renew(e.Context(), id, e.short)
	e.wantNotLeader("renewal in a group that nobody ever led", err, nil)
	if l := e.get(e.store); l.Held() {
		e.Errorf("a refused renewal made %s the leader", l.NodeID)
	}
}
