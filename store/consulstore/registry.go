package consulstore

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"baton"
)

// History returns the last terms of a group, oldest first.
func (s *Store) History(ctx context.Context, group string) ([]baton.PastTerm, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return nil, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	st, err := s.load(bounded, group, with{past: true})
	if err != nil {
		return nil, s.calls.Fail(ctx, "history", err)
	}
	var history []baton.PastTerm
	for _, p := range st.past {
		history = append(history, p.term())
	}
	if st.record.Holder != nil {
		history = append(history, st.record.Holder.term())
	}
	return history, nil
}

// policy is what a policy key holds. Its version is the index of Consul's log at
// which it was written, so versions never repeat.
type policy struct {
	MinTTL     int64    `json:"min_ttl_ns,omitempty"`
	MaxTTL     int64    `json:"max_ttl_ns,omitempty"`
	RetryAfter int64    `json:"retry_after_ns,omitempty"`
	Allowed    []string `json:"allowed_nodes,omitempty"`
	// Replaces is the version before. Consul does not take a value that does not
	// differ for a change.
	Replaces uint64 `json:"replaces,omitempty"`
}

func readGroup(id string, pair *api.KVPair) (baton.Group, error) {
	var p policy
	if err := json.Unmarshal(pair.Value, &p); err != nil {
		return baton.Group{}, fmt.Errorf("read %s: %w", pair.Key, err)
	}
	return baton.Group{
		ID: id,
		Policy: baton.Policy{
			MinTTL: time.Duration(p.MinTTL), MaxTTL: time.Duration(p.MaxTTL), RetryAfter: time.Duration(p.RetryAfter),
		},
		AllowedNodes: p.Allowed,
		Version:      pair.ModifyIndex,
	}, nil
}

// Group returns what is registered of a group.
func (s *Store) Group(ctx context.Context, id string) (baton.Group, error) {
	if err := baton.ValidateID("group_id", id); err != nil {
		return baton.Group{}, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	policy, term := s.keys.policy(id), s.keys.term(id)
	f, err := s.readTogether(bounded, []string{policy, term})
	switch {
	case err != nil:
		return baton.Group{}, s.calls.Fail(ctx, "group", err)
	case f.keys[policy].ModifyIndex > 0:
		g, err := readGroup(id, f.keys[policy])
		return g, s.calls.Fail(ctx, "group", err)
	case f.keys[term].ModifyIndex > 0:
		return baton.Group{ID: id}, nil
	}
	return baton.Group{}, fmt.Errorf("group %q: %w", id, baton.ErrNotFound)
}

// PutGroup registers a group if its version is the current one.
func (s *Store) PutGroup(ctx context.Context, g baton.Group) (baton.Group, error) {
	if err := g.Validate(); err != nil {
		return baton.Group{}, err
	}
	value, err := json.Marshal(policy{
		MinTTL: int64(g.Policy.MinTTL), MaxTTL: int64(g.Policy.MaxTTL), RetryAfter: int64(g.Policy.RetryAfter),
		Allowed: g.AllowedNodes, Replaces: g.Version,
	})
	if err != nil {
		return baton.Group{}, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	results, done, err := s.commit(bounded, swap(s.keys.policy(g.ID), value, g.Version))
	switch {
	case err != nil:
		return baton.Group{}, s.calls.Fail(ctx, "put group", err)
	case !done:
		return baton.Group{}, &baton.ConflictError{
			Reason:  baton.ConflictVersion,
			Message: fmt.Sprintf("group %q is not at version %d: read it again", g.ID, g.Version),
		}
	case len(results) != 1 || results[0].KV == nil:
		return baton.Group{}, s.calls.Fail(ctx, "put group", fmt.Errorf("consul does not tell the version of %s: %w", s.keys.policy(g.ID), errHidden))
	}
	g.Version, g.AllowedNodes = results[0].KV.ModifyIndex, slices.Clone(g.AllowedNodes)
	return g, nil
}

// DeleteGroup forgets a vacant group. In the same transaction the floor rises
// to its last term, so that nothing of it has to be kept.
func (s *Store) DeleteGroup(ctx context.Context, id string) error {
	if err := baton.ValidateID("group_id", id); err != nil {
		return err
	}
	return s.calls.Until(ctx, "delete group", func(ctx context.Context) (done bool, err error) {
		return s.deleteGroup(ctx, id)
	})
}

func (s *Store) deleteGroup(ctx context.Context, id string) (done bool, err error) {
	policy := s.keys.policy(id)
	registered, err := s.readTogether(ctx, []string{policy})
	if err != nil {
		return false, err
	}
	version := registered.keys[policy].ModifyIndex
	st, err := s.load(ctx, id, with{})
	switch {
	case err != nil:
		return false, err
	case st.held():
		h := st.record.Holder
		return false, &baton.ConflictError{
			Reason:  baton.ConflictHeld,
			Message: fmt.Sprintf("group %q is led by node %q in term %d: end that leadership first", id, h.Node, h.Term),
		}
	case version == 0 && st.termIndex == 0 && st.index == 0:
		return false, fmt.Errorf("delete group %q: %w", id, baton.ErrNotFound)
	}
	_, done, err = s.commit(ctx,
		remove(policy, version), remove(s.keys.lease(id), st.index), remove(s.keys.term(id), st.termIndex),
		kv(api.KVDeleteTree, s.keys.past(id)),
		swap(s.keys.floor(), formatTerm(max(st.floor, st.last())), st.floorIndex),
	)
	return done, err
}

// Groups lists the groups that are registered or were led, ordered by id.
func (s *Store) Groups(ctx context.Context) ([]baton.Group, error) {
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	f, err := s.readTogether(bounded, nil, s.keys.terms(), s.keys.policies())
	if err != nil {
		return nil, s.calls.Fail(ctx, "groups", err)
	}
	groups := map[string]baton.Group{}
	for _, pair := range f.tree[s.keys.terms()] {
		id := strings.TrimPrefix(pair.Key, s.keys.terms())
		groups[id] = baton.Group{ID: id}
	}
	for _, pair := range f.tree[s.keys.policies()] {
		id := strings.TrimPrefix(pair.Key, s.keys.policies())
		g, err := readGroup(id, pair)
		if err != nil {
			return nil, s.calls.Fail(ctx, "groups", err)
		}
		groups[id] = g
	}
	all := make([]baton.Group, 0, len(groups))
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		all = append(all, groups[id])
	}
	return all, nil
}
