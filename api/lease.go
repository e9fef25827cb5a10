package api

import (
	"maps"
	"time"

	"baton"
)

// Leader is a lease as the wire shows it.
type Leader struct {
	NodeID     string `json:"node_id"`
	InstanceID string `json:"instance_id"`
	Term       uint64 `json:"term"`
	// LeaseExpiresAt is the server's wall clock, for people.
	LeaseExpiresAt int64             `json:"lease_expires_at_ms"`
	LeaseRemaining int64             `json:"lease_remaining_ms"`
	LeaseTTL       int64             `json:"lease_ttl_ms"`
	Metadata       map[string]string `json:"metadata,omitempty"`
	Ending         *Ending           `json:"ending,omitempty"`
}

// Ending tells the holder that its leadership is being ended.
type Ending struct {
	Reason    string `json:"reason"`
	Note      string `json:"note,omitempty"`
	Successor string `json:"successor,omitempty"`
}

// LeaderOf shows l, read at the wall time now; nil if the group is vacant.
func LeaderOf(l baton.Lease, now time.Time) *Leader {
	if !l.Held() {
		return nil
	}
	out := &Leader{
		NodeID:         l.NodeID,
		InstanceID:     l.InstanceID,
		Term:           uint64(l.Term),
		LeaseExpiresAt: now.Add(l.Remaining).UnixMilli(),
		LeaseRemaining: Millis(l.Remaining),
		LeaseTTL:       Millis(l.TTL),
		Metadata:       maps.Clone(l.Metadata),
	}
	if e := l.Ending; e != nil {
		out.Ending = &Ending{Reason: string(e.Reason), Note: e.Note, Successor: e.Successor}
	}
	return out
}

// Lease is what the server said of group. A nil Leader is a vacant group of unknown last term.
func (l *Leader) Lease(group string) baton.Lease {
	if l == nil {
		return baton.Lease{Group: group}
	}
	out := baton.Lease{
		Group:      group,
		Term:       baton.Term(l.Term),
		NodeID:     l.NodeID,
		InstanceID: l.InstanceID,
		Metadata:   maps.Clone(l.Metadata),
		TTL:        Duration(l.LeaseTTL),
		Remaining:  Duration(l.LeaseRemaining),
	}
	if e := l.Ending; e != nil {
		out.Ending = &baton.Ending{Reason: baton.Reason(e.Reason), Note: e.Note, Successor: e.Successor}
	}
	return out
}
