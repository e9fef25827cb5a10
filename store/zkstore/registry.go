package zkstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"baton"
	"baton/internal/observed"
)

// policy is what a policy znode holds. The version of a registration is the
// transaction of ZooKeeper that wrote it, so versions never repeat. A znode is
// not deleted with the registration, but emptied: one that was made again would
// have the versions of the one before.
type policy struct {
	MinTTL     int64    `json:"min_ttl_ns,omitempty"`
	MaxTTL     int64    `json:"max_ttl_ns,omitempty"`
	RetryAfter int64    `json:"retry_after_ns,omitempty"`
	Allowed    []string `json:"allowed_nodes,omitempty"`
}

// registration is a group's policy znode.
type registration struct {
	group   baton.Group
	exists  bool  // it is registered
	version int32 // of the znode; absent if there is none
}

func (s *Store) registration(ctx context.Context, id string) (registration, error) {
	text, stat, err := s.get(ctx, s.path("policies", id))
	if err != nil {
		return registration{}, err
	}
	r := registration{group: baton.Group{ID: id}, version: absent}
	if stat == nil {
		return r, nil
	}
	r.version = stat.Version
	if len(text) == 0 {
		return r, nil
	}
	var p policy
	if err := json.Unmarshal(text, &p); err != nil {
		return registration{}, fmt.Errorf("read %s: %w", s.path("policies", id), err)
	}
	r.exists = true
	r.group.Policy = baton.Policy{
		MinTTL: time.Duration(p.MinTTL), MaxTTL: time.Duration(p.MaxTTL), RetryAfter: time.Duration(p.RetryAfter),
	}
	r.group.AllowedNodes, r.group.Version = p.Allowed, uint64(stat.Mzxid)
	return r, nil
}

// registered reads a group's record and registration.
func (s *Store) registered(ctx context.Context, id string) (snap observed.Snapshot, r registration, err error) {
	err = s.linearized(ctx, func() error {
		if snap, err = (register{s.client}).Peek(ctx, id); err != nil {
			return err
		}
		r, err = s.registration(ctx, id)
		return err
	})
	return snap, r, err
}

// Group returns what is registered of a group.
func (s *Store) Group(ctx context.Context, id string) (baton.Group, error) {
	if err := baton.ValidateID("group_id", id); err != nil {
		return baton.Group{}, err
	}
	bounded, cancel := s.leases.Begin(ctx, true)
	defer cancel()
	snap, r, err := s.registered(bounded, id)
	if err != nil {
		return baton.Group{}, s.leases.Fail(ctx, "group", err)
	}
	if !r.exists && !snap.Record.Known() {
		return baton.Group{}, fmt.Errorf("group %q: %w", id, baton.ErrNotFound)
	}
	return r.group, nil
}

// PutGroup registers a group if its version is the current one.
func (s *Store) PutGroup(ctx context.Context, g baton.Group) (baton.Group, error) {
	if err := g.Validate(); err != nil {
		return baton.Group{}, err
	}
	text, err := json.Marshal(policy{
		MinTTL: int64(g.Policy.MinTTL), MaxTTL: int64(g.Policy.MaxTTL), RetryAfter: int64(g.Policy.RetryAfter),
		Allowed: g.AllowedNodes,
	})
	if err != nil {
		return baton.Group{}, err
	}
	bounded, cancel := s.leases.Begin(ctx, true)
	defer cancel()
	version, err := s.putGroup(bounded, g, text)
	if err != nil {
		return baton.Group{}, s.leases.Fail(ctx, "put group", err)
	}
	g.Version, g.AllowedNodes = version, slices.Clone(g.AllowedNodes)
	return g, nil
}

func (s *Store) putGroup(ctx context.Context, g baton.Group, text []byte) (version uint64, err error) {
	path := s.path("policies", g.ID)
	for ctx.Err() == nil {
		_, r, err := s.registered(ctx, g.ID)
		if err != nil {
			return 0, err
		}
		if r.group.Version != g.Version {
			return 0, &baton.ConflictError{
				Reason:  baton.ConflictVersion,
				Message: fmt.Sprintf("group %q is not at version %d: read it again", g.ID, g.Version),
			}
		}
		if r.version == absent {
			// Emptied first: what makes a znode does not tell its transaction, what writes to one does.
			if err := s.makeNode(ctx, path); err != nil {
				return 0, err
			}
			continue
		}
		written := make(chan uint64, 1)
		err = s.do(ctx, func(conn *zk.Conn) error {
			stat, err := conn.Set(path, text, r.version)
			if err == nil {
				written <- uint64(stat.Mzxid)
			}
			return err
		})
		switch {
		case err == nil:
			return <-written, nil
		case !errors.Is(err, zk.ErrBadVersion) && !errors.Is(err, zk.ErrNoNode):
			return 0, kindOf(err)
		}
	}
	return 0, context.Cause(ctx)
}

