package leasefsm

import (
	"math"
	"time"

	"baton"
)

// MaxHistory is how many terms of a group are remembered, the present one included.
const MaxHistory = 100

// pastTerm is a leadership that has ended. Its times are unix ms.
type pastTerm struct {
	term       baton.Term
	nodeID     string
	instanceID string
	elected    int64
	ended      int64
	gap        int64
	reason     baton.Reason
	note       string
}

// grant makes h the holder. Wall clocks step, and differ between the servers
// that stamp, so a gap that would be negative counts as none.
func (g *group) grant(h holder) {
	if n := len(g.past); n > 0 {
		h.gap = max(0, h.elected-g.past[n-1].ended)
	}
	g.holder, g.successor = &h, ""
}

// end makes the group vacant. A leadership never ends before it began, whatever the stamps say.
func (g *group) end(reason baton.Reason, note, successor string, at int64) {
	h := g.holder
	if len(g.past) == MaxHistory {
		g.past = g.past[1:]
	}
	g.past = append(g.past, pastTerm{
		term:       h.term,
		nodeID:     h.nodeID,
		instanceID: h.instanceID,
		elected:    h.elected,
		ended:      max(h.elected, at),
		gap:        h.gap,
		reason:     reason,
		note:       note,
	})
	g.holder, g.successor = nil, successor
}

// endedLast reports whether this instance is the one whose leadership ended last.
func (g *group) endedLast(c baton.Candidate) bool {
	if len(g.past) == 0 {
		return false
	}
	last := &g.past[len(g.past)-1]
	return last.nodeID == c.NodeID && last.instanceID == c.InstanceID
}

// History returns the last terms of a group, oldest first, the one that still stands included.
func (r *Record) History(id string) []baton.PastTerm {
	g := r.groups[id]
	if g == nil {
		return nil
	}
	past := g.past
	if g.holder != nil && len(past) == MaxHistory {
		past = past[1:]
	}
	all := make([]baton.PastTerm, 0, len(past)+1)
	for _, p := range past {
		all = append(all, baton.PastTerm{
			Term:       p.term,
			NodeID:     p.nodeID,
			InstanceID: p.instanceID,
			ElectedAt:  time.UnixMilli(p.elected),
			EndedAt:    time.UnixMilli(p.ended),
			Reason:     p.reason,
			Note:       p.note,
			Gap:        millis(p.gap),
		})
	}
	if h := g.holder; h != nil {
		all = append(all, baton.PastTerm{
			Term:       h.term,
			NodeID:     h.nodeID,
			InstanceID: h.instanceID,
			ElectedAt:  time.UnixMilli(h.elected),
			Gap:        millis(h.gap),
		})
	}
	return all
}

// elected is the event that began the present term.
func (g *group) elected(id string) baton.Event {
	h := g.holder
	return baton.Event{
		Type:       baton.LeaderChanged,
		Group:      id,
		Term:       h.term,
		NodeID:     h.nodeID,
		InstanceID: h.instanceID,
		Metadata:   cloneMetadata(h.metadata),
		Time:       time.UnixMilli(h.elected),
	}
}

// lost is the event that ended the last term.
func (g *group) lost(id string) baton.Event {
	p := &g.past[len(g.past)-1]
	return baton.Event{
		Type:           baton.LeaderLost,
		Group:          id,
		Term:           p.term,
		PreviousNodeID: p.nodeID,
		Reason:         p.reason,
		Time:           time.UnixMilli(p.ended),
	}
}

// millis converts without overflow: a stamp may be any number.
func millis(ms int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(ms, most)) * time.Millisecond
}
