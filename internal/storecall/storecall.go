// Package storecall bounds the calls of a store that asks a server: by the
// caller's context, by the store's Close and, unless they wait by their nature, by
// its timeout. It also makes of whatever stopped a call the error that its caller gets.
package storecall

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"baton"
)

// ErrBusy is why a call failed that found the group changed whenever it tried.
var ErrBusy = errors.New("others change the group all the time")

var (
	errClosed = errors.New("the store is closed")
	errLeft   = errors.New("the reader left")
)

// Calls are those of one store, from New to Close.
type Calls struct {
	timeout time.Duration
	late    error
	kindOf  func(op string, err error) error

	life context.Context // ends with Close
	end  context.CancelFunc

	mu     sync.Mutex     // nothing is added to chores once life has ended
	chores sync.WaitGroup // goroutines that may outlive the call that started them
}

// New begins the life of a store. late is the cause that a call has when the
// timeout has passed; kindOf makes of a failure the error of a call, and tells refusals from it.
func New(timeout time.Duration, late error, kindOf func(op string, err error) error) *Calls {
	c := &Calls{timeout: timeout, late: late, kindOf: kindOf}
	c.life, c.end = context.WithCancel(context.Background())
	return c
}

// Life ends with Close.
func (c *Calls) Life() context.Context { return c.life }

// Close ends all calls and waits for the chores. It reports whether it is the first to do so.
func (c *Calls) Close() (first bool) {
	first = c.End()
	c.Wait()
	return first
}

// End is the first half of Close, for a store whose chores last until it has
// cut its connections. It reports whether it is the first to do so.
func (c *Calls) End() (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first = c.life.Err() == nil
	c.end()
	return first
}

// Wait is the second half of Close: it waits for the chores, of which there are no more after End.
func (c *Calls) Wait() { c.chores.Wait() }

// Begin bounds a call that answers in time.
func (c *Calls) Begin(ctx context.Context) (context.Context, context.CancelFunc) {
	return c.linked(context.WithTimeoutCause(ctx, c.timeout, c.late))
}

// BeginWait bounds a call that waits by its nature.
func (c *Calls) BeginWait(ctx context.Context) (context.Context, context.CancelFunc) {
	return c.linked(context.WithCancel(ctx))
}

func (c *Calls) linked(ctx context.Context, cancel context.CancelFunc) (context.Context, context.CancelFunc) {
	if c.life.Err() != nil {
		cancel() // at once, and not when a goroutine comes to it: nothing is sent after Close
	}
	unlink := context.AfterFunc(c.life, cancel)
	return ctx, func() { unlink(); cancel() }
}

// Fail makes of whatever stopped a call the error that its caller gets. outer
// is the context that the caller gave.
func (c *Calls) Fail(outer context.Context, op string, err error) error {
	switch {
	case err == nil || baton.IsAnswer(err):
		return err
	case c.life.Err() != nil:
		return &baton.UnavailableError{Op: op, Err: errClosed}
	case outer.Err() != nil:
		return fmt.Errorf("%s: %w", op, outer.Err())
	}
	return c.kindOf(op, err)
}

// Until is a call that attempts something until it is done, as long as others
// are faster.
func (c *Calls) Until(ctx context.Context, op string, attempt func(context.Context) (done bool, err error)) error {
	bounded, cancel := c.Begin(ctx)
	defer cancel()
	for bounded.Err() == nil {
		done, err := attempt(bounded)
		if done || err != nil {
			return c.Fail(ctx, op, err)
		}
	}
	return c.Fail(ctx, op, ErrBusy)
}

// Watch is a call that yields the events that run tells, and then why it ended,
// unless that is because tell failed: then the reader has left.
func (c *Calls) Watch(ctx context.Context, group string, run func(ctx context.Context, tell func(baton.Event) error) error) iter.Seq2[baton.Event, error] {
	return func(yield func(baton.Event, error) bool) {
		if err := baton.ValidateID("group", group); err != nil {
			yield(baton.Event{}, err)
			return
		}
		inner, cancel := c.BeginWait(ctx)
		defer cancel()
		err := run(inner, func(ev baton.Event) error {
			if !yield(ev, nil) {
				return errLeft
			}
			return nil
		})
		if !errors.Is(err, errLeft) {
			yield(baton.Event{}, c.Fail(ctx, "watch", err))
		}
	}
}

// Chore runs f apart from the call that wants it done; Close waits for it.
func (c *Calls) Chore(f func(ctx context.Context)) {
	_ = c.Go(func() { // what is not begun after Close needs not be done
		ctx, cancel := context.WithTimeout(c.life, c.timeout)
		defer cancel()
		f(ctx)
	})
}

// Go runs f, which bounds itself, apart from its caller. Close waits for it;
// after Close it is not run, and that is an error.
func (c *Calls) Go(f func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return errClosed
	}
	c.chores.Go(f)
	return nil
}

// RetryPause is between two attempts at something that failed.
const RetryPause = 20 * time.Millisecond

// Pause waits, unless ctx ends first.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
