package server

import (
	"context"
	"fmt"

	"baton"
)

// StepDown ends the leadership of this term from outside; with term 0, the one
// that leads on arrival, so that a request that arrives twice ends two. It returns the
// leadership that was ended, or asked to end.
func (s *Service) StepDown(ctx context.Context, group string, term baton.Term, e baton.Ending) (lease baton.Lease, err error) {
	defer func() {
		s.audit(ctx, "step_down", group, err, "term", lease.Term, "node", lease.NodeID, "note", e.Note, "immediate", e.Immediate, "successor", e.Successor)
	}()
	if err := baton.ValidateID("group_id", group); err != nil {
		return baton.Lease{}, err
	}
	if term > baton.MaxTerm {
		return baton.Lease{}, &baton.InvalidArgumentError{Field: "term", Value: term, Want: fmt.Sprintf("at most %d", baton.MaxTerm)}
	}
	if e.Note == "" {
		return baton.Lease{}, &baton.InvalidArgumentError{Field: "reason", Value: "", Want: "why it is ended, for those who read the history"}
	}
	if err := e.Validate(); err != nil {
		return baton.Lease{}, err
	}
	if _, err := s.rules(ctx, group, staleRules); err != nil {
		return baton.Lease{}, err
	}
	current, err := s.get(ctx, group)
	if err != nil {
		return baton.Lease{}, err
	}
	if !current.Held() || term != 0 && term != current.Term {
		if term == 0 {
			term = current.Term
		}
		return baton.Lease{}, &baton.NotLeaderError{ID: baton.LeaseID{Group: group, Term: term}, Current: &current}
	}
	if err := s.end(ctx, group, current.Term, e); err != nil {
		return baton.Lease{}, err
	}
	if e.Immediate {
		s.elections.ended(group, current.Term, e.Reason)
	}
	return current, nil
}

// stepDownBarred ends the leadership of a node that the policy does not allow
// any more. At a store that cannot, its lease may only run out.
func (s *Service) stepDownBarred(ctx context.Context, lease baton.Lease) error {
	if s.ender == nil {
		return fmt.Errorf("node %q in group %q: %w any more", lease.NodeID, lease.Group, baton.ErrNotAllowed)
	}
	e := baton.Ending{Reason: baton.SteppedDown, Note: "taken off allowed_nodes"}
	err := s.end(ctx, lease.Group, lease.Term, e)
	if err == nil {
		s.log.Info("leader is not allowed any more and steps down", "group", lease.Group, "node", lease.NodeID, "term", lease.Term)
	}
	return err
}
