package memstore

import (
	"context"
	"fmt"
	"time"

	"baton"
	"baton/internal/leasefsm"
)

// History returns the last terms of a group, oldest first.
func (s *Store) History(ctx context.Context, group string) ([]baton.PastTerm, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return nil, err
	}
	var history []baton.PastTerm
	err := s.do(ctx, "history", func(time.Duration) error {
		history = s.record.History(group)
		return nil
	})
	return history, err
}

// Group returns what is registered of a group.
func (s *Store) Group(ctx context.Context, id string) (baton.Group, error) {
	if err := baton.ValidateID("group_id", id); err != nil {
		return baton.Group{}, err
	}
	var g baton.Group
	err := s.do(ctx, "group", func(time.Duration) error {
		var ok bool
		if g, ok = s.record.Group(id); !ok {
			return fmt.Errorf("group %q: %w", id, baton.ErrNotFound)
		}
		return nil
	})
	return g, err
}

// PutGroup registers a group if its version is the current one.
func (s *Store) PutGroup(ctx context.Context, g baton.Group) (baton.Group, error) {
	if err := g.Validate(); err != nil {
		return baton.Group{}, err
	}
	var registered baton.Group
	err := s.do(ctx, "put group", func(now time.Duration) error {
		result := s.apply(leasefsm.PutGroup{Group: g}, now)
		registered = result.Group
		return result.Err
	})
	return registered, err
}

// DeleteGroup forgets a vacant group; its terms count on.
func (s *Store) DeleteGroup(ctx context.Context, id string) error {
	if err := baton.ValidateID("group_id", id); err != nil {
		return err
	}
	return s.do(ctx, "delete group", func(now time.Duration) error {
		return s.apply(leasefsm.DeleteGroup{ID: id}, now).Err
	})
}

// Groups lists all groups, ordered by id.
func (s *Store) Groups(ctx context.Context) ([]baton.Group, error) {
	var all []baton.Group
	err := s.do(ctx, "groups", func(time.Duration) error {
		all = s.record.Groups()
		return nil
	})
	return all, err
}
