package pgstore

import (
	"context"
	"time"

	"baton"
)

const (
	// turnKept is how long each in line has before the next one is called; the
	// functions of the database say the same.
	turnKept = time.Second
	// signEvery is how often one who waits gives a sign of life, and looks
	// whether a vacancy escaped it. A place is kept for 7 seconds after the last one, so at
	// least 5 are left of one that is given up between polls.
	signEvery = 2 * time.Second
)

// Await takes a place in line and returns when it is c's turn: at once when the
// group is vacant and nobody is ahead, and a second later for each who is ahead
// and does not come. So one who died costs a second, and one vacancy calls one.
// For the holder it is always its turn.
func (s *Store) Await(ctx context.Context, group string, c baton.Candidate) error {
	if err := baton.ValidateID("group", group); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	inner, cancel := s.calls.BeginWait(ctx)
	defer cancel()
	return s.calls.Fail(ctx, "await", s.await(inner, group, c))
}

func (s *Store) await(ctx context.Context, group string, c baton.Candidate) error {
	ear := s.hints.of(group)
	defer ear.stop()
	for {
		wait, err := s.takePlace(ctx, group, c)
		if err != nil || wait <= 0 {
			return err
		}
		if called, err := ear.await(ctx, c, min(wait, signEvery)); called || err != nil {
			return err
		}
	}
}

// await returns when c is called, or when it should ask, which is after wait at the latest.
func (e *ear) await(ctx context.Context, c baton.Candidate, wait time.Duration) (called bool, err error) {
	sign, again := time.NewTimer(signEvery), time.NewTimer(wait)
	defer sign.Stop()
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-sign.C:
			return false, nil
		case <-again.C:
			return false, nil
		case h := <-e.heard:
			switch {
			case h.missed, h.open && h.node == "":
				return false, nil // this place was not seen yet when it was looked who is first
			case h.names(c):
				return h.open, nil // or look how long the one that leads now may
			case h.open:
				again.Reset(turnKept) // the one that is called may not come
			default:
				again.Stop()
			}
		}
	}
}

// takePlace takes a place, or keeps the one that there is, and returns after
// how long it makes sense to ask again: 0 when it is c's turn.
func (s *Store) takePlace(ctx context.Context, group string, c baton.Candidate) (time.Duration, error) {
	var wait int64
	err := s.look(ctx, func(ctx context.Context) error {
		return s.waits.QueryRow(ctx, s.schema.in(`SELECT baton.await($1, $2, $3)`), group, c.NodeID, c.InstanceID).Scan(&wait)
	})
	return micros(wait), err
}

// look sends a request of one who waits, in bounded time.
func (s *Store) look(ctx context.Context, request func(ctx context.Context) error) error {
	ctx, cancel := s.calls.Begin(ctx)
	defer cancel()
	return try(ctx, s.waits, request)
}
