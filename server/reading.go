package server

import (
	"context"
	"iter"

	"baton"
)

// Leader reads the group, linearizably.
func (s *Service) Leader(ctx context.Context, group string) (baton.Lease, error) {
	if err := s.known(ctx, group); err != nil {
		return baton.Lease{}, err
	}
	return s.get(ctx, group)
}

// Watch follows the group from after the cursor. Unlike all other calls it
// lasts for as long as ctx; an error is the last thing it yields. Without a
// cursor the store has the present state to tell, and the usual time to do it in.
func (s *Service) Watch(ctx context.Context, group string, after baton.Cursor) (iter.Seq2[baton.Event, error], error) {
	if err := s.known(ctx, group); err != nil {
		return nil, err
	}
	return func(yield func(baton.Event, error) bool) {
		s.metrics.watchers.Inc()
		defer s.metrics.watchers.Dec()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		began := func() bool { return true }
		if after == "" {
			began = s.cfg.Clock.AfterFunc(s.cfg.StoreTimeout, cancel)
			defer began()
		}
		for e, err := range s.store.Watch(ctx, group, after) {
			began()
			if err != nil && !baton.IsAnswer(err) {
				err = unavailable("watch group "+group, err)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}, nil
}

// History returns the group's last terms, oldest first.
func (s *Service) History(ctx context.Context, group string) ([]baton.PastTerm, error) {
	if err := s.known(ctx, group); err != nil {
		return nil, err
	}
	if s.historian == nil {
		return nil, unsupported(s, "remember who led")
	}
	return ask(ctx, s, "read the history of group "+group, func(ctx context.Context) ([]baton.PastTerm, error) {
		return s.historian.History(ctx, group)
	})
}

// Members lists who takes part in the group, ordered by node. Those who wait
// are as this server has seen them; who leads is as the store has it.
func (s *Service) Members(ctx context.Context, group string) ([]Member, error) {
	lease, err := s.Leader(ctx, group)
	if err != nil {
		return nil, err
	}
	return s.roster.list(group, lease), nil
}

// known refuses ids that make no sense, and groups that are not registered where they must be.
func (s *Service) known(ctx context.Context, group string) error {
	if err := baton.ValidateID("group_id", group); err != nil {
		return err
	}
	if !s.cfg.ExplicitGroups {
		return nil
	}
	_, err := s.rules(ctx, group, staleRules)
	return err
}