// DeleteGroup forgets a vacant group. The znode with its last term stays.
func (s *Store) DeleteGroup(ctx context.Context, id string) error {
	if err := baton.ValidateID("group_id", id); err != nil {
		return err
	}
	bounded, cancel := s.leases.Begin(ctx, true)
	defer cancel()
	for bounded.Err() == nil {
		err := s.deleteGroup(bounded, id)
		if !errors.Is(err, observed.ErrChanged) {
			return s.leases.Fail(ctx, "delete group", err)
		}
	}
	return s.leases.Fail(ctx, "delete group", context.Cause(bounded))
}

func (s *Store) deleteGroup(ctx context.Context, id string) error {
	snap, err := s.leases.Look(ctx, id) // writes down a lease that ran out
	if err != nil {
		return err
	}
	r, err := s.registration(ctx, id)
	if err != nil {
		return err
	}
	v, record := snap.Aside.(versions), snap.Record
	switch {
	case record.Holder != nil:
		return &baton.ConflictError{
			Reason:  baton.ConflictHeld,
			Message: fmt.Sprintf("group %q is led by node %q in term %d: end that leadership first", id, record.Holder.Node, record.Holder.Term),
		}
	case !r.exists && !record.Known():
		return fmt.Errorf("delete group %q: %w", id, baton.ErrNotFound)
	}
	var ops []any
	if r.exists {
		ops = append(ops, &zk.SetDataRequest{Path: s.path("policies", id), Version: r.version})
	}
	if v.record != absent {
		term, err := json.Marshal(counter{Term: record.Term, Ended: record.Ended})
		if err != nil {
			return err
		}
		if v.counter == absent {
			ops = append(ops, s.create(s.path("terms", id), term))
		} else {
			ops = append(ops, &zk.SetDataRequest{Path: s.path("terms", id), Data: term, Version: v.counter})
		}
		ops = append(ops, &zk.DeleteRequest{Path: s.path("leases", id), Version: v.record})
	}
	_, past, err := register{s.client}.history(ctx, id)
	if err != nil {
		return err
	}
	if past != absent {
		ops = append(ops, &zk.DeleteRequest{Path: s.path("past", id), Version: past})
	}
	if err := s.commit(ctx, ops); err != nil {
		return err
	}
	// Where somebody waits it stays, and so it does where it cannot be reached: it holds nothing.
	_ = s.do(ctx, func(conn *zk.Conn) error { return conn.Delete(s.path("line", id), -1) })
	return nil
}

// Groups lists the groups that are registered or were led, ordered by id.
func (s *Store) Groups(ctx context.Context) ([]baton.Group, error) {
	bounded, cancel := s.leases.Begin(ctx, true)
	defer cancel()
	var groups []baton.Group
	err := s.linearized(bounded, func() (err error) {
		groups, err = s.groups(bounded)
		return err
	})
	if err != nil {
		return nil, s.leases.Fail(ctx, "groups", err)
	}
	return groups, nil
}

func (s *Store) groups(ctx context.Context) ([]baton.Group, error) {
	groups := map[string]baton.Group{}
	used, err := s.children(ctx, s.path("leases"))
	if err != nil {
		return nil, err
	}
	for _, id := range used {
		groups[id] = baton.Group{ID: id}
	}
	policies, err := s.children(ctx, s.path("policies"))
	if err != nil {
		return nil, err
	}
	for _, id := range policies {
		r, err := s.registration(ctx, id)
		if err != nil {
			return nil, err
		}
		if r.exists {
			groups[id] = r.group
		}
	}
	all := make([]baton.Group, 0, len(groups))
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		all = append(all, groups[id])
	}
	return all, nil
}

// children are the names of the znodes right below one; none if it does not exist.
func (c *client) children(ctx context.Context, path string) ([]string, error) {
	answers := make(chan []string, 1)
	err := c.again(ctx, func(conn *zk.Conn) error {
		names, _, err := conn.Children(path)
		if err == nil {
			answers <- names
		}
		return err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil, nil
	case err != nil:
		return nil, kindOf(err)
	}
	return <-answers, nil
}
