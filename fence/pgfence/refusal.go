package pgfence

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"baton"
	"baton/fence"
)

// The SQLSTATEs with which schema.sql refuses.
const (
	codeStale      = "BF001"
	codeRepeat     = "BF002"
	codeNotAdopted = "BF003"
	codeWrongGroup = "BF004"
)

// refusal turns what schema.sql raised into fence's errors; other errors pass.
func refusal(resource string, c fence.Claim, err error) error {
	// An interface, so that a driver of database/sql other than pgx at least
	// keeps the kind.
	var state interface{ SQLState() string }
	if !errors.As(err, &state) {
		return err
	}
	held := fence.Record{}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		held = parseRecord(pgErr.Detail)
	}
	switch state.SQLState() {
	case codeStale:
		return &fence.StaleError{Resource: resource, Offered: c, Held: held}
	case codeRepeat:
		return &fence.RepeatError{Resource: resource, Offered: c, Held: held}
	case codeNotAdopted:
		return &fence.NotAdoptedError{Resource: resource, Offered: c, Held: held}
	case codeWrongGroup:
		return &fence.WrongGroupError{Resource: resource, Offered: c, Held: held}
	}
	return err
}

func parseRecord(detail string) fence.Record {
	var d struct {
		Group    string     `json:"group"`
		Term     baton.Term `json:"term"`
		Instance string     `json:"instance"`
		LastSeq  int64      `json:"last_seq"`
	}
	if err := json.Unmarshal([]byte(detail), &d); err != nil {
		return fence.Record{}
	}
	return fence.Record{Group: d.Group, Term: d.Term, InstanceID: d.Instance, LastSeq: d.LastSeq}
}

// aborted is for failures before the commit was sent. A refusal needs no mark.
func aborted(what string, resource string, c fence.Claim, err error) error {
	if r := refusal(resource, c, err); fence.Refused(r) {
		return r
	}
	return &fence.AbortedError{Err: fmt.Errorf("%s %v to resource %q: %w", what, c, resource, err)}
}

// committed is for failures of the commit. If the server answered with an
// error, the transaction is gone. Otherwise nobody knows.
func committed(resource string, c fence.Claim, err error) error {
	var pgErr *pgconn.PgError
	answered := errors.As(err, &pgErr) && pgErr.SeverityUnlocalized == "ERROR"
	if answered || errors.Is(err, pgx.ErrTxCommitRollback) {
		return aborted("commit", resource, c, err)
	}
	return fmt.Errorf("commit %v to resource %q: %w", c, resource, err)
}
