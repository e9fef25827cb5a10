package pgstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"baton"
)

// A group is registered, or was led, or both.
const groupsSQL = `
SELECT coalesce(p.grp, l.grp), coalesce(p.version, 0), coalesce(p.min_ttl_ns, 0), coalesce(p.max_ttl_ns, 0), coalesce(p.retry_after_ns, 0), p.allowed_nodes
  FROM baton.policy p FULL JOIN baton.lease l ON l.grp = p.grp `

func (s *Store) groups(ctx context.Context, sql string, args ...any) (groups []baton.Group, err error) {
	err = try(ctx, s.pool, func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, s.schema.in(sql), args...)
		if err != nil {
			return err
		}
		groups, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (baton.Group, error) {
			var g baton.Group
			var minTTL, maxTTL, retryAfter int64
			err := row.Scan(&g.ID, &g.Version, &minTTL, &maxTTL, &retryAfter, &g.AllowedNodes)
			g.Policy = baton.Policy{MinTTL: time.Duration(minTTL), MaxTTL: time.Duration(maxTTL), RetryAfter: time.Duration(retryAfter)}
			return g, err
		})
		return err
	})
	return groups, err
}

// Group returns what is registered of a group.
func (s *Store) Group(ctx context.Context, id string) (baton.Group, error) {
	if err := baton.ValidateID("group_id", id); err != nil {
		return baton.Group{}, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	found, err := s.groups(bounded, groupsSQL+`WHERE p.grp = $1 OR l.grp = $1`, id)
	if err != nil {
		return baton.Group{}, s.calls.Fail(ctx, "group", err)
	}
	if len(found) == 0 {
		return baton.Group{}, fmt.Errorf("group %q: %w", id, baton.ErrNotFound)
	}
	return found[0], nil
}

// Groups lists the groups that are registered or were led, ordered by id.
func (s *Store) Groups(ctx context.Context) ([]baton.Group, error) {
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	all, err := s.groups(bounded, groupsSQL+`ORDER BY 1`)
	return all, s.calls.Fail(ctx, "groups", err)
}

// PutGroup registers a group if its version is the current one. Versions are
// drawn from a sequence, so they never repeat.
func (s *Store) PutGroup(ctx context.Context, g baton.Group) (baton.Group, error) {
	if err := g.Validate(); err != nil {
		return baton.Group{}, err
	}
	const last = 1<<63 - 1
	var version int64
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	err := try(bounded, s.pool, func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, s.schema.in(`SELECT baton.put_policy($1, $2, $3, $4, $5, $6)`),
			g.ID, min(g.Version, last), int64(g.Policy.MinTTL), int64(g.Policy.MaxTTL), int64(g.Policy.RetryAfter), append([]string{}, g.AllowedNodes...)).
			Scan(&version)
	})
	if err != nil {
		return baton.Group{}, s.calls.Fail(ctx, "put group", err)
	}
	if version == 0 {
		return baton.Group{}, &baton.ConflictError{
			Reason:  baton.ConflictVersion,
			Message: fmt.Sprintf("group %q is not at version %d: read it again", g.ID, g.Version),
		}
	}
	g.Version, g.AllowedNodes = uint64(version), slices.Clone(g.AllowedNodes) //nolint:gosec // a sequence counts up from 1
	return g, nil
}

// DeleteGroup forgets a vacant group, and raises the floor to its last term in the same transaction.
func (s *Store) DeleteGroup(ctx context.Context, id string) error {
	if err := baton.ValidateID("group_id", id); err != nil {
		return err
	}
	a, err := s.call(ctx, "delete group", id, `SELECT * FROM baton.delete_group($1)`, id)
	switch {
	case err != nil || a.outcome == "done":
		return err
	case a.outcome == "held":
		l := a.lease()
		return &baton.ConflictError{
			Reason:  baton.ConflictHeld,
			Message: fmt.Sprintf("group %q is led by node %q in term %d: end that leadership first", id, l.NodeID, l.Term),
		}
	case a.outcome == "not found":
		return fmt.Errorf("delete group %q: %w", id, baton.ErrNotFound)
	}
	return a.strange("delete group")
}
