package api

import "baton"

// CampaignRequest is the body of POST /v1/groups/{group}/campaign.
type CampaignRequest struct {
	NodeID string `json:"node_id"`
	// InstanceID names this campaign. Without it the server draws one, and a
	// repeated request is a new campaign. A place in line belongs to the instance, so
	// whoever waits, and may reach another server with its next call, names one.
	InstanceID string `json:"instance_id,omitempty"`
	// LeaseTTL may be left out only by a request that waits: then it takes a
	// place in line, or keeps it, and is never granted anything.
	LeaseTTL int64             `json:"lease_ttl_ms,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Wait is how long the call may wait in line for its turn. Servers wait no
	// longer than their own limit; the place is kept for the next call.
	Wait int64 `json:"wait_ms,omitempty"`
}

// Candidate is who campaigns.
func (r CampaignRequest) Candidate() baton.Candidate {
	return baton.Candidate{NodeID: r.NodeID, InstanceID: r.InstanceID, Metadata: r.Metadata}
}

// CampaignResponse answers a campaign. Losing is not an error.
type CampaignResponse struct {
	IsLeader bool `json:"is_leader"`
	// YourTurn: the group is open, or about to be, and the next campaign of
	// this instance is expected within a second.
	YourTurn bool `json:"your_turn,omitempty"`
	// Leader is who leads, null if nobody does. With YourTurn it is not told, and null.
	Leader *Leader `json:"leader"`
	// Term is the group's last one, when nobody leads and that was told.
	Term uint64 `json:"term,omitempty"`
	// InstanceID is the request's, or the one that the server drew.
	InstanceID string `json:"instance_id"`
	// RetryAfter is set, 0 included, whenever the caller does not lead.
	RetryAfter *int64 `json:"retry_after_ms,omitempty"`
}

// Lease is the outcome in the store's words: the lease that was won, or a
// *baton.HeldError. A turn is neither; look at YourTurn first.
func (r CampaignResponse) Lease(group string) (baton.Lease, error) {
	l := r.Leader.Lease(group)
	if r.IsLeader {
		return l, nil
	}
	if !l.Held() {
		l.Term = baton.Term(r.Term)
	}
	held := &baton.HeldError{Lease: l}
	if r.RetryAfter != nil {
		held.RetryAfter = Duration(*r.RetryAfter)
	}
	return baton.Lease{}, held
}

// RenewRequest is the body of POST /v1/groups/{group}/renew.
type RenewRequest struct {
	NodeID string `json:"node_id"`
	// InstanceID may be left out: node and term then name the leadership.
	InstanceID string `json:"instance_id,omitempty"`
	Term       uint64 `json:"term"`
	ExtendBy   int64  `json:"extend_by_ms"`
}

// LeaseID is the leadership to renew.
func (r RenewRequest) LeaseID(group string) baton.LeaseID {
	return baton.LeaseID{Group: group, NodeID: r.NodeID, InstanceID: r.InstanceID, Term: baton.Term(r.Term)}
}

// RenewResponse answers a renewal that was accepted. If leader.ending is set
// it was not extended: drain and resign.
type RenewResponse struct {
	OK     bool    `json:"ok"`
	Leader *Leader `json:"leader"`
}

// ResignRequest is the body of POST /v1/groups/{group}/resign.
type ResignRequest struct {
	NodeID     string `json:"node_id"`
	InstanceID string `json:"instance_id,omitempty"`
	Term       uint64 `json:"term"`
	// Successor goes first if it waits in line; if it does not, that is a
	// CONFLICT and the caller leads on.
	Successor string `json:"successor,omitempty"`
}

// LeaseID is the leadership to end.
func (r ResignRequest) LeaseID(group string) baton.LeaseID {
	return baton.LeaseID{Group: group, NodeID: r.NodeID, InstanceID: r.InstanceID, Term: baton.Term(r.Term)}
}

// OKResponse answers what has no other answer.
type OKResponse struct {
	OK bool `json:"ok"`
}

// LeaderResponse is the answer of GET /v1/groups/{group}/leader.
type LeaderResponse struct {
	Leader *Leader `json:"leader"`
	// Term is the leader's; of a vacant group, the last one there was.
	Term uint64 `json:"term"`
}

// Lease is the state of group.
func (r LeaderResponse) Lease(group string) baton.Lease {
	l := r.Leader.Lease(group)
	l.Term = baton.Term(r.Term)
	return l
}

// IsLeaderResponse is the answer of GET /v1/groups/{group}/is-leader/{node},
// with status 200 if it leads and 503 if not.
type IsLeaderResponse struct {
	IsLeader bool   `json:"is_leader"`
	Term     uint64 `json:"term"`
}

// StepDownRequest is the body of POST /v1/groups/{group}/step-down.
type StepDownRequest struct {
	// Term is which leadership to end; 0, the one that leads when the request arrives. With 0 a
	// copy of the request, such as a proxy may send, ends the successor, too.
	Term uint64 `json:"term,omitempty"`
	// Reason is why, in the operator's words, for the history and the audit log.
	Reason string `json:"reason"`
	// Immediate opens the group while the leader may still be working.
	Immediate bool   `json:"immediate,omitempty"`
	Successor string `json:"successor,omitempty"`
}

// Ending is what the store is asked for.
func (r StepDownRequest) Ending() baton.Ending {
	e := baton.Ending{Reason: baton.SteppedDown, Note: r.Reason, Successor: r.Successor, Immediate: r.Immediate}
	if r.Successor != "" {
		e.Reason = baton.Transferred
	}
	return e
}

// StepDownResponse names the leadership that was ended, or that is asked to end.
type StepDownResponse struct {
	OK     bool   `json:"ok"`
	Term   uint64 `json:"term"`
	NodeID string `json:"node_id"`
}
