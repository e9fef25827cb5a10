package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"baton"
)

// The exit codes of every command. Scripts rely on them.
const (
	exitOK = 0
	// exitFailure is what none of the others fits.
	exitFailure = 1
	// exitUsage: the command cannot be carried out as it was given.
	exitUsage = 2
	// exitNotLeader: nobody leads, or not the one that was named.
	exitNotLeader = 3
	exitNotFound  = 4
	// exitUnavailable: no server answered, or its store could not decide; the outcome is unknown.
	exitUnavailable = 5
	exitConflict    = 6
	exitDenied      = 7
	// exitInterrupted: a signal came before the command was done.
	exitInterrupted = 130
)

const exitCodesHelp = `Every command of baton ends with one of these codes:

    0  done; for campaign and watch also: ended by Ctrl-C, as they are meant to be
    1  failed for a reason that is none of the following
    2  bad usage: an unknown command or flag, a value out of bounds,
       an address that cannot be listened on, a store that is not known, a
       data directory that this server must not or cannot use
    3  not the leader: nobody leads, the leadership that was named is over,
       a campaign was not won in time, or a leadership was lost
    4  not found: no such group
    5  unavailable: no server could be reached, or its store could not decide;
       the request may or may not have taken effect
    6  conflict: refused because of the state that things are in, such as a
       successor that is not in line or a group that is held
    7  denied: not authenticated, or not allowed
  130  interrupted by a signal before it was done`

// usageError is a command that was given wrongly.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// quietError ends a command that has already said what there is to say.
type quietError struct{ code int }

func (e *quietError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// exitByKind has every kind of error.
var exitByKind = map[error]int{
	baton.ErrInvalidArgument: exitUsage,
	baton.ErrInvalidTTL:      exitUsage,
	baton.ErrTooLarge:        exitUsage,
	baton.ErrNotLeader:       exitNotLeader,
	baton.ErrNotFound:        exitNotFound,
	baton.ErrUnavailable:     exitUnavailable,
	baton.ErrRateLimited:     exitUnavailable,
	baton.ErrConflict:        exitConflict,
	baton.ErrHeld:            exitConflict,
	baton.ErrNotAllowed:      exitDenied,
	baton.ErrUnauthenticated: exitDenied,
}

// exitCode finds the code for err.
func exitCode(err error) int {
	var quiet *quietError
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &quiet):
		return quiet.code
	case errors.As(err, &usage):
		return exitUsage
	}
	if kind, ok := baton.KindOf(err); ok {
		return exitByKind[kind.Err]
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	return exitFailure
}

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesHelp}
}
