package bound

import (
	"fmt"
	"maps"
	"time"

	"baton"
)

// State is a group at one moment.
type State struct {
	Group  string
	Record Record
	// Bound: what the record is bound to is there.
	Bound   bool
	Counter baton.Term // the last term; 0 if the group was never led
	Floor   baton.Term // that new groups start above
	Line    []Place    // in the order in which the places were taken
}

// Held reports whether somebody leads. A leadership that nothing is bound to is over.
func (st *State) Held() bool { return st.Record.Holder != nil && st.Bound }

// Lapsed: the lease ran out, and nobody has written that down yet.
func (st *State) Lapsed() bool { return st.Record.Holder != nil && !st.Bound }

// HeldBy reports whether c leads.
func (st *State) HeldBy(c baton.Candidate) bool {
	return st.Held() && st.Record.Holder.is(c.NodeID, c.InstanceID)
}

// Leads reports whether exactly this leadership stands.
func (st *State) Leads(id baton.LeaseID) bool {
	return st.HeldIn(id.Term) && st.Record.Holder.is(id.NodeID, id.InstanceID)
}

// HeldIn reports whether somebody leads in this term.
func (st *State) HeldIn(term baton.Term) bool { return st.Held() && st.Record.Holder.Term == term }

// Last is the last term; of a group that was never led the floor.
func (st *State) Last() baton.Term {
	last := st.Counter
	if h := st.Record.Holder; h != nil {
		last = max(last, h.Term)
	}
	if p := st.Record.Last; p != nil {
		last = max(last, p.Term)
	}
	if last == 0 {
		return st.Floor
	}
	return last
}

// Used is the term that the next one must exceed, also if the group is deleted first.
func (st *State) Used() baton.Term { return max(st.Last(), st.Floor) }

// Lease is the state as a lease, without what is left of it.
func (st *State) Lease() baton.Lease {
	if st.Held() {
		return st.Record.Holder.InGroup(st.Group)
	}
	return baton.Lease{Group: st.Group, Term: st.Last()}
}

// Refusal is why the group, as it is, is not for c; nil if it is. If that is
// because another leads, remaining adds to the lease what is left of it.
func (st *State) Refusal(c baton.Candidate, remaining func() (baton.Lease, error)) error {
	switch last := st.Record.Last; {
	case last != nil && last.Node == c.NodeID && last.Instance == c.InstanceID:
		return &baton.ConflictError{
			Reason:  baton.ConflictInstanceEnded,
			Message: fmt.Sprintf("instance %s of node %q has led group %q and its leadership ended: campaign with a new instance", c.InstanceID, c.NodeID, st.Group),
		}
	case st.Held():
		lease, err := remaining()
		if err != nil {
			return err
		}
		return &baton.HeldError{Lease: lease, RetryAfter: lease.Remaining}
	case st.Used() >= baton.MaxTerm:
		return &baton.ConflictError{
			Reason:  baton.ConflictTermsExhausted,
			Message: fmt.Sprintf("group %q has used up its terms: the last one is %d", st.Group, st.Used()),
		}
	}
	if left := st.turnLeft(c, stamp()); left > 0 {
		return &baton.HeldError{Lease: st.Lease(), RetryAfter: left}
	}
	return nil
}

// Granted is the record of a vacant group after c was made its holder.
func (st *State) Granted(c baton.Candidate, seconds int64) Record {
	return st.Record.grant(Holder{
		Term: st.Used() + 1, Node: c.NodeID, Instance: c.InstanceID, Metadata: c.Metadata,
		Seconds: seconds, Elected: stamp(),
	})
}

// Expired is the record after the lease that ran out was written down.
func (st *State) Expired() Record { return st.Record.over(baton.Expired, nil, stamp()) }

// Released is the record after the holder has resigned.
func (st *State) Released() Record { return st.Record.over(baton.Resigned, nil, stamp()) }

// Ended is the record after the leadership that stands was ended, or its holder
// was asked to go.
func (st *State) Ended(e baton.Ending) (Record, error) {
	if e.Successor != "" && !st.waits(e.Successor) {
		return Record{}, &baton.ConflictError{
			Reason:  baton.ConflictNotInLine,
			Message: fmt.Sprintf("node %q does not wait for group %q: it cannot succeed", e.Successor, st.Group),
		}
	}
	asked := &Ending{Reason: e.Reason, Note: e.Note, Successor: e.Successor}
	if e.Immediate {
		return st.Record.over(e.Reason, asked, stamp()), nil
	}
	next, h := st.Record, *st.Record.Holder
	h.Ending = asked
	next.Holder = &h
	return next, nil
}

// Event describes the state of a group.
func (st *State) Event() baton.Event {
	switch h, last := st.Record.Holder, st.Record.Last; {
	case st.Held():
		return baton.Event{
			Type: baton.LeaderChanged, Group: st.Group, Term: h.Term, NodeID: h.Node, InstanceID: h.Instance,
			Metadata: maps.Clone(h.Metadata), Time: time.UnixMilli(h.Elected),
		}
	case h != nil:
		return baton.Event{
			Type: baton.LeaderLost, Group: st.Group, Term: h.Term, PreviousNodeID: h.Node,
			Reason: baton.Expired, Time: time.Now(),
		}
	case last != nil:
		return last.Lost(st.Group)
	}
	return baton.Event{Type: baton.LeaderLost, Group: st.Group, Term: st.Last()}
}
