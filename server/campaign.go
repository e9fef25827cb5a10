package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"baton"
)

// Campaign is a candidate's request.
type Campaign struct {
	// Candidate campaigns. Without an instance id one is drawn.
	baton.Candidate
	// TTL may be 0 if Wait is not: then the candidate only waits for its turn.
	TTL time.Duration
	// Wait is how long to wait in line; 0 asks for the lease at once.
	Wait time.Duration
}

// Outcome answers a campaign.
type Outcome struct {
	// Leads: the candidate holds Lease.
	Leads bool
	// Turn: the group is open for the candidate, which should campaign again at once.
	Turn bool
	// Lease is the state of the group; of one that is open for the candidate only the name is told.
	Lease baton.Lease
	// InstanceID is the candidate's, given or drawn.
	InstanceID string
	// RetryAfter is how long a loser should wait.
	RetryAfter time.Duration
}

// Campaign tries for the lease, or waits for the candidate's turn to try.
//
// With a wait it is the line that answers: the outcome is a turn, and the
// lease is granted to the next campaign. So the holder counts its lease from a
// request that did not wait, and one that died waiting is granted nothing.
func (s *Service) Campaign(ctx context.Context, group string, c Campaign) (Outcome, error) {
	r, err := s.admit(ctx, group, c)
	if err != nil {
		return Outcome{}, err
	}
	drawn := c.InstanceID == ""
	queued := false // the drawn instance has a place in line
	if drawn {
		if c.InstanceID, queued, err = s.draw(ctx, group, c.NodeID); err != nil {
			return Outcome{}, err
		}
	} else {
		s.turns.claim(group, c.Candidate)
	}
	s.roster.saw(group, c.Candidate)

	if c.Wait == 0 || c.TTL > 0 && s.turns.take(group, c.Candidate) {
		out, err := s.try(ctx, group, c, r)
		if err != nil || out.Leads || c.Wait == 0 {
			if queued && err == nil && !out.Leads {
				s.turns.park(group, c.Candidate)
			}
			return out, err
		}
	}
	turn, err := s.await(ctx, group, c)
	if err != nil {
		return Outcome{}, err
	}
	if drawn {
		s.turns.park(group, c.Candidate)
	}
	if turn {
		s.turns.give(group, c.Candidate)
		return Outcome{Turn: true, Lease: baton.Lease{Group: group}, InstanceID: c.InstanceID}, nil
	}
	lease, err := s.get(ctx, group)
	if err != nil {
		return Outcome{}, err
	}
	return Outcome{Lease: lease, InstanceID: c.InstanceID, RetryAfter: r.retry(lease.Remaining)}, nil
}

// draw finds an instance for a node that names none: the one with which it
// stood in line, or a new one. One that leads by now was named by whoever it was drawn for; the
// store would give the same leadership to this campaign too.
func (s *Service) draw(ctx context.Context, group, node string) (instance string, queued bool, err error) {
	if instance, queued = s.turns.unpark(group, node); queued {
		lease, err := s.get(ctx, group)
		if err != nil {
			return "", false, err
		}
		if !lease.HeldBy(baton.Candidate{NodeID: node, InstanceID: instance}) {
			return instance, true, nil
		}
	}
	return newInstance(), false, nil
}

// admit checks all that can be told without trying.
func (s *Service) admit(ctx context.Context, group string, c Campaign) (rules, error) {
	if err := baton.ValidateID("group_id", group); err != nil {
		return rules{}, err
	}
	if err := baton.ValidateID("node_id", c.NodeID); err != nil {
		return rules{}, err
	}
	if c.InstanceID != "" {
		if err := baton.ValidateID("instance_id", c.InstanceID); err != nil {
			return rules{}, err
		}
	}
	if err := baton.ValidateMetadata(c.Metadata); err != nil {
		return rules{}, err
	}
	if c.Wait < 0 {
		return rules{}, &baton.InvalidArgumentError{Field: "wait_ms", Value: c.Wait, Want: "0 or more"}
	}
	r, err := s.rules(ctx, group, freshRules)
	if err != nil {
		return rules{}, err
	}
	if !r.allows(c.NodeID) {
		return rules{}, fmt.Errorf("node %q in group %q: %w", c.NodeID, group, baton.ErrNotAllowed)
	}
	if c.TTL != 0 || c.Wait == 0 {
		if err := r.checkTTL(c.TTL); err != nil {
			return rules{}, err
		}
	}
	return r, nil
}

