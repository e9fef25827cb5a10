package consulstore

import (
	"maps"
	"time"

	"baton"
)

// maxPast is how many terms that ended are remembered; with the present one a hundred.
const maxPast = 99

// record is what the lease key of a group holds. Stamps are unix ms of
// whoever wrote them, for people.
type record struct {
	Holder *holder `json:"holder,omitempty"`
	// Last is the leadership that ended last.
	Last *past `json:"last,omitempty"`
	// Successor is the node that the last ending named. It is kept until the next grant.
	Successor string `json:"successor,omitempty"`
	// Ended counts the leaderships that ended. It chooses the slot of the ring.
	Ended int `json:"ended"`
}

type holder struct {
	Term     baton.Term        `json:"term"`
	Node     string            `json:"node"`
	Instance string            `json:"instance"`
	Metadata map[string]string `json:"metadata,omitempty"`
	TTL      int64             `json:"ttl_s"`
	Elected  int64             `json:"elected_ms"`
	Gap      int64             `json:"gap_ms"`
	Ending   *ending           `json:"ending,omitempty"`
}

type ending struct {
	Reason    baton.Reason `json:"reason"`
	Note      string       `json:"note,omitempty"`
	Successor string       `json:"successor,omitempty"`
}

// past is a leadership that ended. It has all that its two events tell.
type past struct {
	Term     baton.Term        `json:"term"`
	Node     string            `json:"node"`
	Instance string            `json:"instance"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Elected  int64             `json:"elected_ms"`
	Ended    int64             `json:"ended_ms"`
	Gap      int64             `json:"gap_ms"`
	Reason   baton.Reason      `json:"reason"`
	Note     string            `json:"note,omitempty"`
}

func (h *holder) is(nodeID, instanceID string) bool {
	return h.Node == nodeID && h.Instance == instanceID
}

func (h *holder) ttl() time.Duration { return time.Duration(h.TTL) * time.Second }

func (h *holder) lease(group string) baton.Lease {
	l := baton.Lease{
		Group: group, Term: h.Term, NodeID: h.Node, InstanceID: h.Instance,
		Metadata: maps.Clone(h.Metadata), TTL: h.ttl(),
	}
	if e := h.Ending; e != nil {
		l.Ending = &baton.Ending{Reason: e.Reason, Note: e.Note, Successor: e.Successor}
	}
	return l
}

// grant makes h the holder of a vacant group. Stamps of several machines may
// run backwards: a gap that would be negative counts as none.
func (r record) grant(h holder) record {
	if r.Last != nil {
		h.Gap = max(0, h.Elected-r.Last.Ended)
	}
	r.Holder, r.Successor = &h, ""
	return r
}

// over ends the present leadership: at once if e is given, else with the reason
// of the ending that was asked for, or this one.
func (r record) over(reason baton.Reason, e *ending, now int64) record {
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
	r.Last = &past{
		Term: h.Term, Node: h.Node, Instance: h.Instance, Metadata: h.Metadata, Elected: h.Elected,
		Ended: max(now, h.Elected), Gap: h.Gap, Reason: reason, Note: note,
	}
	r.Holder, r.Successor = nil, successor
	r.Ended++
	return r
}

// slot is the place in the ring of the leadership that ended last.
func (r record) slot() int { return (r.Ended - 1) % maxPast }

func (p past) term() baton.PastTerm {
	return baton.PastTerm{
		Term: p.Term, NodeID: p.Node, InstanceID: p.Instance,
		ElectedAt: time.UnixMilli(p.Elected), EndedAt: time.UnixMilli(p.Ended),
		Reason: p.Reason, Note: p.Note, Gap: time.Duration(p.Gap) * time.Millisecond,
	}
}

func (h *holder) term() baton.PastTerm {
	return baton.PastTerm{
		Term: h.Term, NodeID: h.Node, InstanceID: h.Instance,
		ElectedAt: time.UnixMilli(h.Elected), Gap: time.Duration(h.Gap) * time.Millisecond,
	}
}

// seconds rounds up, as Consul has whole ones.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// stamp is the wall clock, for the history and for people.
func stamp() int64 { return time.Now().UnixMilli() }
