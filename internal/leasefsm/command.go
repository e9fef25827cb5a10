package leasefsm

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"baton"
)

// Command is a change of the record: one of the types of this package. Stamps
// are unix ms of the proposer's wall clock; the history and the events carry
// them, and nothing is decided by them.
type Command interface {
	// apply changes r or, when the Result has an error, leaves it as it is.
	apply(r *Record) Result
	// about is the group that it is about; "" if it is about none.
	about() string
	kind() kind
	appendTo(b []byte) []byte
}

// Result is what a command came to.
type Result struct {
	// Lease is the state of the group afterwards, for commands about a
	// lease that were not refused. Remaining is not filled in.
	Lease baton.Lease
	// Granted: the command began a new term, whose deadline is to be armed.
	Granted bool
	// Group is what PutGroup registered.
	Group baton.Group
	// Events are what watchers are to be told, without cursors.
	Events []baton.Event
	// Err is an answer: of the root package's kinds, and nothing was changed.
	Err error
}

// Acquire grants a vacant group, with a term above all before it. The holder
// asking again gets its lease, extended as by Extend.
type Acquire struct {
	Group     string
	Candidate baton.Candidate
	TTL       time.Duration
	Stamp     int64
}

// Extend raises the TTL of exactly this leadership for good. It never lowers
// it, and leaves a lease that is being ended as it is.
type Extend struct {
	ID  baton.LeaseID
	TTL time.Duration
}

// Release ends exactly this leadership, with the reason of its ending if it has one.
type Release struct {
	ID    baton.LeaseID
	Stamp int64
}

// Expire ends the leadership of exactly this term because its deadline has passed.
type Expire struct {
	Group string
	Term  baton.Term
	Stamp int64
}

// End ends the leadership of exactly this term at once, or, if the ending is a
// gentle one, marks it. A mark replaces the one before it.
type End struct {
	Group  string
	Term   baton.Term
	Ending baton.Ending
	Stamp  int64
}

// PutGroup registers a group if its version is the current one.
type PutGroup struct {
	Group baton.Group
}

// DeleteGroup forgets a vacant group and raises the floor to its last term.
// The instance whose leadership ended last is forgotten with it.
type DeleteGroup struct {
	ID string
}

// RaiseFloor lets every grant from now on exceed Term. It never lowers the floor.
type RaiseFloor struct {
	Term baton.Term
}

// Apply carries out one command. The same commands in the same order make the
// same record, whoever applies them and whenever.
func (r *Record) Apply(c Command) Result {
	if len(r.copies) == 0 {
		return c.apply(r)
	}
	r.preserve(c.about())
	result := c.apply(r)
	if g := r.groups[c.about()]; g != nil {
		g.changed = r.gen
	}
	return result
}

func (c Acquire) apply(r *Record) Result {
	if err := require("group", c.Group, "node_id", c.Candidate.NodeID, "instance_id", c.Candidate.InstanceID); err != nil {
		return refuse(err)
	}
	if err := requireTTL("ttl", c.TTL); err != nil {
		return refuse(err)
	}
	if err := r.Refusal(c.Group, c.Candidate); err != nil {
		return refuse(err)
	}
	g := r.groups[c.Group]
	if g != nil && g.holder != nil {
		g.holder.extend(c.TTL)
		return Result{Lease: r.Get(c.Group)}
	}
	last := r.termBelow(g)
	if g == nil {
		g = &group{}
		r.groups[c.Group] = g
	}
	r.held++
	g.grant(holder{
		term:       last + 1,
		nodeID:     c.Candidate.NodeID,
		instanceID: c.Candidate.InstanceID,
		metadata:   cloneMetadata(c.Candidate.Metadata),
		ttl:        c.TTL,
		elected:    max(0, c.Stamp),
	})
	return Result{Lease: r.Get(c.Group), Granted: true, Events: []baton.Event{g.elected(c.Group)}}
}

// Refusal is why the record, as it is, would refuse the group to c. It is nil if c would
// be granted it, or holds it.
func (r *Record) Refusal(id string, c baton.Candidate) error {
	g := r.groups[id]
	switch {
	case g != nil && g.holder != nil && g.holder.is(c.NodeID, c.InstanceID):
		return nil
	case g != nil && g.endedLast(c):
		return &baton.ConflictError{
			Reason:  baton.ConflictInstanceEnded,
			Message: fmt.Sprintf("instance %s of node %q has led group %q and its leadership ended: campaign with a new instance", c.InstanceID, c.NodeID, id),
		}
	case g != nil && g.holder != nil:
		return &baton.HeldError{Lease: r.Get(id)}
	case r.termBelow(g) >= baton.MaxTerm:
		return &baton.ConflictError{
			Reason:  baton.ConflictTermsExhausted,
			Message: fmt.Sprintf("group %q has used up its terms: the last one is %d", id, r.termBelow(g)),
		}
	}
	return nil
}

// termBelow is what the next term of a group exceeds by one.
func (r *Record) termBelow(g *group) baton.Term {
	if g == nil {
		return r.floor
	}
	return max(r.floor, g.lastTerm())
}

func (h *holder) extend(ttl time.Duration) {
	if h.ending == nil {
		h.ttl = max(h.ttl, ttl)
	}
}