// try asks the store for the lease.
func (s *Service) try(ctx context.Context, group string, c Campaign, r rules) (Outcome, error) {
	out := Outcome{InstanceID: c.InstanceID}
	if left, other := s.outOfTurn(group, c.Candidate); other {
		// The line's word is a hint; that the group is vacant is only for the store to say.
		lease, err := s.get(ctx, group)
		if err != nil {
			return Outcome{}, err
		}
		if !lease.Held() {
			out.Lease, out.RetryAfter = lease, r.retry(left)
			return out, nil
		}
	}
	asked := s.cfg.Clock.Now()
	lease, err := ask(ctx, s, "campaign in group "+group, func(ctx context.Context) (baton.Lease, error) {
		return s.store.Acquire(ctx, group, c.Candidate, c.TTL)
	})
	var held *baton.HeldError
	switch {
	case err == nil:
		s.won(lease, asked)
		out.Leads, out.Lease = true, lease
		return out, nil
	case errors.As(err, &held):
		s.elections.saw(held.Lease, asked)
		left := held.Lease.Remaining
		if held.RetryAfter > 0 {
			left = held.RetryAfter
		}
		out.Lease, out.RetryAfter = held.Lease, r.retry(left)
		return out, nil
	}
	return Outcome{}, err
}

// outOfTurn reports whether this server's own line keeps the group for another, and how long.
func (s *Service) outOfTurn(group string, c baton.Candidate) (left time.Duration, other bool) {
	if s.own == nil {
		return 0, false
	}
	return s.own.turnOfAnother(group, c)
}

// won tells operators and metrics of a grant, once for each term.
func (s *Service) won(lease baton.Lease, asked time.Duration) {
	e, isNew := s.elections.granted(lease, asked)
	if e.splitBrain {
		s.metrics.splitBrain.Inc()
		s.log.Error("two instances were granted one term", "group", lease.Group, "term", lease.Term,
			"instance", lease.InstanceID, "other_instance", e.previous.InstanceID)
	}
	if !isNew {
		return
	}
	s.metrics.elected(lease.Group, e.leaderless, e.leaderlessKnown)
	attrs := []any{"group", lease.Group, "node", lease.NodeID, "instance", lease.InstanceID, "term", lease.Term, "ttl", lease.TTL}
	if e.previous.NodeID != "" {
		attrs = append(attrs, "previous_node", e.previous.NodeID, "previous_term", e.previous.Term, "previous_ended", e.why)
	}
	if e.leaderlessKnown {
		attrs = append(attrs, "leaderless", e.leaderless)
	}
	s.log.Info("leader elected", attrs...)
}

// await waits in line. It reports false when the time is over.
func (s *Service) await(ctx context.Context, group string, c Campaign) (turn bool, err error) {
	if n := s.waiting.Add(1); n > int64(s.cfg.MaxWaiting) {
		s.waiting.Add(-1)
		return false, fmt.Errorf("%d campaigns wait at this server already: %w", n-1, baton.ErrRateLimited)
	}
	s.metrics.waiting.Inc()
	defer func() {
		s.waiting.Add(-1)
		s.metrics.waiting.Dec()
	}()
	bounded, cancel := context.WithTimeout(ctx, min(c.Wait, s.cfg.MaxWait))
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()
	err = s.line.Await(bounded, group, c.Candidate)
	switch {
	case err == nil:
		return true, nil
	case baton.IsAnswer(err):
		return false, err
	case ctx.Err() == nil && bounded.Err() != nil:
		return false, nil
	}
	return false, unavailable("wait in line for group "+group, err)
}

// newInstance draws a UUID.
func newInstance() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
