package baton

import (
	"fmt"
	"maps"
	"time"
)

// Term is the fencing token of a group's leaderships. It rises by at least one
// with every grant and is never lowered or reused. Zero is no term: a
// group nobody has led yet.
type Term uint64

// MaxTerm is the highest term a store grants: every term is exact in a JSON
// number.
const MaxTerm Term = 1<<53 - 1

// MaxTTL bounds every lease, whatever a policy says. It is also how long a
// restored store must wait before it grants anything.
const MaxTTL = 10 * time.Minute

// Candidate is one campaign of a node.
type Candidate struct {
	// NodeID names the participant and stays the same over its restarts.
	NodeID string
	// InstanceID names this campaign. It is drawn anew for every campaign, so
	// that a repeated request is told from a new one, and a restarted process
	// from the one before it.
	InstanceID string
	// Metadata is shown to whoever reads the group. Baton does not interpret it.
	Metadata map[string]string
}

// LeaseID names one leadership exactly. Requests that carry it cannot touch any other.
type LeaseID struct {
	Group      string
	NodeID     string
	InstanceID string
	Term       Term
}

func (id LeaseID) String() string {
	return fmt.Sprintf("%s term %d of %s (%s)", id.Group, id.Term, id.NodeID, id.InstanceID)
}

// Lease is the state of a group as its store last told it: who holds it, for
// which term, for how long.
type Lease struct {
	Group string
	// Term is the holder's term; of a vacant group, the last one there was.
	Term Term
	// NodeID and InstanceID name the holder; both are empty when the group is vacant.
	NodeID     string
	InstanceID string
	Metadata   map[string]string
	// TTL is what the grant, or a later extension, recorded.
	TTL time.Duration
	// Remaining is what was left when the store answered. It is 0 for a lease
	// that is past its deadline and not yet recorded as ended. A holder must count it
	// from before it sent the request, never from when the answer came.
	Remaining time.Duration
	// Ending is set while the lease is being ended gently: renewals no longer
	// extend it, and its holder is expected to drain and release.
	Ending *Ending
}

// Held reports whether the group has a holder.
func (l Lease) Held() bool { return l.NodeID != "" }

// ID names the leadership that l describes.
func (l Lease) ID() LeaseID {
	return LeaseID{Group: l.Group, NodeID: l.NodeID, InstanceID: l.InstanceID, Term: l.Term}
}

// HeldBy reports whether l is held by exactly this campaign.
func (l Lease) HeldBy(c Candidate) bool {
	return l.Held() && l.NodeID == c.NodeID && l.InstanceID == c.InstanceID
}

// Clone returns a copy that shares nothing with l.
func (l Lease) Clone() Lease {
	l.Metadata = maps.Clone(l.Metadata)
	if l.Ending != nil {
		e := *l.Ending
		l.Ending = &e
	}
	return l
}

// Reason says why a leadership ended.
type Reason string

const (
	// Expired: the lease ran out.
	Expired Reason = "EXPIRED"
	// Resigned: the holder released it.
	Resigned Reason = "RESIGNED"
	// SteppedDown: an operator or a policy ended it.
	SteppedDown Reason = "STEPPED_DOWN"
	// Transferred: it was ended in favour of a named successor.
	Transferred Reason = "TRANSFERRED"
)

// Ending asks for a leadership to end.
type Ending struct {
	// Reason is SteppedDown or Transferred.
	Reason Reason
	// Note is what the operator wrote, for the history and the audit log.
	Note string
	// Successor is the node that goes first when the group opens, if it is in
	// line by then. It is required for Transferred.
	Successor string
	// Immediate opens the group at once, while the holder may still be
	// working: only fencing keeps the work safe then. Without it the holder
	// is told by its next renewal, drains, and releases.
	Immediate bool
}

// PastTerm is one line of a group's history.
type PastTerm struct {
	Term       Term
	NodeID     string
	InstanceID string
	// ElectedAt and EndedAt are wall-clock stamps of the store, for people.
	// EndedAt is zero for the leadership that still stands.
	ElectedAt time.Time
	EndedAt   time.Time
	// Reason is empty while the leadership stands.
	Reason Reason
	Note   string
	// Gap is how long the group had no leader before this one, 0 if this is the first.
	Gap time.Duration
}

// EventType tells what changed.
type EventType string

const (
	// LeaderChanged: the group has a leader, of this term.
	LeaderChanged EventType = "LEADER_CHANGED"
	// LeaderLost: the group has no leader; Event.Reason says why.
	LeaderLost EventType = "LEADER_LOST"
	// LeaderUnknown is yielded by [Elector.Observe] alone, while the store
	// cannot be asked; Event.Err says why. It takes nothing back: the last
	// leader may still lead.
	LeaderUnknown EventType = "LEADER_UNKNOWN"
)

// Cursor is a place in a group's stream of events. It is opaque, and foreign
// to every store but the one that made it.
type Cursor string

// Event is a change of a group's leadership, or its state when a watch begins.
type Event struct {
	Type  EventType
	Group string
	// Term is the term that began or ended. In the state of a group that has no leader it is the last term.
	Term Term
	// NodeID, InstanceID and Metadata describe the leader; empty when there is none.
	NodeID     string
	InstanceID string
	Metadata   map[string]string
	// PreviousNodeID is who led before, when the leader was lost.
	PreviousNodeID string
	// Reason says why there is no leader. It is empty if nobody ever led.
	Reason Reason
	// Gap marks a state that may not be the next change after the cursor that
	// was given: what happened between is no longer known.
	Gap bool
	// Time is the store's wall clock, for people.
	Time   time.Time
	Cursor Cursor
	// Err is set on LeaderUnknown only.
	Err error
}
