package api

import (
	"slices"

	"baton"
)

// Policy bounds what candidates may ask for. What is left out is the server's default.
type Policy struct {
	MinTTL     int64 `json:"min_ttl_ms,omitempty"`
	MaxTTL     int64 `json:"max_ttl_ms,omitempty"`
	RetryAfter int64 `json:"retry_after_ms,omitempty"`
}

// Group is a registration: the body of POST /v1/groups and PUT
// /v1/groups/{group}, and the answer of all that read one.
type Group struct {
	GroupID string `json:"group_id"`
	Policy  Policy `json:"policy"`
	// AllowedNodes may campaign; empty allows all.
	AllowedNodes []string `json:"allowed_nodes"`
	// Version, if given with a PUT, must be the current one, and 0 says that
	// the group is not registered yet. Without it a PUT replaces whatever is there.
	Version *uint64 `json:"version,omitempty"`
}

// GroupsResponse is the answer of GET /v1/groups.
type GroupsResponse struct {
	Groups []Group `json:"groups"`
}

// GroupOf shows g.
func GroupOf(g baton.Group) Group {
	v := g.Version
	return Group{
		GroupID: g.ID,
		Policy: Policy{
			MinTTL:     Millis(g.Policy.MinTTL),
			MaxTTL:     Millis(g.Policy.MaxTTL),
			RetryAfter: Millis(g.Policy.RetryAfter),
		},
		AllowedNodes: append([]string{}, g.AllowedNodes...),
		Version:      &v,
	}
}

// Group is the registration in the store's words. An absent version is 0.
func (g Group) Group() baton.Group {
	out := baton.Group{
		ID: g.GroupID,
		Policy: baton.Policy{
			MinTTL:     Duration(g.Policy.MinTTL),
			MaxTTL:     Duration(g.Policy.MaxTTL),
			RetryAfter: Duration(g.Policy.RetryAfter),
		},
		AllowedNodes: slices.Clone(g.AllowedNodes),
	}
	if g.Version != nil {
		out.Version = *g.Version
	}
	return out
}

// Member is a participant as one server has seen it.
type Member struct {
	NodeID     string `json:"node_id"`
	InstanceID string `json:"instance_id"`
	// Role is "leader" or "candidate".
	Role string `json:"role"`
	// LastSeen is when it last campaigned or renewed, by the server's wall clock.
	LastSeen int64             `json:"last_seen_ms"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// The roles of a member.
const (
	RoleLeader    = "leader"
	RoleCandidate = "candidate"
)

// MembersResponse is the answer of GET /v1/groups/{group}/members.
type MembersResponse struct {
	Members []Member `json:"members"`
}

// PastTerm is one line of a group's history.
type PastTerm struct {
	Term       uint64 `json:"term"`
	NodeID     string `json:"node_id"`
	InstanceID string `json:"instance_id"`
	ElectedAt  int64  `json:"elected_at_ms"`
	// EndedAt and Reason are absent while the leadership stands.
	EndedAt int64  `json:"ended_at_ms,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Note    string `json:"note,omitempty"`
	// Gap is how long the group had no leader before this one.
	Gap int64 `json:"leaderless_ms"`
}

// HistoryResponse is the answer of GET /v1/groups/{group}/history, oldest first.
type HistoryResponse struct {
	Terms []PastTerm `json:"terms"`
}

// HistoryOf shows a history.
func HistoryOf(terms []baton.PastTerm) HistoryResponse {
	out := HistoryResponse{Terms: make([]PastTerm, 0, len(terms))}
	for _, t := range terms {
		out.Terms = append(out.Terms, PastTerm{
			Term: uint64(t.Term), NodeID: t.NodeID, InstanceID: t.InstanceID,
			ElectedAt: stamp(t.ElectedAt), EndedAt: stamp(t.EndedAt),
			Reason: string(t.Reason), Note: t.Note, Gap: Millis(t.Gap),
		})
	}
	return out
}

// History is the answer in the store's words.
func (r HistoryResponse) History() []baton.PastTerm {
	out := make([]baton.PastTerm, 0, len(r.Terms))
	for _, t := range r.Terms {
		out = append(out, baton.PastTerm{
			Term: baton.Term(t.Term), NodeID: t.NodeID, InstanceID: t.InstanceID,
			ElectedAt: fromStamp(t.ElectedAt), EndedAt: fromStamp(t.EndedAt),
			Reason: baton.Reason(t.Reason), Note: t.Note, Gap: Duration(t.Gap),
		})
	}
	return out
}
