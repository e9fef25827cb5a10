package leasefsm

import (
	"iter"
	"maps"
	"slices"
	"time"

	"baton"
)

// Record is the replicated state of all groups. It is not safe for concurrent
// use. The zero Record is not ready; use [NewRecord] or [Restore].
type Record struct {
	// floor is the term that every grant exceeds. It remembers what deleted
	// groups used, so that they leave no tombstones.
	floor baton.Term
	// version is the last one given to any registration. Versions of a group
	// that was deleted and registered again do not repeat.
	version uint64
	groups  map[string]*group
	held    int // of the groups

	copies []*Copy // those under way
	gen    uint64  // of the latest copy
}

// group is what is known of one group, which exists because it is registered,
// or because it was led.
type group struct {
	holder *holder
	// past holds the ended terms, oldest first, at most MaxHistory.
	past []pastTerm
	// successor is the node that the last ending named. It is kept until the next grant.
	successor string
	// version is 0 for a group that exists by use alone.
	version uint64
	policy  baton.Policy
	allowed []string
	// changed is the Record.gen in which it was last changed while a copy was under way.
	changed uint64
}

type holder struct {
	term       baton.Term
	nodeID     string
	instanceID string
	metadata   map[string]string
	ttl        time.Duration
	elected    int64 // unix ms
	gap        int64 // ms without a leader before this term
	ending     *baton.Ending
}

func (h *holder) is(nodeID, instanceID string) bool {
	return h.nodeID == nodeID && h.instanceID == instanceID
}

// NewRecord is an empty record.
func NewRecord() *Record {
	return &Record{groups: make(map[string]*group)}
}

// Floor is the term that the first grant of an unknown group exceeds.
func (r *Record) Floor() baton.Term { return r.floor }

// HighestTerm is the highest that any group has reached; 0 if none was ever led.
func (r *Record) HighestTerm() (highest baton.Term) {
	for _, g := range r.groups {
		highest = max(highest, g.lastTerm())
	}
	return highest
}

// Held is how many groups are held.
func (r *Record) Held() int { return r.held }

// Get returns the state of a group. Remaining is 0: the record knows no clock.
func (r *Record) Get(id string) baton.Lease {
	g := r.groups[id]
	if g == nil || g.holder == nil {
		return baton.Lease{Group: id, Term: r.lastTerm(g)}
	}
	h := g.holder
	return baton.Lease{
		Group:      id,
		Term:       h.term,
		NodeID:     h.nodeID,
		InstanceID: h.instanceID,
		Metadata:   h.metadata,
		TTL:        h.ttl,
		Ending:     h.ending,
	}.Clone()
}

// Leadership returns the lease that id names exactly, or *baton.NotLeaderError
// with whoever leads now.
func (r *Record) Leadership(id baton.LeaseID) (baton.Lease, error) {
	if r.leads(id) == nil {
		return baton.Lease{}, r.notLeader(id)
	}
	return r.Get(id.Group), nil
}

// Leases yields every lease that is held, in no particular order. The record must not be
// changed meanwhile.
func (r *Record) Leases() iter.Seq[baton.Lease] {
	return func(yield func(baton.Lease) bool) {
		for id, g := range r.groups {
			if g.holder != nil && !yield(r.Get(id)) {
				return
			}
		}
	}
}

// Successor is the node that goes first in a vacant group, because the ending
// of the last leadership named it. It is a hint, and empty most of the time.
func (r *Record) Successor(id string) string {
	if g := r.groups[id]; g != nil && g.holder == nil {
		return g.successor
	}
	return ""
}

// Successors yields every vacant group for which one is named, in no particular order. The
// record must not be changed meanwhile.
func (r *Record) Successors() iter.Seq2[string, string] {
	return func(yield func(group, node string) bool) {
		for id, g := range r.groups {
			if g.holder == nil && g.successor != "" && !yield(id, g.successor) {
				return
			}
		}
	}
}

// State describes a group as an event, for a watch that begins. Its time is
// when the group came into this state.
func (r *Record) State(id string) baton.Event {
	g := r.groups[id]
	switch {
	case g != nil && g.holder != nil:
		return g.elected(id)
	case g != nil && len(g.past) > 0:
		return g.lost(id)
	}
	return baton.Event{Type: baton.LeaderLost, Group: id, Term: r.lastTerm(g)}
}

// Group returns what is registered of a group, and whether it exists.
func (r *Record) Group(id string) (baton.Group, bool) {
	g := r.groups[id]
	if g == nil {
		return baton.Group{}, false
	}
	return baton.Group{ID: id, Policy: g.policy, AllowedNodes: slices.Clone(g.allowed), Version: g.version}, true
}

// Groups lists all groups, ordered by id.
func (r *Record) Groups() []baton.Group {
	all := make([]baton.Group, 0, len(r.groups))
	for _, id := range r.ids() {
		g, _ := r.Group(id)
		all = append(all, g)
	}
	return all
}

func (r *Record) ids() []string { return slices.Sorted(maps.Keys(r.groups)) }

// lastTerm is the last term of a group, or the floor if it never had one.
func (r *Record) lastTerm(g *group) baton.Term {
	if g != nil {
		if last := g.lastTerm(); last != 0 {
			return last
		}
	}
	return r.floor
}

// lastTerm is 0 for a group that was never led.
func (g *group) lastTerm() baton.Term {
	switch {
	case g.holder != nil:
		return g.holder.term
	case len(g.past) > 0:
		return g.past[len(g.past)-1].term
	}
	return 0
}

// leads returns the group that is led by exactly id, or nil.
func (r *Record) leads(id baton.LeaseID) *group {
	g := r.groups[id.Group]
	if g == nil || g.holder == nil || g.holder.term != id.Term || !g.holder.is(id.NodeID, id.InstanceID) {
		return nil
	}
	return g
}

func (r *Record) notLeader(id baton.LeaseID) error {
	current := r.Get(id.Group)
	return &baton.NotLeaderError{ID: id, Current: &current}
}
