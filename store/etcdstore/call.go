package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"baton"
)

var (
	errClosed   = errors.New("the store is closed")
	errTimeout  = errors.New("etcd did not answer in time")
	errBusy     = errors.New("others change the group all the time")
	errTorn     = errors.New("the group's record and its bound key contradict each other")
	errConfirm  = errors.New("the keep-alive was not confirmed: etcd changed its leader meanwhile")
	errNotFound = errors.New("etcd does not know the lease that the record names")
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
	}
	return kindOf(op, err)
}

// kindOf tells refusals from failures.
func kindOf(op string, err error) error {
	var known *baton.UnavailableError
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%s: etcd: %w: %w", op, baton.ErrNotAllowed, err)
	case errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrUserEmpty),
		errors.Is(err, rpctypes.ErrInvalidAuthToken), status.Code(err) == codes.Unauthenticated:
		return fmt.Errorf("%s: etcd: %w: %w", op, baton.ErrUnauthenticated, err)
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded:
		err = fmt.Errorf("%w: %w", errTimeout, err)
	}
	return &baton.UnavailableError{Op: op, Err: err}
}

// refused reports whether asking again, or somebody else, is pointless.
func refused(err error) bool {
	code := status.Code(err)
	var etcd rpctypes.EtcdError
	if errors.As(err, &etcd) {
		code = etcd.Code()
	}
	switch code {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.NotFound, codes.OutOfRange:
		return true
	}
	return false
}

// chore runs f apart from the call that wants it done; Close waits for it.
func (s *Store) chore(f func(ctx context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.chores.Go(func() {
		ctx, cancel := context.WithTimeout(s.life, s.timeout)
		defer cancel()
		f(ctx)
	})
}
