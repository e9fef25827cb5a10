package baton

import (
	"context"
	"iter"
)

// Elector turns a store, or a set of peers, into "you lead now" and "you must
// stop now".
type Elector interface {
	// Campaign blocks until this node is elected. ctx bounds the wait only; the
	// leadership ends by Resign, loss or Close. One campaign or leadership at a time:
	// otherwise *ConflictError with reason ConflictBusy.
	Campaign(ctx context.Context) (*Leadership, error)
	// Observe yields who leads, and then every change: also that nobody does, and
	// why, and also that it cannot be told. It ends with ctx.
	Observe(ctx context.Context) iter.Seq2[Event, error]
	// Close resigns what is led and ends what waits.
	Close() error
}
