package pgstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"baton"
)

// wrongForGood are the SQLSTATEs that waiting does not help against when a
// store is opened: there is no such database or schema, the server cannot what is asked of
// it, and the schema has tables that are not this store's. Later they are unavailability,
// since somebody may be restoring the database.
var wrongForGood = []string{"3D000", "3F000", "0A000", "42"}

// refused is Calls.Fail for a store that is being opened.
func (s *Store) refused(outer context.Context, op string, err error) error {
	var certificate *tls.CertificateVerificationError
	failed := s.calls.Fail(outer, op, err)
	switch {
	case !errors.Is(failed, baton.ErrUnavailable) || s.calls.Life().Err() != nil:
		return failed
	case isCode(err, wrongForGood...):
		return fmt.Errorf("%s: postgres: %w: %w", op, baton.ErrInvalidArgument, inOneLine(err))
	case errors.As(err, &certificate):
		return fmt.Errorf("%s: postgres: %w: %w", op, baton.ErrUnauthenticated, inOneLine(err))
	}
	return failed
}

// connectError is a pgconn.ConnectError that says in one line, and once, what
// came of each attempt.
type connectError struct {
	err  error
	text string
}

func (e *connectError) Error() string { return e.text }
func (e *connectError) Unwrap() error { return e.err }

// inOneLine is err with another text, if it is of a connection that was not made.
func inOneLine(err error) error {
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return err
	}
	var texts []string
	for _, attempt := range attempts(connect.Unwrap()) {
		// The same host is tried with TLS and without.
		if text := attemptText(attempt); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return &connectError{err: err, text: fmt.Sprintf("connect as user %q to database %q: %s",
		connect.Config.User, connect.Config.Database, strings.Join(texts, "; "))}
}

// attempts are the errors that were joined, wherever in the chain that was.
func attempts(err error) []error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if joined, ok := e.(interface{ Unwrap() []error }); ok {
			return joined.Unwrap()
		}
	}
	return []error{err}
}

// attemptText leaves out the address that pgx puts before an error which names it already, and
// the name of a host that is its address.
func attemptText(err error) string {
	var network *net.OpError
	if errors.As(err, &network) {
		return network.Error()
	}
	text := err.Error()
	if address, rest, ok := strings.Cut(text, " ("); ok {
		if host, what, ok := strings.Cut(rest, "): "); ok && strings.HasPrefix(strings.Trim(address, "["), host) {
			text = address + ": " + what
		}
	}
	return strings.Join(strings.Fields(text), " ")
}
