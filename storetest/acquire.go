package storetest

import (
	"errors"

	"baton"
)

var acquireCases = []Case{
	rule("Acquire/VacantGroup", acquireVacant),
	rule("Acquire/HeldByAnother", acquireHeld),
	rule("Acquire/HeldByAnotherInstanceOfTheNode", acquireHeldByOwnNode),
	rule("Acquire/GroupsAreIndependent", groupsAreIndependent),
	rule("Acquire/KeepsNothingOfTheCallers", acquireCopies),
}

func acquireVacant(e *env) {
	a := candidate("node-a")
	a.Metadata = map[string]string{"zone": "eu-1", "addr": "10.0.0.1:80", "empty": ""}
	l := e.grant(e.store, a, e.long)
	if l.Remaining == 0 {
		e.Errorf("a lease of %v was granted with nothing left", e.long)
	}
	seen := e.checkHeld(e.open(), a, l.Term)
	if seen.TTL != l.TTL {
		e.Errorf("another handle reads a TTL of %v: want %v", seen.TTL, l.TTL)
	}
}

func acquireHeld(e *env) {
	a := candidate("node-a")
	a.Metadata = map[string]string{"zone": "eu-1"}
	l := e.grant(e.store, a, e.long)
	_, err := e.open().Acquire(e.Context(), e.group, candidate("node-b"), e.long)
	e.wantHeld(err, l)
	var held *baton.HeldError
	if errors.As(err, &held) && (held.Lease.Remaining <= 0 || held.Lease.Remaining > held.Lease.TTL) {
		e.Errorf("the loser is told of %v remaining: want more than 0, at most the TTL %v", held.Lease.Remaining, held.Lease.TTL)
	}
	e.checkHeld(e.store, a, l.Term)
}

// A restarted process does not inherit the lease of the one before it: both may be running.
func acquireHeldByOwnNode(e *env) {
	a := candidate("node-a")
	l := e.grant(e.store, a, e.long)
	_, err := e.store.Acquire(e.Context(), e.group, candidate("node-a"), e.long)
	e.wantHeld(err, l)
	e.checkHeld(e.store, a, l.Term)
}

func groupsAreIndependent(e *env) {
	a, b := candidate("node-a"), candidate("node-b")
	first := e.group
	la := e.grant(e.store, a, e.long)
	// Names that a careless key layout would confuse.
	for _, suffix := range []string{"-2", ".", ":", ":term", ".lease", "-"} {
		e.group = first + suffix
		lb := e.grant(e.store, b, e.long)
		e.release(e.store, lb.ID())
	}
	e.group = first
	e.checkHeld(e.store, a, la.Term)
	e.release(e.store, la.ID())
	e.checkVacant(e.store, la.Term)
}

func acquireCopies(e *env) {
	a := candidate("node-a")
	a.Metadata = map[string]string{"zone": "eu-1"}
	given := a
	given.Metadata = map[string]string{"zone": "eu-1"}
	l := e.grant(e.store, given, e.long)
	given.Metadata["zone"] = "changed by the caller"
	l.Metadata["zone"] = "changed by the caller"
	e.checkHeld(e.store, a, l.Term).Metadata["zone"] = "changed by a reader"
	e.checkHeld(e.store, a, l.Term)
}