func (c Extend) apply(r *Record) Result {
	if err := requireTTL("extend", c.TTL); err != nil {
		return refuse(err)
	}
	g := r.leads(c.ID)
	if g == nil {
		return refuse(r.notLeader(c.ID))
	}
	g.holder.extend(c.TTL)
	return Result{Lease: r.Get(c.ID.Group)}
}

func (c Release) apply(r *Record) Result {
	g := r.leads(c.ID)
	if g == nil {
		return refuse(r.notLeader(c.ID))
	}
	if e := g.holder.ending; e != nil {
		return r.end(c.ID.Group, e.Reason, e.Note, e.Successor, c.Stamp)
	}
	return r.end(c.ID.Group, baton.Resigned, "", "", c.Stamp)
}

func (c Expire) apply(r *Record) Result {
	g := r.groups[c.Group]
	if g == nil || g.holder == nil || g.holder.term != c.Term {
		return refuse(r.notLeader(baton.LeaseID{Group: c.Group, Term: c.Term}))
	}
	// A lease that ran out while it was being ended expired, but the operator's
	// note and wish for a successor still stand.
	if e := g.holder.ending; e != nil {
		return r.end(c.Group, baton.Expired, e.Note, e.Successor, c.Stamp)
	}
	return r.end(c.Group, baton.Expired, "", "", c.Stamp)
}

func (c End) apply(r *Record) Result {
	if err := requireEnding(c.Ending); err != nil {
		return refuse(err)
	}
	g := r.groups[c.Group]
	if g == nil || g.holder == nil || g.holder.term != c.Term {
		return refuse(r.notLeader(baton.LeaseID{Group: c.Group, Term: c.Term}))
	}
	if c.Ending.Immediate {
		return r.end(c.Group, c.Ending.Reason, c.Ending.Note, c.Ending.Successor, c.Stamp)
	}
	e := c.Ending
	g.holder.ending = &e
	return Result{Lease: r.Get(c.Group)}
}

func (r *Record) end(id string, reason baton.Reason, note, successor string, stamp int64) Result {
	g := r.groups[id]
	r.held--
	g.end(reason, note, successor, max(0, stamp))
	return Result{Lease: r.Get(id), Events: []baton.Event{g.lost(id)}}
}

func (c PutGroup) apply(r *Record) Result {
	if err := require("group_id", c.Group.ID); err != nil {
		return refuse(err)
	}
	g := r.groups[c.Group.ID]
	current := uint64(0)
	if g != nil {
		current = g.version
	}
	if c.Group.Version != current {
		return refuse(&baton.ConflictError{
			Reason:  baton.ConflictVersion,
			Message: fmt.Sprintf("group %q is at version %d, not %d: read it again", c.Group.ID, current, c.Group.Version),
		})
	}
	if g == nil {
		g = &group{}
		r.groups[c.Group.ID] = g
	}
	r.version++
	g.version, g.policy, g.allowed = r.version, c.Group.Policy, cloneNodes(c.Group.AllowedNodes)
	registered, _ := r.Group(c.Group.ID)
	return Result{Group: registered}
}

func (c DeleteGroup) apply(r *Record) Result {
	g := r.groups[c.ID]
	switch {
	case g == nil:
		return refuse(fmt.Errorf("delete group %q: %w", c.ID, baton.ErrNotFound))
	case g.holder != nil:
		return refuse(&baton.ConflictError{
			Reason:  baton.ConflictHeld,
			Message: fmt.Sprintf("group %q is led by node %q in term %d: end that leadership first", c.ID, g.holder.nodeID, g.holder.term),
		})
	}
	r.floor = max(r.floor, g.lastTerm())
	delete(r.groups, c.ID)
	return Result{}
}

func (c RaiseFloor) apply(r *Record) Result {
	if c.Term > baton.MaxTerm {
		return refuse(&baton.InvalidArgumentError{Field: "floor", Value: c.Term, Want: fmt.Sprintf("at most %d", baton.MaxTerm)})
	}
	r.floor = max(r.floor, c.Term)
	return Result{}
}

func refuse(err error) Result { return Result{Err: err} }

// require takes pairs of a field and its value. An empty node id would read as
// vacant; the finer rules are the door's.
func require(fieldsAndValues ...string) error {
	for i := 0; i < len(fieldsAndValues); i += 2 {
		if fieldsAndValues[i+1] == "" {
			return &baton.InvalidArgumentError{Field: fieldsAndValues[i], Value: "", Want: "an id"}
		}
	}
	return nil
}

func requireTTL(field string, ttl time.Duration) error {
	if ttl <= 0 || ttl > baton.MaxTTL {
		return &baton.InvalidTTLError{Field: field, TTL: ttl, Min: 1, Max: baton.MaxTTL}
	}
	return nil
}

func requireEnding(e baton.Ending) error {
	if e.Reason != baton.SteppedDown && e.Reason != baton.Transferred {
		return &baton.InvalidArgumentError{Field: "reason", Value: string(e.Reason), Want: "STEPPED_DOWN or TRANSFERRED"}
	}
	return nil
}

// cloneMetadata and cloneNodes make nil of what is empty, so that a record and
// its restored copy are the same.
func cloneMetadata(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}

func cloneNodes(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return slices.Clone(list)
}
