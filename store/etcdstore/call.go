package etcdstore

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"baton"
)

var (
	errTimeout  = errors.New("etcd did not answer in time")
	errTorn     = errors.New("the group's record and its bound key contradict each other")
	errConfirm  = errors.New("the keep-alive was not confirmed: etcd changed its leader meanwhile")
	errNotFound = errors.New("etcd does not know the lease that the record names")
	errLost     = errors.New("the answer was lost, and what came of the request can no longer be told")
)

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
