package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"baton"
)

// policy is what the policy field of a policy key holds.
type policy struct {
	MinTTL     int64    `json:"min_ttl_ns,omitempty"`
	MaxTTL     int64    `json:"max_ttl_ns,omitempty"`
	RetryAfter int64    `json:"retry_after_ns,omitempty"`
	Allowed    []string `json:"allowed_nodes,omitempty"`
}

// index notes that a group may exist. It is never taken back, as a group's
// counter is not: whoever lists groups looks at each.
func (s *Store) index(ctx context.Context, group string) error {
	return s.within(ctx, func(ctx context.Context) error { return s.rdb.SAdd(ctx, s.keys.groups(), group).Err() })
}

// lookup reads the registrations of these groups; a group that is neither
// registered nor was led is left out. A write that changes nothing goes with it: it is
// refused where what is read may be old.
func (s *Store) lookup(ctx context.Context, ids []string) ([]baton.Group, error) {
	found := make(chan []baton.Group, 1)
	err := s.within(ctx, func(ctx context.Context) error {
		fields, used := make([]*redis.SliceCmd, len(ids)), make([]*redis.IntCmd, len(ids))
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.HDel(ctx, s.keys.policy(ids[0]), "")
			for i, id := range ids {
				fields[i] = p.HMGet(ctx, s.keys.policy(id), "version", "policy")
				used[i] = p.Exists(ctx, s.keys.record(id))
			}
			return nil
		})
		if err != nil {
			return err
		}
		var groups []baton.Group
		for i, id := range ids {
			g, err := readGroup(id, fields[i].Val())
			if err != nil {
				return err
			}
			if g.Version != 0 || used[i].Val() != 0 {
				groups = append(groups, g)
			}
		}
		found <- groups
		return nil
	})
	if err != nil {
		return nil, err
	}
	return <-found, nil
}

func readGroup(id string, fields []any) (baton.Group, error) {
	if len(fields) != 2 || fields[0] == nil {
		return baton.Group{ID: id}, nil
	}
	version, _ := fields[0].(string)
	text, _ := fields[1].(string)
	n, err := strconv.ParseUint(version, 10, 64)
	var p policy
	if err == nil {
		err = json.Unmarshal([]byte(text), &p)
	}
	if err != nil {
		return baton.Group{}, fmt.Errorf("read the policy of group %q: %w", id, err)
	}
	return baton.Group{
		ID: id,
		Policy: baton.Policy{
			MinTTL: time.Duration(p.MinTTL), MaxTTL: time.Duration(p.MaxTTL), RetryAfter: time.Duration(p.RetryAfter),
		},
		AllowedNodes: p.Allowed,
		Version:      n,
	}, nil
}

// Group returns what is registered of a group.
func (s *Store) Group(ctx context.Context, id string) (baton.Group, error) {
	if err := baton.ValidateID("group_id", id); err != nil {
		return baton.Group{}, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	found, err := s.lookup(bounded, []string{id})
	switch {
	case err != nil:
		return baton.Group{}, s.fail(ctx, "group", err)
	case len(found) == 0:
		return baton.Group{}, fmt.Errorf("group %q: %w", id, baton.ErrNotFound)
	}
	return found[0], nil
}

// PutGroup registers a group if its version is the current one. Versions of a
// group never repeat, also when it is deleted in between.
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
	if err := s.index(bounded, g.ID); err != nil {
		return baton.Group{}, s.fail(ctx, "put group", err)
	}
	st, err := s.run(bounded, putScript, g.ID, strconv.FormatUint(g.Version, 10), value, requestID())
	switch {
	case err != nil:
		return baton.Group{}, s.fail(ctx, "put group", err)
	case st.outcome == "put":
		g.Version, g.AllowedNodes = uint64(st.numbers[0]), slices.Clone(g.AllowedNodes)
		return g, nil
	case st.outcome == "version":
		return baton.Group{}, &baton.ConflictError{
			Reason:  baton.ConflictVersion,
			Message: fmt.Sprintf("group %q is not at version %d: read it again", g.ID, g.Version),
		}
	}
	return baton.Group{}, st.unexpected("put group")
}

// DeleteGroup forgets a vacant group, all but its counter.
func (s *Store) DeleteGroup(ctx context.Context, id string) error {
	if err := baton.ValidateID("group_id", id); err != nil {
		return err
	}
	st, err := s.call(ctx, "delete group", deleteScript, id, requestID())
	switch {
	case err != nil:
		return err
	case st.outcome == "deleted":
		return nil
	case st.outcome == "not_found":
		return fmt.Errorf("delete group %q: %w", id, baton.ErrNotFound)
	case st.outcome == "held" && st.holder != nil:
		return &baton.ConflictError{
			Reason:  baton.ConflictHeld,
			Message: fmt.Sprintf("group %q is led by node %q in term %d: end that leadership first", id, st.holder.Node, st.holder.Term),
		}
	}
	return st.unexpected("delete group")
}

// lookupAtOnce bounds what is asked for in one round trip.
const lookupAtOnce = 1000

// Groups lists the groups that are registered or were led, ordered by id.
func (s *Store) Groups(ctx context.Context) ([]baton.Group, error) {
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	names := make(chan []string, 1)
	err := s.within(bounded, func(ctx context.Context) error {
		var ids *redis.StringSliceCmd
		_, err := s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.SRem(ctx, s.keys.groups(), "") // as in lookup
			ids = p.SMembers(ctx, s.keys.groups())
			return nil
		})
		names <- ids.Val()
		return err
	})
	if err != nil {
		return nil, s.fail(ctx, "groups", err)
	}
	ids := <-names
	slices.Sort(ids)
	var all []baton.Group
	for some := range slices.Chunk(ids, lookupAtOnce) {
		found, err := s.lookup(bounded, some)
		if err != nil {
			return nil, s.fail(ctx, "groups", err)
		}
		all = append(all, found...)
	}
	return all, nil
}
