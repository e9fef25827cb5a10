package leasefsm

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"baton"
)

// TestRecordProperties plays random commands, most of them about to hit
// something, to a record and to a replica that sees only the encodings, and
// restarts either from a snapshot now and then.
func TestRecordProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{
			record:  NewRecord(),
			replica: NewRecord(),
			highest: map[string]baton.Term{},
			leads:   map[string]baton.Term{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"command": func(t *rapid.T) { w.step(t, drawCommand(t, w.record)) },
			"many terms": func(t *rapid.T) {
				g := drawGroup(t)
				for range rapid.IntRange(1, 60).Draw(t, "terms") {
					w.step(t, Acquire{Group: g, Candidate: drawCandidate(t), TTL: time.Second, Stamp: drawStamp(t)})
					w.step(t, Expire{Group: g, Term: w.record.Get(g).Term, Stamp: drawStamp(t)})
				}
			},
			"restart": func(t *rapid.T) { w.record = restore(t, w.record) },
			"restart the replica": func(t *rapid.T) {
				w.replica = restore(t, w.replica)
			},
			"": w.check,
		})
	})
}

// world is the record with a model of what was ever promised. The model knows
// nothing of floors, deletions and restarts: a promise outlives them.
type world struct {
	record, replica *Record
	highest         map[string]baton.Term // the highest term ever granted
	leads           map[string]baton.Term // the term that leads, by the events; absent if none
}

func (w *world) step(t *rapid.T, c Command) {
	before := w.record.Snapshot()
	group, term, exact := names(c)
	current, held := w.leads[group]
	result := w.record.Apply(c)

	if result.Err != nil {
		if !baton.IsAnswer(result.Err) {
			t.Fatalf("%#v: %v is not an answer", c, result.Err)
		}
		if !bytes.Equal(before, w.record.Snapshot()) {
			t.Fatalf("%#v was refused with %q and changed the record", c, result.Err)
		}
		if len(result.Events) > 0 || result.Granted {
			t.Fatalf("%#v was refused with effects: %+v", c, result)
		}
	}
	if exact && (!held || term != current) && !refusedFor(result.Err) {
		t.Fatalf("%#v got %v, and the term that leads is %d", c, result.Err, current)
	}
	for _, e := range result.Events {
		w.happened(t, c, e)
	}
	if result.Granted && w.leads[result.Lease.Group] != result.Lease.Term {
		t.Fatalf("%#v granted term %d without an event", c, result.Lease.Term)
	}

	decoded, err := DecodeCommand(AppendCommand(nil, c))
	if err != nil {
		t.Fatalf("%#v does not survive its encoding: %v", c, err)
	}
	again := w.replica.Apply(decoded)
	if (again.Err == nil) != (result.Err == nil) || again.Granted != result.Granted {
		t.Fatalf("%#v: the replica answers %+v, the record %+v", c, again, result)
	}
}

func (w *world) happened(t *rapid.T, c Command, e baton.Event) {
	leads, held := w.leads[e.Group]
	switch e.Type {
	case baton.LeaderChanged:
		if held {
			t.Fatalf("%#v: term %d begins while %d leads", c, e.Term, leads)
		}
		if e.Term <= w.highest[e.Group] || e.Term > baton.MaxTerm {
			t.Fatalf("%#v: term %d after %d", c, e.Term, w.highest[e.Group])
		}
		w.leads[e.Group], w.highest[e.Group] = e.Term, e.Term
	case baton.LeaderLost:
		if !held || leads != e.Term {
			t.Fatalf("%#v: term %d ends while %d leads (%v)", c, e.Term, leads, held)
		}
		delete(w.leads, e.Group)
	default:
		t.Fatalf("%#v: event %+v", c, e)
	}
}

func (w *world) check(t *rapid.T) {
	if w.record.Hash() != w.replica.Hash() {
		t.Fatal("the replica differs")
	}
	for _, g := range groups {
		l := w.record.Get(g)
		if term, held := w.leads[g]; held != l.Held() || held && term != l.Term {
			t.Fatalf("%s reads %+v, and by the events term %d leads (%v)", g, l, term, held)
		}
		if l.Term < w.highest[g] {
			t.Fatalf("%s reads term %d after %d", g, l.Term, w.highest[g])
		}
		w.checkHistory(t, g, l)
	}
	held := 0
	for l := range w.record.Leases() {
		held++
		if w.leads[l.Group] != l.Term {
			t.Fatalf("lease %+v, and by the events term %d leads", l, w.leads[l.Group])
		}
	}
	if held != len(w.leads) {
		t.Fatalf("%d leases, and by the events %d", held, len(w.leads))
	}
}

func (w *world) checkHistory(t *rapid.T, group string, l baton.Lease) {
	history := w.record.History(group)
	if len(history) > MaxHistory {
		t.Fatalf("%s remembers %d terms", group, len(history))
	}
	last := baton.Term(0)
	for i, p := range history {
		stands := i == len(history)-1 && l.Held()
		if p.Term <= last || p.Gap < 0 || stands != p.EndedAt.IsZero() || stands != (p.Reason == "") || !stands && p.EndedAt.Before(p.ElectedAt) {
			t.Fatalf("%s has history %+v", group, history)
		}
		last = p.Term
	}
	if len(history) > 0 && last != l.Term {
		t.Fatalf("%s reads term %d, and its history ends with %d", group, l.Term, last)
	}
}

