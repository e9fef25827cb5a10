package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"baton"
)

var errTimeout = errors.New("redis did not answer in time")

// fail makes of whatever stopped a call the error that its caller gets. outer
// is the context that the caller gave.
func (s *Store) fail(outer context.Context, op string, err error) error {
	return s.calls.Fail(punctual{outer}, op, err)
}

// punctual is a context that is over as soon as its deadline has passed. The
// client goes by the deadline, and may be earlier than the context itself.
type punctual struct{ context.Context }

func (c punctual) Err() error {
	err := c.Context.Err()
	if deadline, ok := c.Deadline(); err == nil && ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return err
}

// kindOf tells refusals from failures. A right that a script lacks half-way is
// no refusal: what it did until then is done.
func kindOf(op string, err error) error {
	var known *baton.UnavailableError
	var said redis.Error
	switch {
	case errors.As(err, &known):
		return err
	case !errors.As(err, &said):
	case strings.HasPrefix(said.Error(), "NOPERM") && !strings.Contains(said.Error(), "in script") &&
		!strings.Contains(said.Error(), "executing the script"): // as Redis 6 says it
		return fmt.Errorf("%s: redis: %w: %w", op, baton.ErrNotAllowed, err)
	case strings.HasPrefix(said.Error(), "NOAUTH"), strings.HasPrefix(said.Error(), "WRONGPASS"),
		strings.HasPrefix(said.Error(), "ERR AUTH"), strings.HasPrefix(said.Error(), "ERR invalid password"):
		return fmt.Errorf("%s: redis: %w: %w", op, baton.ErrUnauthenticated, err)
	}
	return &baton.UnavailableError{Op: op, Err: err}
}

// isRedis reports whether Redis itself said so: it was there, and refused.
func isRedis(err error) bool {
	var said redis.Error
	return errors.As(err, &said)
}

// within runs f until ctx ends. The client waits for an answer until its
// deadline, also when ctx is cancelled: then it is left behind, and Close waits for it.
func (s *Store) within(ctx context.Context, f func(context.Context) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	done := make(chan error, 1)
	if err := s.calls.Go(func() { done <- f(ctx) }); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run runs a script on the keys of a group. Redis forgets scripts when it
// restarts or is told to; then it is sent whole.
func (s *Store) run(ctx context.Context, script *redis.Script, group string, args ...any) (*state, error) {
	answer := make(chan []any, 1)
	err := s.within(ctx, func(ctx context.Context) error {
		reply, err := script.Run(ctx, s.rdb, s.keys.group(group), args...).Slice()
		answer <- reply
		return err
	})
	if err != nil {
		return nil, err
	}
	return parseReply(group, <-answer)
}

// call is a run that answers in bounded time.
func (s *Store) call(ctx context.Context, op string, script *redis.Script, group string, args ...any) (*state, error) {
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	st, err := s.run(bounded, script, group, args...)
	return st, s.fail(ctx, op, err)
}

// requestID names one request, so that a client which sends it twice is not
// told by the second that the first was in vain.
func requestID() string { return rand.Text() }
