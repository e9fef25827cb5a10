package storetest

import (
	"time"

	"baton"
)

var repeatCases = []Case{
	rule("RepeatAcquire/ReturnsTheSameLeadership", repeatSame),
	rule("RepeatAcquire/NeverShortens", repeatNeverShortens),
	rule("RepeatAcquire/AfterExpiryIsRefused", repeatAfterExpiry),
	rule("RepeatAcquire/ConcurrentRepeatsAgree", repeatConcurrent),
}

func repeatSame(e *env) {
	a := candidate("node-a")
	l := e.grant(e.store, a, e.long)
	for _, s := range []baton.Store{e.store, e.open()} {
		r := e.grant(s, a, e.long)
		if r.Term != l.Term {
			e.Fatalf("the repeated acquire got term %d: want the %d it had won", r.Term, l.Term)
		}
	}
	e.renew(e.store, l.ID(), e.long)
	e.release(e.store, l.ID())
	e.checkVacant(e.store, l.Term)
}

func repeatNeverShortens(e *env) {
	a := candidate("node-a")
	sent := time.Now()
	l := e.grant(e.store, a, e.long)
	promised := sent.Add(l.Remaining)
	r, err := e.store.Acquire(e.Context(), e.group, a, e.short)
	if err != nil {
		e.Fatalf("repeat the acquire with a shorter TTL: %v", err)
	}
	if r.ID() != l.ID() || r.TTL != l.TTL {
		e.Errorf("the repeated acquire got %s with TTL %v: want %s with %v", r.ID(), r.TTL, l.ID(), l.TTL)
	}
	if want := time.Until(promised) - e.g.TTLStep; r.Remaining < want {
		e.Errorf("the repeated acquire left %v: want no less than the %v there was", r.Remaining, want)
	}
}

func repeatAfterExpiry(e *env) {
	a := candidate("node-a")
	l := e.grant(e.store, a, e.short)
	e.waitOver(e.store, l)
	_, err := e.store.Acquire(e.Context(), e.group, a, e.short)
	e.wantConflict("acquire by the instance whose lease ran out", err, baton.ConflictInstanceEnded)
	if next, _ := e.takeOver(e.store, candidate("node-a"), e.long, e.lapse(l.TTL)); next.Term <= l.Term {
		e.Errorf("term %d after %d", next.Term, l.Term)
	}
}

// repeatConcurrent sends one campaign's request several times at once, as a retrying client does.
func repeatConcurrent(e *env) {
	a := candidate("node-a")
	const requests = 8
	type answer struct {
		lease baton.Lease
		err   error
	}
	answers := make(chan answer, requests)
	for range requests {
		s := e.open()
		go func() {
			l, err := s.Acquire(e.Context(), e.group, a, e.long)
			answers <- answer{l, err}
		}()
	}
	var term baton.Term
	for range requests {
		got := <-answers
		if got.err != nil {
			e.Fatalf("one of %d equal requests: %v", requests, got.err)
		}
		if term == 0 {
			term = got.lease.Term
		}
		if got.lease.Term != term {
			e.Fatalf("equal requests won terms %d and %d", term, got.lease.Term)
		}
	}
	e.checkHeld(e.store, a, term)
}
