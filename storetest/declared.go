package storetest

import (
	"reflect"

	"baton"
	"baton/storetest/internal/capability"
)

var declaredCases = []Case{
	rule("Declared/GuaranteesAreSound", guaranteesAreSound),
	rule("Declared/CapabilitiesMatch", capabilitiesMatch),
}

func guaranteesAreSound(e *env) {
	g := e.g
	if g.Store == "" {
		e.Errorf("Guarantees.Store is empty: want the kind of store")
	}
	if g.MinTTL <= 0 || g.MinTTL > g.MaxTTL || g.MaxTTL > baton.MaxTTL {
		e.Errorf("TTL bounds %v to %v: want 0 < min <= max <= %v", g.MinTTL, g.MaxTTL, baton.MaxTTL)
	}
	if g.TTLStep < 0 || g.ExpiryLag < 0 {
		e.Errorf("TTLStep %v, ExpiryLag %v: want none below 0", g.TTLStep, g.ExpiryLag)
	}
	switch g.Time {
	case baton.TimeMonotonic, baton.TimeWall, baton.TimeObserved:
	default:
		e.Errorf("Guarantees.Time is %q", g.Time)
	}
	if other := e.open().Guarantees(); !reflect.DeepEqual(g, other) {
		e.Errorf("two handles on one store promise different things:\n%+v\n%+v", g, other)
	}
}

func capabilitiesMatch(e *env) {
	has := capability.Of(e.store)
	if line := e.g.Waiting == baton.WaitLine; line != (has.Line != nil) {
		e.Errorf("Guarantees.Waiting is %q, and being a Line is %t", e.g.Waiting, has.Line != nil)
	}
	if e.g.Waiting != baton.WaitLine && e.g.Waiting != baton.WaitWatch {
		e.Errorf("Guarantees.Waiting is %q", e.g.Waiting)
	}
	if e.g.Transfers != (has.Ender != nil) {
		e.Errorf("Guarantees.Transfers is %t, and being an Ender is %t", e.g.Transfers, has.Ender != nil)
	}
	for _, c := range []struct {
		name string
		has  bool
	}{
		{"Line", has.Line != nil}, {"Ender", has.Ender != nil},
		{"Historian", has.Historian != nil}, {"Registry", has.Registry != nil},
		{"DurableTerms", e.g.DurableTerms}, {"FailoverTerms", e.g.FailoverTerms},
		{"DeletionTerms", e.g.DeletionTerms}, {"Extends", e.g.Extends},
	} {
		e.Logf("store %s: %s %t", e.g.Store, c.name, c.has)
	}
}

// The following return a capability of the store, or say that it is declared absent.

func (e *env) line() (baton.Line, bool) {
	l, ok := e.store.(baton.Line)
	return l, e.has("Line", ok)
}

func (e *env) ender() (baton.Ender, bool) {
	s, ok := e.store.(baton.Ender)
	return s, e.has("Ender", ok)
}

func (e *env) historian() (baton.Historian, bool) {
	s, ok := e.store.(baton.Historian)
	return s, e.has("Historian", ok)
}

func (e *env) registry() (baton.Registry, bool) {
	s, ok := e.store.(baton.Registry)
	return s, e.has("Registry", ok)
}

func (e *env) has(what string, ok bool) bool {
	if !ok {
		e.Logf("store %s declares that it is no %s: this rule does not apply", e.g.Store, what)
	}
	return ok
}
