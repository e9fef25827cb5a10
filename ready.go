package baton

import (
	"context"
	"errors"
	"sync"
)

var errReadyHangs = errors.New("the readiness check does not answer")

// readiness asks Config.Ready, once at a time.
type readiness struct {
	mu      sync.Mutex
	pending chan error // the answer of the check that was called last, if it is still owed
}

// ready asks whether this node could do the work. No answer within ReadyEvery is a no, even if
// the check does not heed its context: a database that hangs is what it is asked about.
// Such a check is not called again before it has returned.
func (e *LeaseElector) ready(ctx context.Context) error {
	if e.cfg.Ready == nil {
		return nil
	}
	ctx, cancel := withTimeout(ctx, e.cfg.Clock, e.cfg.ReadyEvery)
	defer cancel()
	r := &e.readiness
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending != nil {
		// What it says now was asked at another time, under a context that has ended.
		if err := r.await(ctx); errors.Is(err, errReadyHangs) {
			return err
		}
	}
	answer := make(chan error, 1)
	r.pending = answer
	e.owned.Go(func() { answer <- e.cfg.Ready(ctx) })
	return r.await(ctx)
}

func (r *readiness) await(ctx context.Context) error {
	select {
	case err := <-r.pending:
		r.pending = nil
		return err
	case <-ctx.Done():
		return errReadyHangs
	}
}
