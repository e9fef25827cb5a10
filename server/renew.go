package server

import (
	"context"
	"fmt"
	"time"

	"baton"
)

// Renew extends exactly this leadership. Without an instance, node and term
// name it. A lease that comes back with Ending set was not extended.
//
// Up to the TTL that was granted an extension is always allowed, whatever the
// policy has become since; above it the policy's bound holds.
func (s *Service) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	asked := s.cfg.Clock.Now()
	lease, err := s.renew(ctx, id, extend)
	if err != nil {
		s.metrics.renewFailed(err)
		s.log.Debug("renewal refused", "group", id.Group, "node", id.NodeID, "term", id.Term, "error", err)
		return baton.Lease{}, err
	}
	s.elections.saw(lease, asked)
	s.roster.saw(id.Group, baton.Candidate{NodeID: lease.NodeID, InstanceID: lease.InstanceID, Metadata: lease.Metadata})
	return lease, nil
}

func (s *Service) renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	if err := validateNamed(id); err != nil {
		return baton.Lease{}, err
	}
	r, err := s.rules(ctx, id.Group, staleRules)
	if err != nil {
		return baton.Lease{}, err
	}
	most := r.max
	barred := !r.allows(id.NodeID)
	if id.InstanceID == "" || extend > most || barred {
		lease, err := s.named(ctx, id)
		if err != nil {
			return baton.Lease{}, err
		}
		id.InstanceID = lease.InstanceID
		most = max(most, lease.TTL)
		if barred && lease.Ending == nil {
			if err := s.stepDownBarred(ctx, lease); err != nil {
				return baton.Lease{}, err
			}
		}
	}
	if extend < time.Millisecond || extend > most {
		return baton.Lease{}, &baton.InvalidTTLError{Field: "extend_by_ms", TTL: extend, Min: time.Millisecond, Max: most}
	}
	return ask(ctx, s, "renew in group "+id.Group, func(ctx context.Context) (baton.Lease, error) {
		return s.store.Renew(ctx, id, extend)
	})
}

// Resign ends exactly this leadership, in favour of successor if one is
// named. Without an instance, node and term name it.
func (s *Service) Resign(ctx context.Context, id baton.LeaseID, successor string) error {
	if err := validateNamed(id); err != nil {
		return err
	}
	if successor != "" {
		if err := baton.ValidateID("successor", successor); err != nil {
			return err
		}
	}
	if id.InstanceID == "" || successor != "" {
		lease, err := s.named(ctx, id)
		if err != nil {
			return err
		}
		id.InstanceID = lease.InstanceID
	}
	if successor != "" {
		e := baton.Ending{Reason: baton.Transferred, Successor: successor, Note: "resigned in favour of " + successor}
		if err := s.end(ctx, id.Group, id.Term, e); err != nil {
			return err
		}
	}
	err := s.tell(ctx, "resign in group "+id.Group, func(ctx context.Context) error {
		return s.store.Release(ctx, id)
	})
	if err != nil {
		return err
	}
	why := baton.Resigned
	if successor != "" {
		why = baton.Transferred
	}
	s.elections.ended(id.Group, id.Term, why)
	s.roster.left(id.Group, id.NodeID, id.InstanceID)
	s.log.Info("leadership resigned", "group", id.Group, "node", id.NodeID, "term", id.Term, "successor", successor)
	return nil
}

// end asks the store to end a leadership.
func (s *Service) end(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	if s.ender == nil {
		return unsupported(s, "end a leadership for others")
	}
	takeBack := func() {}
	if s.own != nil {
		if e.Successor != "" && !s.own.line.InLine(group, e.Successor) {
			return &baton.ConflictError{Reason: baton.ConflictNotInLine, Message: fmt.Sprintf("node %q does not wait in line for group %q", e.Successor, group)}
		}
		// Before the store is asked: the vacancy may come before its answer.
		before := s.own.succeeds(group, e.Successor)
		takeBack = func() { s.own.succeeds(group, before) }
	}
	err := s.tell(ctx, fmt.Sprintf("end term %d of group %s", term, group), func(ctx context.Context) error {
		return s.ender.End(ctx, group, term, e)
	})
	if err != nil && baton.IsAnswer(err) {
		takeBack()
	}
	return err
}

// validateNamed checks an id that may leave its instance out.
func validateNamed(id baton.LeaseID) error {
	if id.InstanceID == "" {
		id.InstanceID = "any"
	}
	return id.Validate()
}

// named reads the leadership that id names, as far as it names it.
func (s *Service) named(ctx context.Context, id baton.LeaseID) (baton.Lease, error) {
	lease, err := s.get(ctx, id.Group)
	if err != nil {
		return baton.Lease{}, err
	}
	if !lease.Held() || lease.NodeID != id.NodeID || lease.Term != id.Term || id.InstanceID != "" && id.InstanceID != lease.InstanceID {
		return baton.Lease{}, &baton.NotLeaderError{ID: id, Current: &lease}
	}
	return lease, nil
}
