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

var (
	errClosed  = errors.New("the store is closed")
	errTimeout = errors.New("redis did not answer in time")
)

// begin bounds a call: by the caller's context, by Close, and, unless it waits
// by its nature, by the timeout.
func (s *Store) begin(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	var cancel context.CancelFunc
	if timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errTimeout)
	} else {
		ctx, cancel = context.WithCancel(ctx)
	}
	unlink := context.AfterFunc(s.life, cancel)
	return ctx, func() { unlink(); cancel() }
}

// fail makes of whatever stopped a call the error that its caller gets. outer
// is the context that the caller gave.
func (s *Store) fail(outer context.Context, op string, err error) error {
	switch {
	case err == nil || baton.IsAnswer(err):
		return err
	case s.life.Err() != nil:
		return &baton.UnavailableError{Op: op, Err: errClosed}
	case outer.Err() != nil:
		return fmt.Errorf("%s: %w", op, outer.Err())
	case passed(outer):
		return fmt.Errorf("%s: %w", op, context.DeadlineExceeded)
	}
	return kindOf(op, err)
}

// passed reports whether the deadline of ctx has passed. The client goes by
// the deadline, and may be earlier than the context itself.
func passed(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
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
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed
	}
	s.chores.Go(func() { done <- f(ctx) })
	s.mu.Unlock()
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
	bounded, cancel := s.begin(ctx, s.timeout)
	defer cancel()
	st, err := s.run(bounded, script, group, args...)
	return st, s.fail(ctx, op, err)
}

// requestID names one request, so that a client which sends it twice is not
// told by the second that the first was in vain.
func requestID() string { return rand.Text() }
