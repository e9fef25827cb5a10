package httpapi_test

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"time"

	"baton"
	"baton/store/memstore"
)

// counted is a store that counts the Acquires it sees.
type counted struct {
	*memstore.Store
	acquires atomic.Int64
}

func (c *counted) Acquire(ctx context.Context, group string, cand baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	c.acquires.Add(1)
	return c.Store.Acquire(ctx, group, cand, ttl)
}

// plain hides all that a store can do besides being one.
type plain struct{ baton.Store }

// broken is a store that cannot decide: it fails at once, or not before its
// time is up, if hang is set. What it answers is changed while it is in use.
type broken struct {
	*memstore.Store
	state atomic.Int32
}

const (
	works int32 = iota
	fails
	hangs
)

var errNoQuorum = errors.New("no quorum")

func (b *broken) trouble(ctx context.Context) error {
	switch b.state.Load() {
	case fails:
		return errNoQuorum
	case hangs:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (b *broken) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	if err := b.trouble(ctx); err != nil {
		return baton.Lease{}, err
	}
	return b.Store.Acquire(ctx, group, c, ttl)
}

func (b *broken) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	if err := b.trouble(ctx); err != nil {
		return baton.Lease{}, err
	}
	return b.Store.Renew(ctx, id, extend)
}

func (b *broken) Release(ctx context.Context, id baton.LeaseID) error {
	if err := b.trouble(ctx); err != nil {
		return err
	}
	return b.Store.Release(ctx, id)
}

func (b *broken) Get(ctx context.Context, group string) (baton.Lease, error) {
	if err := b.trouble(ctx); err != nil {
		return baton.Lease{}, err
	}
	return b.Store.Get(ctx, group)
}

func (b *broken) Await(ctx context.Context, group string, c baton.Candidate) error {
	if err := b.trouble(ctx); err != nil {
		return err
	}
	return b.Store.Await(ctx, group, c)
}

func (b *broken) End(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	if err := b.trouble(ctx); err != nil {
		return err
	}
	return b.Store.End(ctx, group, term, e)
}

func (b *broken) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	return func(yield func(baton.Event, error) bool) {
		if err := b.trouble(ctx); err != nil {
			yield(baton.Event{}, err)
			return
		}
		for e, err := range b.Store.Watch(ctx, group, after) {
			if !yield(e, err) {
				return
			}
		}
	}
}

func (b *broken) Group(ctx context.Context, id string) (baton.Group, error) {
	if err := b.trouble(ctx); err != nil {
		return baton.Group{}, err
	}
	return b.Store.Group(ctx, id)
}

func (b *broken) Groups(ctx context.Context) ([]baton.Group, error) {
	if err := b.trouble(ctx); err != nil {
		return nil, err
	}
	return b.Store.Groups(ctx)
}

func (b *broken) History(ctx context.Context, group string) ([]baton.PastTerm, error) {
	if err := b.trouble(ctx); err != nil {
		return nil, err
	}
	return b.Store.History(ctx, group)
}
