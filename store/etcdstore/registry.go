package etcdstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"baton"
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
	resp, err := s.readTogether(bounded, clientv3.OpGet(s.keys.past(group), clientv3.WithPrefix()), clientv3.OpGet(s.keys.record(group)))
	if err != nil {
		return nil, s.calls.Fail(ctx, "history", err)
	}
	var history []baton.PastTerm
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		var p past
		if err := json.Unmarshal(kv.Value, &p); err != nil {
			return nil, s.calls.Fail(ctx, "history", fmt.Errorf("read %s: %w", kv.Key, err))
		}
		history = append(history, p.term())
	}
	slices.SortFunc(history, func(a, b baton.PastTerm) int { return cmp.Compare(a.Term, b.Term) })
	st := state{group: group}
	for _, kv := range resp.Responses[1].GetResponseRange().Kvs {
		if err := st.readRecord(kv); err != nil {
			return nil, s.calls.Fail(ctx, "history", err)
		}
	}
	if st.record.Holder != nil {
		history = append(history, st.record.Holder.term())
	}
	return history, nil
}

// policy is what a policy key holds. Its version is the revision of etcd at
// which it was written, so versions never repeat.
type policy struct {
	MinTTL     int64    `json:"min_ttl_ns,omitempty"`
	MaxTTL     int64    `json:"max_ttl_ns,omitempty"`
	RetryAfter int64    `json:"retry_after_ns,omitempty"`
	Allowed    []string `json:"allowed_nodes,omitempty"`
}

func readGroup(id string, kv *mvccpb.KeyValue) (baton.Group, error) {
	var p policy
	if err := json.Unmarshal(kv.Value, &p); err != nil {
		return baton.Group{}, fmt.Errorf("read %s: %w", kv.Key, err)
	}
	return baton.Group{
		ID: id,
		Policy: baton.Policy{
			MinTTL: time.Duration(p.MinTTL), MaxTTL: time.Duration(p.MaxTTL), RetryAfter: time.Duration(p.RetryAfter),
		},
		AllowedNodes: p.Allowed,
		Version:      uint64(kv.ModRevision),
	}, nil
}

// Group returns what is registered of a group.
func (s *Store) Group(ctx context.Context, id string) (baton.Group, error) {
	if err := baton.ValidateID("group_id", id); err != nil {
		return baton.Group{}, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	resp, err := s.readTogether(bounded, clientv3.OpGet(s.keys.policy(id)), clientv3.OpGet(s.keys.term(id)))
	if err != nil {
		return baton.Group{}, s.calls.Fail(ctx, "group", err)
	}
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		g, err := readGroup(id, kvs[0])
		return g, s.calls.Fail(ctx, "group", err)
	}
	if len(resp.Responses[1].GetResponseRange().Kvs) > 0 {
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
		Allowed: g.AllowedNodes,
	})
	if err != nil {
		return baton.Group{}, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	resp, err := s.commit(bounded,
		[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(s.keys.policy(g.ID)), "=", int64(g.Version))},
		[]clientv3.Op{clientv3.OpPut(s.keys.policy(g.ID), string(value))})
	if err != nil {
		return baton.Group{}, s.calls.Fail(ctx, "put group", err)
	}
	if !resp.Succeeded {
		return baton.Group{}, &baton.ConflictError{
			Reason:  baton.ConflictVersion,
			Message: fmt.Sprintf("group %q is not at version %d: read it again", g.ID, g.Version),
		}
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
	registered, err := s.readTogether(ctx, clientv3.OpGet(s.keys.policy(id)))
	if err != nil {
		return false, err
	}
	version := int64(0)
	for _, kv := range registered.Responses[0].GetResponseRange().Kvs {
		version = kv.ModRevision
	}
	st, err := s.load(ctx, id, false)
	switch {
	case err != nil:
		return false, err
	case st.held():
		h := st.record.Holder
		return false, &baton.ConflictError{
			Reason:  baton.ConflictHeld,
			Message: fmt.Sprintf("group %q is led by node %q in term %d: end that leadership first", id, h.Node, h.Term),
		}
	case version == 0 && st.termRev == 0 && st.recordRev == 0:
		return false, fmt.Errorf("delete group %q: %w", id, baton.ErrNotFound)
	}
	resp, err := s.commit(ctx, []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(s.keys.policy(id)), "=", version),
		clientv3.Compare(clientv3.ModRevision(s.keys.record(id)), "=", st.recordRev),
		clientv3.Compare(clientv3.ModRevision(s.keys.term(id)), "=", st.termRev),
		clientv3.Compare(clientv3.ModRevision(s.keys.floor()), "=", st.floorRev),
		clientv3.Compare(clientv3.CreateRevision(s.keys.bound(id)), "=", 0),
	}, []clientv3.Op{
		clientv3.OpDelete(s.keys.policy(id)),
		clientv3.OpDelete(s.keys.record(id)),
		clientv3.OpDelete(s.keys.term(id)),
		clientv3.OpDelete(s.keys.past(id), clientv3.WithPrefix()),
		clientv3.OpPut(s.keys.floor(), formatTerm(max(st.floor, st.last()))),
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
		clientv3.OpGet(s.keys.terms(), clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		clientv3.OpGet(s.keys.policies(), clientv3.WithPrefix()))
	if err != nil {
		return nil, s.calls.Fail(ctx, "groups", err)
	}
	groups := map[string]baton.Group{}
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		id := strings.TrimPrefix(string(kv.Key), s.keys.terms())
		groups[id] = baton.Group{ID: id}
	}
	for _, kv := range resp.Responses[1].GetResponseRange().Kvs {
		id := strings.TrimPrefix(string(kv.Key), s.keys.policies())
		g, err := readGroup(id, kv)
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
