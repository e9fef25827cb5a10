package memstore

import (
	"context"
	"fmt"
	"time"

	"baton"
	"baton/internal/leasefsm"
)

// Await takes a place in line and returns when it is c's turn. For one that
// holds the group, as after an Acquire whose answer was lost, that is at once.
func (s *Store) Await(ctx context.Context, group string, c baton.Candidate) error {
	if err := baton.ValidateID("group", group); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	holds := false
	err := s.do(ctx, "await", func(time.Duration) error {
		holds = s.record.Get(group).HeldBy(c)
		return nil
	})
	if err != nil || holds {
		return err
	}
	return s.line.Await(ctx, group, c)
}

func (s *Store) vacant(ctx context.Context, group string) (bool, error) {
	vacant := false
	err := s.do(ctx, "await", func(time.Duration) error {
		vacant = !s.record.Get(group).Held()
		return nil
	})
	return vacant, err
}

// outOfTurn is the answer to c if the group is vacant and a turn is kept for another.
func (s *Store) outOfTurn(group string, c baton.Candidate) error {
	lease := s.record.Get(group)
	if lease.Held() {
		return nil
	}
	turn, left, kept := s.line.TurnOf(group)
	if !kept || turn.NodeID == c.NodeID && turn.InstanceID == c.InstanceID {
		return nil
	}
	return &baton.HeldError{Lease: lease, RetryAfter: left}
}

// End ends the leadership of exactly this term, or begins to.
func (s *Store) End(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	if err := baton.ValidateID("group", group); err != nil {
		return err
	}
	if err := e.Validate(); err != nil {
		return err
	}
	return s.do(ctx, "end", func(now time.Duration) error {
		lease := s.record.Get(group)
		if lease.Held() && lease.Term == term && e.Successor != "" && !s.line.InLine(group, e.Successor) {
			return &baton.ConflictError{
				Reason:  baton.ConflictNotInLine,
				Message: fmt.Sprintf("node %q does not wait for group %q: it cannot succeed", e.Successor, group),
			}
		}
		return s.fill(s.apply(leasefsm.End{Group: group, Term: term, Ending: e, Stamp: stamp()}, now).Err, now)
	})
}
