package observed

import (
	"context"
	"errors"
)

// Version tells one write of a group's record from every other. It is compared
// for equality only. "" is the version of a record that does not exist.
type Version string

// Snapshot is a group as one read found it.
type Snapshot struct {
	Record  Record
	Version Version
	// Place tells the cursors of this store from all others'. It has no dash in it.
	Place string
	// Aside is the register's own: what it needs to know again when this
	// snapshot is replaced, the version of a second object, say.
	Aside any
}

// ErrChanged is Swap's answer when the record is not what it was: nothing will
// be written. Nothing was, either, unless the request was repeated on its way:
// then it may be the first that has changed the record.
var ErrChanged = errors.New("the record has changed")

// Register keeps one record per group. How a record is written down is the
// register's business; it may hold foreign holders that were never granted
// anything by this package, with term 0.
//
// Errors that baton.IsAnswer knows are refusals: nothing was and nothing will be
// written. All others but ErrChanged leave the outcome unknown. Contexts bound all calls.
type Register interface {
	// Read is linearizable: what it returns is no older than the call. A
	// group that was never written has the zero Record, with Term the one that its first grant
	// must exceed.
	Read(ctx context.Context, group string) (Snapshot, error)

	// Swap replaces old, as it was read or returned by Swap, by next, or
	// answers ErrChanged. If next.Term is above old's, that is a grant, and the term must be
	// safe, however the record is lost, before the grant takes effect. If next.Ended is above old's,
	// a leadership has ended, and next.Last, its line of the history, is kept for Past.
	Swap(ctx context.Context, group string, old Snapshot, next Record) (Snapshot, error)

	// Wait returns nil when the version may be another than known, at once if
	// it is by now. It may return early for no reason; that costs a read.
	Wait(ctx context.Context, group string, known Version) error

	// Past returns what is kept of the leaderships that ended, in any order.
	Past(ctx context.Context, group string) ([]Past, error)
}

// Peeker is a register that can be read more cheaply by those who only wait
// for something to happen.
type Peeker interface {
	// Peek is Read, but what it returns may be older than the call.
	Peek(ctx context.Context, group string) (Snapshot, error)
}
