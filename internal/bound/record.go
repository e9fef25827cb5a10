package bound

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"baton"
)

// maxPast is how many terms that ended are remembered; with the present one a hundred.
const maxPast = 99

// Record is what the record key of a group holds. Stamps are unix ms of
// whoever wrote them, for people.
type Record struct {
	Holder *Holder `json:"holder,omitempty"`
	// Last is the leadership that ended last.
	Last *Past `json:"last,omitempty"`
	// Successor is the node that the last ending named. It is kept until the next grant.
	Successor string `json:"successor,omitempty"`
	// Ended counts the leaderships that ended. It chooses the slot of the ring.
	Ended int `json:"ended"`
}

// Holder is who leads.
type Holder struct {
	Term     baton.Term        `json:"term"`
	Node     string            `json:"node"`
	Instance string            `json:"instance"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Seconds  int64             `json:"ttl_s"` // as the server granted it
	// Lease is the server's name of what the record is bound to, where a key
	// apart is; "" where the server tells that with the record.
	Lease   string  `json:"lease,omitempty"`
	Elected int64   `json:"elected_ms"`
	Gap     int64   `json:"gap_ms"`
	Ending  *Ending `json:"ending,omitempty"`
}

// Ending is a gentle ending under way.
type Ending struct {
	Reason    baton.Reason `json:"reason"`
	Note      string       `json:"note,omitempty"`
	Successor string       `json:"successor,omitempty"`
}

// Past is a leadership that ended. It has all that its two events tell.
type Past struct {
	Term     baton.Term `json:"term"`
	Node     string     `json:"node"`
	Instance string     `json:"instance"`
	// Metadata is what only stores write down that make up events from the ring.
	Metadata map[string]string `json:"metadata,omitempty"`
	Elected  int64             `json:"elected_ms"`
	Ended    int64             `json:"ended_ms"`
	Gap      int64             `json:"gap_ms"`
	Reason   baton.Reason      `json:"reason"`
	Note     string            `json:"note,omitempty"`
}

func (h *Holder) is(nodeID, instanceID string) bool {
	return h.Node == nodeID && h.Instance == instanceID
}

// TTL is how long the lease lasts from its grant or a renewal.
func (h *Holder) TTL() time.Duration { return time.Duration(h.Seconds) * time.Second }

// InGroup is the lease that the holder has, without what is left of it.
func (h *Holder) InGroup(group string) baton.Lease {
	l := baton.Lease{
		Group: group, Term: h.Term, NodeID: h.Node, InstanceID: h.Instance,
		Metadata: maps.Clone(h.Metadata), TTL: h.TTL(),
	}
	if e := h.Ending; e != nil {
		l.Ending = &baton.Ending{Reason: e.Reason, Note: e.Note, Successor: e.Successor}
	}
	return l
}

// grant makes h the holder of a vacant group. Stamps of several machines may
// run backwards: a gap that would be negative counts as none.
func (r Record) grant(h Holder) Record {
	if r.Last != nil {
		h.Gap = max(0, h.Elected-r.Last.Ended)
	}
	r.Holder, r.Successor = &h, ""
	return r
}

// over ends the present leadership: at once if e is given, else with the reason
// of the ending that was asked for, or this one.
func (r Record) over(reason baton.Reason, e *Ending, now int64) Record {
	h := r.Holder
	note, successor := "", ""
	if e == nil {
		e = h.Ending
	}
	if e != nil {
		note, successor = e.Note, e.Successor
		if reason != baton.Expired {
			reason = e.Reason
		}
	}
	r.Last = &Past{
		Term: h.Term, Node: h.Node, Instance: h.Instance, Metadata: h.Metadata, Elected: h.Elected,
		Ended: max(now, h.Elected), Gap: h.Gap, Reason: reason, Note: note,
	}
	r.Holder, r.Successor = nil, successor
	r.Ended++
	return r
}

// slot is the place in the ring of the leadership that ended last.
func (r Record) slot() int { return (r.Ended - 1) % maxPast }

// History is the last terms of a group, oldest first, of which past are those
// that ended.
func (r Record) History(past []Past) []baton.PastTerm {
	var history []baton.PastTerm
	for _, p := range past {
		history = append(history, baton.PastTerm{
			Term: p.Term, NodeID: p.Node, InstanceID: p.Instance,
			ElectedAt: time.UnixMilli(p.Elected), EndedAt: time.UnixMilli(p.Ended),
			Reason: p.Reason, Note: p.Note, Gap: time.Duration(p.Gap) * time.Millisecond,
		})
	}
	slices.SortFunc(history, func(a, b baton.PastTerm) int { return cmp.Compare(a.Term, b.Term) })
	if h := r.Holder; h != nil {
		history = append(history, baton.PastTerm{
			Term: h.Term, NodeID: h.Node, InstanceID: h.Instance,
			ElectedAt: time.UnixMilli(h.Elected), Gap: time.Duration(h.Gap) * time.Millisecond,
		})
	}
	return history
}

// Began is the event that told of the beginning of this leadership.
func (p Past) Began(group string) baton.Event {
	return baton.Event{
		Type: baton.LeaderChanged, Group: group, Term: p.Term, NodeID: p.Node, InstanceID: p.Instance,
		Metadata: maps.Clone(p.Metadata), Time: time.UnixMilli(p.Elected),
	}
}

// Lost is the event that told of its end.
func (p Past) Lost(group string) baton.Event {
	return baton.Event{
		Type: baton.LeaderLost, Group: group, Term: p.Term, PreviousNodeID: p.Node,
		Reason: p.Reason, Time: time.UnixMilli(p.Ended),
	}
}

// Seconds rounds up, as these servers have whole ones.
func Seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// stamp is the wall clock, for the history and for people.
func stamp() int64 { return time.Now().UnixMilli() }
