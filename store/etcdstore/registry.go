package etcdstore

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

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
	if _, err := s.load(bounded, group, false); err != nil { // writes down an expiry that nobody saw
		return nil, s.calls.Fail(ctx, "history", err)
	}
	resp, err := s.readTogether(bounded, clientv3.OpGet(s.keys.Past(group), clientv3.WithPrefix()), clientv3.OpGet(s.keys.record(group)))
	if err != nil {
		return nil, s.calls.Fail(ctx, "history", err)
	}
	var past []bound.Past
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		p, err := bound.Read[bound.Past](entry(kv))
		if err != nil {
			return nil, s.calls.Fail(ctx, "history", err)
		}
		past = append(past, p)
	}
	var st state
	for _, kv := range resp.Responses[1].GetResponseRange().Kvs {
		if err := st.readRecord(kv); err != nil {
			return nil, s.calls.Fail(ctx, "history", err)
		}
	}
	return st.Record.History(past), nil
}

// Group returns what is registered of a group.
func (s *Store) Group(ctx context.Context, id string) (baton.Group, error) {
	if err := baton.ValidateID("group_id", id); err != nil {
		return baton.Group{}, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	resp, err := s.readTogether(bounded, clientv3.OpGet(s.keys.Policy(id)), clientv3.OpGet(s.keys.Term(id)))
	if err != nil {
		return baton.Group{}, s.calls.Fail(ctx, "group", err)
	}
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		g, err := s.keys.ReadGroup(entry(kvs[0]))
		return g, s.calls.Fail(ctx, "group", err)
	}
	if len(resp.Responses[1].GetResponseRange().Kvs) > 0 {
		return baton.Group{ID: id}, nil
	}
	return baton.Group{}, fmt.Errorf("group %q: %w", id, baton.ErrNotFound)
}

// PutGroup registers a group if its version is the current one. Versions are
// revisions of etcd, so they never repeat.
func (s *Store) PutGroup(ctx context.Context, g baton.Group) (baton.Group, error) {
	if err := g.Validate(); err != nil {
		return baton.Group{}, err
	}
	value, err := bound.FormatGroup(g, 0)
	if err != nil {
		return baton.Group{}, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	resp, err := s.commit(bounded,
		[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(s.keys.Policy(g.ID)), "=", int64(g.Version))},
		[]clientv3.Op{clientv3.OpPut(s.keys.Policy(g.ID), string(value))})
	if err != nil {
		return baton.Group{}, s.calls.Fail(ctx, "put group", err)
	}
	if !resp.Succeeded {
		return baton.Group{}, bound.VersionConflict(g)
	}
	g.Version, g.AllowedNodes = uint64(resp.Header.Revision), slices.Clone(g.AllowedNodes)
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
	registered, err := s.readTogether(ctx, clientv3.OpGet(s.keys.Policy(id)))
	if err != nil {
		return false, err
	}
	version := int64(0)
	for _, kv := range registered.Responses[0].GetResponseRange().Kvs {
		version = kv.ModRevision
	}
	st, err := s.load(ctx, id, false)
	if err != nil {
		return false, err
	}
	if err := st.Undeletable(version != 0 || st.termRev != 0 || st.recordRev != 0); err != nil {
		return false, err
	}
	resp, err := s.commit(ctx, []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(s.keys.Policy(id)), "=", version),
		clientv3.Compare(clientv3.ModRevision(s.keys.record(id)), "=", st.recordRev),
		clientv3.Compare(clientv3.ModRevision(s.keys.Term(id)), "=", st.termRev),
		clientv3.Compare(clientv3.ModRevision(s.keys.Floor()), "=", st.floorRev),
		clientv3.Compare(clientv3.CreateRevision(s.keys.bound(id)), "=", 0),
	}, []clientv3.Op{
		clientv3.OpDelete(s.keys.Policy(id)),
		clientv3.OpDelete(s.keys.record(id)),
		clientv3.OpDelete(s.keys.Term(id)),
		clientv3.OpDelete(s.keys.Past(id), clientv3.WithPrefix()),
		clientv3.OpPut(s.keys.Floor(), bound.FormatTerm(st.Used())),
	})
	if err != nil {
		return false, err
	}
	return resp.Succeeded, nil
}

// Groups lists the groups that are registered or were led, ordered by id.
func (s *Store) Groups(ctx context.Context) ([]baton.Group, error) {
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	resp, err := s.readTogether(bounded,
		clientv3.OpGet(s.keys.Terms(), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		clientv3.OpGet(s.keys.Policies(), clientv3.WithPrefix()))
	if err != nil {
		return nil, s.calls.Fail(ctx, "groups", err)
	}
	groups, err := s.keys.ReadGroups(entries(resp.Responses[0].GetResponseRange().Kvs), entries(resp.Responses[1].GetResponseRange().Kvs))
	return groups, s.calls.Fail(ctx, "groups", err)
}
