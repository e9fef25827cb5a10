package observed

import (
	"maps"
	"time"

	"baton"
)

// MaxPast is how many leaderships that ended a register keeps at least; with the present one a hundred.
const MaxPast = 99

// Record is what a register keeps of a group. Stamps are unix ms of whoever
// wrote them, for people.
type Record struct {
	Holder *Holder `json:"holder,omitempty"`
	// Last is the leadership that ended last.
	Last *Past `json:"last,omitempty"`
	// Successor is the node that the last ending named. It is kept until the next grant.
	Successor string `json:"successor,omitempty"`
	// Term is the highest that was ever granted, or reserved for a grant.
	Term baton.Term `json:"term"`
	// Ended counts the leaderships that ended. It only rises.
	Ended uint64 `json:"ended"`
	// Forgotten is the value of Ended when the group was last deleted: what ended before is nobody's business.
	Forgotten uint64 `json:"forgotten,omitempty"`
	// Deleted: the group is not known any more. The record stays for its term.
	Deleted bool `json:"deleted,omitempty"`
}

// Holder is who leads.
type Holder struct {
	// Term is 0 for a foreign holder.
	Term     baton.Term        `json:"term"`
	Node     string            `json:"node"`
	Instance string            `json:"instance"`
	Metadata map[string]string `json:"metadata,omitempty"`
	TTL      time.Duration     `json:"ttl_ns"`
	// Beat is the id of the write that granted the lease or renewed it last. Time counts from its first sight.
	Beat    string  `json:"beat"`
	Elected int64   `json:"elected_ms"`
	Gap     int64   `json:"gap_ms"`
	Ending  *Ending `json:"ending,omitempty"`
}

// Ending is a gentle ending under way.
type Ending struct {
	Reason    baton.Reason `json:"reason"`
	Note      string       `json:"note,omitempty"`
	Successor string       `json:"successor,omitempty"`
	// By is the id of the write that asked for it.
	By string `json:"by"`
}

// Past is a leadership that has ended.
type Past struct {
	// N counts the leaderships of the group from 0.
	N        uint64       `json:"n"`
	Term     baton.Term   `json:"term"`
	Node     string       `json:"node"`
	Instance string       `json:"instance"`
	Elected  int64        `json:"elected_ms"`
	Ended    int64        `json:"ended_ms"`
	Gap      int64        `json:"gap_ms"`
	Reason   baton.Reason `json:"reason"`
	Note     string       `json:"note,omitempty"`
	// By is the id of the write that ended it.
	By string `json:"by"`
	// Asked is the id of the write that asked for that, if it was ended gently.
	Asked string `json:"asked,omitempty"`
}

func (h *Holder) is(nodeID, instanceID string) bool {
	return h.Node == nodeID && h.Instance == instanceID
}

func (r Record) heldBy(c baton.Candidate) bool {
	return r.Holder != nil && r.Holder.is(c.NodeID, c.InstanceID)
}

// leads reports whether exactly this leadership stands, as far as is recorded.
func (r Record) leads(id baton.LeaseID) bool {
	return r.Holder != nil && r.Holder.Term == id.Term && r.Holder.is(id.NodeID, id.InstanceID)
}

func (r Record) endedLast(c baton.Candidate) bool {
	return r.Last != nil && r.Last.Node == c.NodeID && r.Last.Instance == c.InstanceID
}

// Known reports whether the group exists by use.
func (r Record) Known() bool { return !r.Deleted && (r.Holder != nil || r.Ended > r.Forgotten) }

// grant makes c the holder, in the term above all before.
func (r Record) grant(c baton.Candidate, ttl time.Duration, beat string, now int64) Record {
	r.Term++
	h := &Holder{
		Term: r.Term, Node: c.NodeID, Instance: c.InstanceID, Metadata: maps.Clone(c.Metadata),
		TTL: ttl, Beat: beat, Elected: now,
	}
	if r.Last != nil {
		h.Gap = max(0, now-r.Last.Ended)
	}
	r.Holder, r.Successor, r.Deleted = h, "", false
	return r
}

// renew gives the lease another beat, and a longer TTL if that is asked for.
func (r Record) renew(ttl time.Duration, beat string) Record {
	h := *r.Holder
	h.TTL, h.Beat = max(h.TTL, ttl), beat
	r.Holder = &h
	return r
}

// ending asks the holder to go. Time counts on as it did.
func (r Record) ending(e Ending) Record {
	h := *r.Holder
	h.Ending = &e
	r.Holder = &h
	return r
}

// over ends the leadership for this reason, or the one of the ending that was asked for. A lease that ran
// out while it was being ended expired, but the note and the wish for a successor still stand.
func (r Record) over(reason baton.Reason, e *Ending, by string, now int64) Record {
	h := r.Holder
	if e == nil {
		e = h.Ending
	}
	r.Last = &Past{
		N: r.Ended, Term: h.Term, Node: h.Node, Instance: h.Instance, Elected: h.Elected,
		Ended: max(now, h.Elected), Gap: h.Gap, Reason: reason, By: by,
	}
	r.Holder, r.Successor = nil, ""
	if e != nil {
		r.Last.Note, r.Last.Asked, r.Successor = e.Note, e.By, e.Successor
		if reason != baton.Expired {
			r.Last.Reason = e.Reason
		}
	}
	r.Ended++
	return r
}

// Expire is the record after its leadership has run out and others, who do not
// write records, have taken the group since.
func (r Record) Expire(now int64) Record { return r.over(baton.Expired, nil, "", now) }

// Forget is the record of a vacant group after its deletion.
func (r Record) Forget() Record {
	return Record{Term: r.Term, Ended: r.Ended, Forgotten: r.Ended, Deleted: true}
}

// lease is the state as a lease, without what is left of it.
func (r Record) lease(group string) baton.Lease {
	h := r.Holder
	if h == nil {
		return baton.Lease{Group: group, Term: r.Term}
	}
	l := baton.Lease{
		Group: group, Term: h.Term, NodeID: h.Node, InstanceID: h.Instance,
		Metadata: maps.Clone(h.Metadata), TTL: h.TTL,
	}
	if e := h.Ending; e != nil {
		l.Ending = &baton.Ending{Reason: e.Reason, Note: e.Note, Successor: e.Successor}
	}
	return l
}

// position orders the changes of a group: each grant and each end is one step.
func (r Record) position() uint64 {
	if r.Holder != nil {
		return 2*r.Ended + 1
	}
	return 2 * r.Ended
}

func (p Past) term() baton.PastTerm {
	return baton.PastTerm{
		Term: p.Term, NodeID: p.Node, InstanceID: p.Instance,
		ElectedAt: time.UnixMilli(p.Elected), EndedAt: time.UnixMilli(p.Ended),
		Reason: p.Reason, Note: p.Note, Gap: time.Duration(p.Gap) * time.Millisecond,
	}
}

func (h *Holder) term() baton.PastTerm {
	return baton.PastTerm{
		Term: h.Term, NodeID: h.Node, InstanceID: h.Instance,
		ElectedAt: time.UnixMilli(h.Elected), Gap: time.Duration(h.Gap) * time.Millisecond,
	}
}

// stamp is the wall clock, for the history and for people.
func stamp() int64 { return time.Now().UnixMilli() }
