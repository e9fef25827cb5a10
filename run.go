package baton

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// ExitOverrun is the exit status of a process that ExitOnOverrun ended.
const ExitOverrun = 70

// ExitOnOverrun ends the process when its work does not stop in time. Work
// that can block for longer than it may be trusted should be given it as Config.OnOverrun:
// a process that is gone cannot act.
func ExitOnOverrun(o Overrun) {
	fmt.Fprintln(os.Stderr, "baton:", o)
	os.Exit(ExitOverrun)
}

// Run campaigns and calls work each time it is elected, and never twice at once.
//
// Work that returns while it leads has done its job: the lease is released, and
// Run returns the work's result. Work that returns because its context ended
// is called again after the next election. When ctx ends, the work is asked to
// stop; once it has returned the lease is released and Run returns ctx.Err(),
// joined with the work's own error if that is about something else.
//
// An error of the campaign itself, such as a node id that is used twice, is returned.
func Run(ctx context.Context, e Elector, work func(ctx context.Context, l *Leadership) error) error {
	for {
		l, err := e.Campaign(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
		if done, err := lead(ctx, l, work); done {
			return err
		}
	}
}

// lead does one leadership's work and reports whether Run is done.
func lead(ctx context.Context, l *Leadership, work func(context.Context, *Leadership) error) (done bool, err error) {
	if ctx.Err() != nil || !l.begin() {
		// It ended before it began: the lease may be another's by now.
		_ = l.release(context.WithoutCancel(ctx))
		return ctx.Err() != nil, ctx.Err()
	}
	asked := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(asked)
		// Never waits: the work is running.
		_ = l.resign(ctx, context.Cause(ctx))
	})
	// Deferred, so that work that panics does not leave a lease behind that
	// is renewed for ever.
	defer func() {
		if !unhook() {
			<-asked
		}
		l.finish()
		// A failure costs the others the rest of the TTL and is logged by the elector.
		_ = l.release(context.WithoutCancel(ctx))
	}()
	err = work(l.Context(), l)
	switch {
	case ctx.Err() != nil:
		if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Cause(ctx)) {
			return true, ctx.Err()
		}
		return true, errors.Join(ctx.Err(), err)
	case l.Cause() == nil:
		return true, err
	default:
		return false, nil
	}
}