func restore(t *rapid.T, r *Record) *Record {
	snapshot := r.Snapshot()
	restored, err := Restore(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(snapshot, restored.Snapshot()) {
		t.Fatal("a snapshot of the restored record differs")
	}
	// What a snapshot leaves out, its hash cannot show. Which copies were made is not part of it.
	restored.gen = r.gen
	for id, g := range r.groups {
		restored.groups[id].changed = g.changed
	}
	if !reflect.DeepEqual(r, restored) {
		t.Fatalf("restored %+v from %+v", restored, r)
	}
	return restored
}

// names tells which term a command names exactly, if it does.
func names(c Command) (group string, term baton.Term, exact bool) {
	switch c := c.(type) {
	case Extend:
		return c.ID.Group, c.ID.Term, true
	case Release:
		return c.ID.Group, c.ID.Term, true
	case Expire:
		return c.Group, c.Term, true
	case End:
		return c.Group, c.Term, true
	}
	return "", 0, false
}

func refusedFor(err error) bool {
	return errors.Is(err, baton.ErrNotLeader) || errors.Is(err, baton.ErrInvalidTTL) || errors.Is(err, baton.ErrInvalidArgument)
}

var groups = []string{"g", "h"}

func drawGroup(t *rapid.T) string { return rapid.SampledFrom(groups).Draw(t, "group") }

func drawCandidate(t *rapid.T) baton.Candidate {
	c := baton.Candidate{
		NodeID:     rapid.SampledFrom([]string{"a", "b"}).Draw(t, "node"),
		InstanceID: rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "instance"),
	}
	if rapid.Bool().Draw(t, "has metadata") {
		c.Metadata = map[string]string{"zone": "eu", "rack": c.InstanceID, "": ""}
	}
	return c
}

// drawStamp draws the wall clocks of servers that agree on nothing.
func drawStamp(t *rapid.T) int64 {
	return rapid.OneOf(
		rapid.Int64Range(0, 1000),
		rapid.SampledFrom([]int64{math.MinInt64, -1, math.MaxInt64}),
	).Draw(t, "stamp")
}

func drawTTL(t *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{-1, 0, 1, time.Second, time.Minute, baton.MaxTTL, baton.MaxTTL + 1}).Draw(t, "ttl")
}

func drawCommand(t *rapid.T, r *Record) Command {
	group := drawGroup(t)
	l := r.Get(group)
	// Mostly the term that leads, else one nearby: the past and the future.
	term := l.Term
	if rapid.IntRange(0, 2).Draw(t, "another term") == 0 {
		term = baton.Term(rapid.Uint64Range(0, uint64(min(l.Term, baton.MaxTerm))+2).Draw(t, "term"))
	}
	id := l.ID()
	if !l.Held() || rapid.IntRange(0, 2).Draw(t, "another holder") == 0 {
		c := drawCandidate(t)
		id = baton.LeaseID{Group: group, NodeID: c.NodeID, InstanceID: c.InstanceID}
	}
	id.Term = term

	switch rapid.SampledFrom([]kind{
		kindAcquire, kindAcquire, kindAcquire, kindExtend, kindRelease, kindExpire,
		kindEnd, kindPutGroup, kindDeleteGroup, kindRaiseFloor,
	}).Draw(t, "kind") {
	case kindAcquire:
		return Acquire{Group: group, Candidate: drawCandidate(t), TTL: drawTTL(t), Stamp: drawStamp(t)}
	case kindExtend:
		return Extend{ID: id, TTL: drawTTL(t)}
	case kindRelease:
		return Release{ID: id, Stamp: drawStamp(t)}
	case kindExpire:
		return Expire{Group: group, Term: term, Stamp: drawStamp(t)}
	case kindEnd:
		return End{Group: group, Term: term, Stamp: drawStamp(t), Ending: baton.Ending{
			Reason:    rapid.SampledFrom([]baton.Reason{baton.SteppedDown, baton.Transferred, baton.Expired}).Draw(t, "reason"),
			Note:      rapid.StringN(0, 5, -1).Draw(t, "note"),
			Successor: rapid.SampledFrom([]string{"", "a"}).Draw(t, "successor"),
			Immediate: rapid.Bool().Draw(t, "immediate"),
		}}
	case kindPutGroup:
		g, _ := r.Group(group)
		g.ID = group
		if rapid.IntRange(0, 2).Draw(t, "another version") == 0 {
			g.Version = rapid.Uint64Range(0, 9).Draw(t, "version")
		}
		g.AllowedNodes = rapid.SampledFrom([][]string{nil, {}, {"a"}, {"b", "a"}}).Draw(t, "allowed")
		return PutGroup{Group: g}
	case kindDeleteGroup:
		return DeleteGroup{ID: group}
	default:
		return RaiseFloor{Term: baton.Term(rapid.OneOf(
			rapid.Uint64Range(0, 2000),
			rapid.Uint64Range(uint64(baton.MaxTerm)-3, uint64(baton.MaxTerm)+1),
		).Draw(t, "floor"))}
	}
}
