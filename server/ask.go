package server

import (
	"context"
	"errors"
	"time"

	"baton"
)

// ask puts one question to the store, in bounded time. An error that is no
// answer comes back as *baton.UnavailableError, whatever it was.
func ask[T any](ctx context.Context, s *Service, op string, f func(ctx context.Context) (T, error)) (T, error) {
	bounded := &limited{Context: ctx, deadline: time.Now().Add(s.cfg.StoreTimeout)}
	defer bounded.end()
	v, err := f(bounded)
	if err == nil || baton.IsAnswer(err) {
		s.metrics.healthy.Set(1)
		return v, err
	}
	if ctx.Err() == nil { // it was not the caller who gave up
		s.metrics.healthy.Set(0)
	}
	var zero T
	return zero, unavailable(op, err)
}

// tell is ask for what has no answer but success.
func (s *Service) tell(ctx context.Context, op string, f func(ctx context.Context) error) error {
	_, err := ask(ctx, s, op, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// unavailable tells err as what it is, no answer, and hides what it wraps:
// nobody must take for an answer what kept the store from giving one.
func unavailable(op string, err error) error {
	out := &baton.UnavailableError{Op: op}
	var u *baton.UnavailableError
	if errors.As(err, &u) {
		out.RetryAfter, err = u.RetryAfter, u.Err
	}
	if err != nil {
		out.Err = errors.New(err.Error())
	}
	return out
}

func (s *Service) get(ctx context.Context, group string) (baton.Lease, error) {
	return ask(ctx, s, "read group "+group, func(ctx context.Context) (baton.Lease, error) {
		return s.store.Get(ctx, group)
	})
}

func unsupported(s *Service, what string) error {
	return &baton.ConflictError{
		Reason:  baton.ConflictUnsupported,
		Message: "the " + s.store.Guarantees().Store + " store cannot " + what,
	}
}
