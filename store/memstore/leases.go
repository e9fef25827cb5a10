package memstore

import (
	"context"
	"errors"
	"iter"
	"time"

	"baton"
	"baton/internal/leasefsm"
)

// Acquire grants a vacant group. While a turn is kept for another candidate,
// it answers *baton.HeldError with the vacant state, and what is left of the turn.
func (s *Store) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return baton.Lease{}, err
	}
	if err := c.Validate(); err != nil {
		return baton.Lease{}, err
	}
	if err := guarantees.ValidateTTL(ttl); err != nil {
		return baton.Lease{}, err
	}
	var lease baton.Lease
	err := s.do(ctx, "acquire", func(now time.Duration) error {
		if err := s.record.Refusal(group, c); err != nil {
			return s.fill(err, now)
		}
		if err := s.outOfTurn(group, c); err != nil {
			return err
		}
		result := s.apply(leasefsm.Acquire{Group: group, Candidate: c, TTL: ttl, Stamp: stamp()}, now)
		if result.Err != nil {
			return s.fill(result.Err, now)
		}
		if !result.Granted {
			if err := s.postpone(result.Lease, ttl, now); err != nil {
				return err
			}
		}
		lease = s.withRemaining(result.Lease, now)
		return nil
	})
	return lease, err
}

// Renew lets exactly this leadership last for extend from now, unless it is being ended.
func (s *Store) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	if err := id.Validate(); err != nil {
		return baton.Lease{}, err
	}
	if err := guarantees.ValidateExtend(extend); err != nil {
		return baton.Lease{}, err
	}
	var lease baton.Lease
	err := s.do(ctx, "renew", func(now time.Duration) error {
		held, err := s.record.Leadership(id)
		if err != nil {
			return s.fill(err, now)
		}
		if extend > held.TTL {
			result := s.apply(leasefsm.Extend{ID: id, TTL: extend}, now)
			if result.Err != nil {
				return s.fill(result.Err, now)
			}
			held = result.Lease
		}
		if err := s.postpone(held, extend, now); err != nil {
			return err
		}
		lease = s.withRemaining(held, now)
		return nil
	})
	return lease, err
}

// Release ends exactly this leadership.
func (s *Store) Release(ctx context.Context, id baton.LeaseID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	return s.do(ctx, "release", func(now time.Duration) error {
		return s.fill(s.apply(leasefsm.Release{ID: id, Stamp: stamp()}, now).Err, now)
	})
}

// Get reads the group.
func (s *Store) Get(ctx context.Context, group string) (baton.Lease, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return baton.Lease{}, err
	}
	var lease baton.Lease
	err := s.do(ctx, "get", func(now time.Duration) error {
		lease = s.withRemaining(s.record.Get(group), now)
		return nil
	})
	return lease, err
}

// Watch yields the state of the group, or what came after the cursor, then every change.
func (s *Store) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	if err := baton.ValidateID("group", group); err != nil {
		return func(yield func(baton.Event, error) bool) { yield(baton.Event{}, err) }
	}
	return s.feed.Watch(ctx, group, after, func() baton.Event {
		var state baton.Event
		// A store that was closed leaves the event without a type, which ends the watch.
		_ = s.do(context.WithoutCancel(ctx), "watch", func(time.Duration) error {
			state = s.record.State(group)
			return nil
		})
		return state
	})
}

// postpone moves the deadline of a lease that is held and not being ended.
func (s *Store) postpone(l baton.Lease, extend, now time.Duration) error {
	if l.Ending != nil {
		return nil
	}
	if _, err := s.deadlines.Renew(l.Group, l.Term, extend, now); err != nil {
		return &baton.UnavailableError{Op: "renew", Err: err}
	}
	return nil
}

func (s *Store) withRemaining(l baton.Lease, now time.Duration) baton.Lease {
	if l.Held() {
		l.Remaining = s.deadlines.Remaining(l.Group, l.Term, now)
	}
	return l
}

// fill completes a refusal of the record, which knows no clock.
func (s *Store) fill(err error, now time.Duration) error {
	var held *baton.HeldError
	var not *baton.NotLeaderError
	switch {
	case errors.As(err, &held):
		held.Lease = s.withRemaining(held.Lease, now)
		held.RetryAfter = held.Lease.Remaining
	case errors.As(err, &not) && not.Current != nil:
		*not.Current = s.withRemaining(*not.Current, now)
	}
	return err
}
