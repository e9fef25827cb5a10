package consulstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/hashicorp/consul/api"

	"baton"
	"baton/internal/bound"
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
	return st.Record.History(st.past), nil
}

// Group returns what is registered of a group.
func (s *Store) Group(ctx context.Context, id string) (baton.Group, error) {
	if err := baton.ValidateID("group_id", id); err != nil {
		return baton.Group{}, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	policy, term := s.keys.Policy(id), s.keys.Term(id)
	f, err := s.readTogether(bounded, []string{policy, term})
	switch {
	case err != nil:
		return baton.Group{}, s.calls.Fail(ctx, "group", err)
	case f.keys[policy].ModifyIndex > 0:
		g, err := s.keys.ReadGroup(entry(f.keys[policy]))
		return g, s.calls.Fail(ctx, "group", err)
	case f.keys[term].ModifyIndex > 0:
		return baton.Group{ID: id}, nil
	}
	return baton.Group{}, fmt.Errorf("group %q: %w", id, baton.ErrNotFound)
}

// PutGroup registers a group if its version is the current one. Versions are
// indexes of Consul's log, so they never repeat.
func (s *Store) PutGroup(ctx context.Context, g baton.Group) (baton.Group, error) {
	if err := g.Validate(); err != nil {
		return baton.Group{}, err
	}
	value, err := bound.FormatGroup(g, g.Version)
	if err != nil {
		return baton.Group{}, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	results, done, err := s.commit(bounded, swap(s.keys.Policy(g.ID), value, g.Version))
	switch {
	case err != nil:
		return baton.Group{}, s.calls.Fail(ctx, "put group", err)
	case !done:
		return baton.Group{}, bound.VersionConflict(g)
	case len(results) != 1 || results[0].KV == nil:
		return baton.Group{}, s.calls.Fail(ctx, "put group", fmt.Errorf("consul does not tell the version of %s: %w", s.keys.Policy(g.ID), errHidden))
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
	policy := s.keys.Policy(id)
	registered, err := s.readTogether(ctx, []string{policy})
	if err != nil {
		return false, err
	}
	version := registered.keys[policy].ModifyIndex
	st, err := s.load(ctx, id, with{})
	if err != nil {
		return false, err
	}
	if err := st.Undeletable(version != 0 || st.termIndex != 0 || st.index != 0); err != nil {
		return false, err
	}
	_, done, err = s.commit(ctx,
		remove(policy, version), remove(s.keys.lease(id), st.index), remove(s.keys.Term(id), st.termIndex),
		kv(api.KVDeleteTree, s.keys.Past(id)),
		swap(s.keys.Floor(), []byte(bound.FormatTerm(st.Used())), st.floorIndex),
	)
	return done, err
}

// Groups lists the groups that are registered or were led, ordered by id.
func (s *Store) Groups(ctx context.Context) ([]baton.Group, error) {
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	f, err := s.readTogether(bounded, nil, s.keys.Terms(), s.keys.Policies())
	if err != nil {
		return nil, s.calls.Fail(ctx, "groups", err)
	}
	groups, err := s.keys.ReadGroups(entries(f.tree[s.keys.Terms()]), entries(f.tree[s.keys.Policies()]))
	return groups, s.calls.Fail(ctx, "groups", err)
}
