package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"baton"
)

// What clients can make up does not grow without end.
func TestMemoryIsBounded(t *testing.T) {
	clock := baton.SystemClock()
	r := newRoster(clock, time.Now)
	for i := range maxMembers + 100 {
		r.saw("g", baton.Candidate{NodeID: fmt.Sprint(i), InstanceID: "i"})
	}
	if n := len(r.list("g", baton.Lease{})); n != maxMembers {
		t.Errorf("%d members", n)
	}
	for i := range maxRosterGroups + 100 {
		r.saw(fmt.Sprint("g", i), baton.Candidate{NodeID: "n", InstanceID: "i"})
	}
	if n := len(r.groups); n != maxRosterGroups {
		t.Errorf("%d groups in the roster", n)
	}

	// Nor by what each of them brings along.
	heavy := map[string]string{"m": strings.Repeat("x", 4000)}
	for i := range 2 * maxRosterBytes / 4000 {
		r.saw(fmt.Sprint("g", i%500), baton.Candidate{NodeID: fmt.Sprint(i), InstanceID: "i", Metadata: heavy})
	}
	kept := 0
	for _, g := range r.groups {
		for _, s := range g.members {
			kept += s.size()
		}
	}
	if kept > maxRosterBytes || kept < maxRosterBytes/2 || kept != r.bytes {
		t.Errorf("the roster keeps %d bytes, by its own count %d", kept, r.bytes)
	}

	e := newElections(clock)
	for i := range maxElections + 100 {
		e.granted(baton.Lease{Group: fmt.Sprint(i), Term: 1, NodeID: "n", InstanceID: "i"}, clock.Now())
	}
	if n := len(e.groups); n != maxElections {
		t.Errorf("%d elections", n)
	}

	tu := newTurns(clock)
	for i := range 2*maxNotes + 1 {
		tu.park("g", baton.Candidate{NodeID: fmt.Sprint(i), InstanceID: "i"})
	}
	if n := len(tu.notes); n > maxNotes {
		t.Errorf("%d notes", n)
	}

	p := newPolicies(rules{}, time.Hour, clock)
	for i := range 2*maxKnown + 1 {
		p.remember(baton.Group{ID: fmt.Sprint(i)}, clock.Now(), 0)
	}
	if n := len(p.known); n > maxKnown {
		t.Errorf("%d policies", n)
	}

	m := newMetrics(2)
	if m.label("g0") != "g0" || m.label("g1") != "g1" || m.label("g2") != "other" || m.label("g0") != "g0" {
		t.Error("group labels are not bounded")
	}
}

func TestDrawnInstanceIsHandedOutOnce(t *testing.T) {
	tu := newTurns(baton.SystemClock())
	c := baton.Candidate{NodeID: "n", InstanceID: "i"}
	tu.park("g", c)
	if i, ok := tu.unpark("g", "n"); !ok || i != "i" {
		t.Errorf("%q, %v", i, ok)
	}
	if i, ok := tu.unpark("g", "n"); ok {
		t.Errorf("%q was handed out twice", i)
	}
	tu.give("g", c)
	if tu.take("g", baton.Candidate{NodeID: "n", InstanceID: "j"}) || !tu.take("g", c) || tu.take("g", c) {
		t.Error("a turn is taken by its instance, once")
	}
}

func TestElections(t *testing.T) {
	clock := baton.SystemClock()
	e := newElections(clock)
	lease := func(term baton.Term, instance string, left time.Duration) baton.Lease {
		return baton.Lease{Group: "g", Term: term, NodeID: "n", InstanceID: instance, Remaining: left}
	}
	granted := func(l baton.Lease) (elected, bool) { return e.granted(l, clock.Now()) }
	if _, isNew := granted(lease(1, "a", time.Hour)); !isNew {
		t.Error("the first is new")
	}
	if out, isNew := granted(lease(1, "a", time.Hour)); isNew || out.splitBrain {
		t.Errorf("a repeated answer: %+v, %v", out, isNew)
	}
	if out, _ := granted(lease(1, "b", time.Hour)); !out.splitBrain {
		t.Error("one term for two instances was not noticed")
	}
	e.ended("g", 7, baton.Resigned) // not this one
	if out, isNew := granted(lease(2, "c", 0)); !isNew || out.leaderlessKnown {
		t.Errorf("ended elsewhere: %+v, %v", out, isNew)
	}
	if out, isNew := granted(lease(3, "d", time.Hour)); !isNew || out.why != "EXPIRED" || !out.leaderlessKnown {
		t.Errorf("expired: %+v, %v", out, isNew)
	}
	e.ended("g", 3, baton.Transferred)
	if out, _ := granted(lease(4, "e", time.Hour)); out.why != "TRANSFERRED" || !out.leaderlessKnown {
		t.Errorf("ended here: %+v", out)
	}
	if _, isNew := granted(lease(3, "d", time.Hour)); isNew {
		t.Error("an answer that was overtaken counts as new")
	}
}
