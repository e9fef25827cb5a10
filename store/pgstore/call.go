package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"baton"
)

var errTimeout = errors.New("postgres did not answer in time")

// try sends one request, and sends it again only if it is known to have had no
// effect: it was never sent, or Postgres has rolled it back.
func try(ctx context.Context, pool *pgxpool.Pool, request func(ctx context.Context) error) error {
	const attempts = 5
	for n := 1; ; n++ {
		err := request(ctx)
		if err == nil {
			return nil
		}
		if broken(err) {
			// The others of the pool are as old: what cut this one off has most likely cut off them.
			pool.Reset()
		}
		again := isCode(err, "40001", "40P01") || broken(err) && pgconn.SafeToRetry(err)
		if !again || n == attempts || ctx.Err() != nil {
			return err
		}
	}
}

// broken reports whether the connection is of no more use, and it is not that
// somebody did not want to wait any longer.
func broken(err error) bool {
	if isCode(err, "57P", "25006") {
		return true // it shuts down, or takes no writes any more
	}
	var network net.Error
	if errors.As(err, &network) && network.Timeout() {
		return false
	}
	var connect *pgconn.ConnectError
	return !errors.As(err, &connect) && (errors.As(err, &network) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF))
}

// kindOf tells refusals from failures. Postgres has rolled back what it refused.
func kindOf(op string, err error) error {
	var known *baton.UnavailableError
	if errors.As(err, &known) {
		return err
	}
	err = inOneLine(err)
	switch {
	case isCode(err, "28"):
		return fmt.Errorf("%s: postgres: %w: %w", op, baton.ErrUnauthenticated, err)
	case isCode(err, "42501"):
		return fmt.Errorf("%s: postgres: %w: %w", op, baton.ErrNotAllowed, err)
	case isCode(err, "22"):
		return fmt.Errorf("%s: postgres: %w: %w", op, baton.ErrInvalidArgument, err)
	case errors.Is(err, context.DeadlineExceeded), isCode(err, "57014"):
		err = fmt.Errorf("%w: %w", errTimeout, err)
	}
	return &baton.UnavailableError{Op: op, Err: err}
}
