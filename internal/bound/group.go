package bound

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"baton"
)

// policy is what a policy key holds. The version of a group is that of its key.
type policy struct {
	MinTTL     int64    `json:"min_ttl_ns,omitempty"`
	MaxTTL     int64    `json:"max_ttl_ns,omitempty"`
	RetryAfter int64    `json:"retry_after_ns,omitempty"`
	Allowed    []string `json:"allowed_nodes,omitempty"`
	// Replaces is the version before, where a server does not take a value that
	// does not differ for a change.
	Replaces uint64 `json:"replaces,omitempty"`
}

// FormatGroup is what is written down of a group that is registered. replaces is
// its version until then, or 0 for a server that tells every write from the one before.
func FormatGroup(g baton.Group, replaces uint64) ([]byte, error) {
	return json.Marshal(policy{
		MinTTL: int64(g.Policy.MinTTL), MaxTTL: int64(g.Policy.MaxTTL), RetryAfter: int64(g.Policy.RetryAfter),
		Allowed: g.AllowedNodes, Replaces: replaces,
	})
}

// ReadGroup reads the policy key of a group.
func (k Keys) ReadGroup(e Entry) (baton.Group, error) {
	p, err := Read[policy](e)
	if err != nil {
		return baton.Group{}, err
	}
	return baton.Group{
		ID: strings.TrimPrefix(e.Key, k.Policies()),
		Policy: baton.Policy{
			MinTTL: time.Duration(p.MinTTL), MaxTTL: time.Duration(p.MaxTTL), RetryAfter: time.Duration(p.RetryAfter),
		},
		AllowedNodes: p.Allowed,
		Version:      e.Version,
	}, nil
}

// ReadGroups is the groups that were led or are registered, ordered by id, from
// what is below Terms and Policies.
func (k Keys) ReadGroups(terms, policies []Entry) ([]baton.Group, error) {
	groups := map[string]baton.Group{}
	for _, e := range terms {
		id := strings.TrimPrefix(e.Key, k.Terms())
		groups[id] = baton.Group{ID: id}
	}
	for _, e := range policies {
		g, err := k.ReadGroup(e)
		if err != nil {
			return nil, err
		}
		groups[g.ID] = g
	}
	all := make([]baton.Group, 0, len(groups))
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		all = append(all, groups[id])
	}
	return all, nil
}

// VersionConflict is the answer to who registers a group that has changed since it was read.
func VersionConflict(g baton.Group) error {
	return &baton.ConflictError{
		Reason:  baton.ConflictVersion,
		Message: fmt.Sprintf("group %q is not at version %d: read it again", g.ID, g.Version),
	}
}

// Undeletable is why the group cannot be deleted; nil if it can. known is
// whether there is a key of it.
func (st *State) Undeletable(known bool) error {
	switch h := st.Record.Holder; {
	case st.Held():
		return &baton.ConflictError{
			Reason:  baton.ConflictHeld,
			Message: fmt.Sprintf("group %q is led by node %q in term %d: end that leadership first", st.Group, h.Node, h.Term),
		}
	case !known:
		return fmt.Errorf("delete group %q: %w", st.Group, baton.ErrNotFound)
	}
	return nil
}
