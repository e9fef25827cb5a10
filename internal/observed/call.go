package observed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"baton"
)

var (
	errClosed  = errors.New("the store is closed")
	errTimeout = errors.New("no answer in time")
	errBusy    = errors.New("others change the group all the time")
	errLost    = errors.New("the answer was lost, and what came of the request can no longer be told")
)

// retryPause is between two attempts after the first one's answer was lost.
const retryPause = 20 * time.Millisecond

// Begin bounds a call: by the caller's context, by Close, and, unless it waits
// by its nature, by the timeout.
func (l *Leases) Begin(ctx context.Context, bounded bool) (context.Context, context.CancelFunc) {
	var cancel context.CancelFunc
	if bounded {
		ctx, cancel = context.WithTimeoutCause(ctx, l.timeout, errTimeout)
	} else {
		ctx, cancel = context.WithCancel(ctx)
	}
	if l.life.Err() != nil {
		cancel() // at once, and not when a goroutine comes to it
	}
	unlink := context.AfterFunc(l.life, cancel)
	return ctx, func() { unlink(); cancel() }
}

// Fail makes of whatever stopped a call the error that its caller gets. outer
// is the context that the caller gave.
func (l *Leases) Fail(outer context.Context, op string, err error) error {
	var known *baton.UnavailableError
	switch {
	case err == nil || baton.IsAnswer(err):
		return err
	case l.life.Err() != nil:
		return &baton.UnavailableError{Op: op, Err: errClosed}
	case outer.Err() != nil:
		return fmt.Errorf("%s: %w", op, outer.Err())
	case errors.As(err, &known):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: %w", errTimeout, err)
	}
	return &baton.UnavailableError{Op: op, Err: err}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
