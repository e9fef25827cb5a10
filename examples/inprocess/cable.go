package main

import (
	"context"
	"iter"
	"time"

	"baton"
	"baton/store/memstore"
)

// cable is a node's connection to the store. Once it is pulled, no request
// arrives and no answer comes back: the caller is left waiting, as it would be
// by a dead network, and the store hears of it as little as of a process that was killed.
type cable struct {
	*memstore.Store
	pulled context.Context
	pull   context.CancelFunc
}

var (
	_ baton.Store = (*cable)(nil)
	_ baton.Line  = (*cable)(nil)
	_ baton.Ender = (*cable)(nil)
)

func newCable(store *memstore.Store) *cable {
	c := &cable{Store: store}
	c.pulled, c.pull = context.WithCancel(context.Background())
	return c
}

// send makes one request through the cable.
func send[T any](ctx context.Context, c *cable, request func(context.Context) (T, error)) (T, error) {
	var none T
	if c.pulled.Err() == nil {
		// A request that waits at the store is forgotten there when its connection breaks.
		inner, cancel := context.WithCancel(ctx)
		defer context.AfterFunc(c.pulled, cancel)()
		defer cancel()
		answer, err := request(inner)
		if c.pulled.Err() == nil {
			return answer, err
		}
	}
	<-ctx.Done()
	return none, ctx.Err()
}

func (c *cable) Acquire(ctx context.Context, group string, candidate baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	return send(ctx, c, func(ctx context.Context) (baton.Lease, error) {
		return c.Store.Acquire(ctx, group, candidate, ttl)
	})
}

func (c *cable) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	return send(ctx, c, func(ctx context.Context) (baton.Lease, error) {
		return c.Store.Renew(ctx, id, extend)
	})
}

func (c *cable) Get(ctx context.Context, group string) (baton.Lease, error) {
	return send(ctx, c, func(ctx context.Context) (baton.Lease, error) {
		return c.Store.Get(ctx, group)
	})
}

func (c *cable) Release(ctx context.Context, id baton.LeaseID) error {
	_, err := send(ctx, c, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.Store.Release(ctx, id)
	})
	return err
}

func (c *cable) Await(ctx context.Context, group string, candidate baton.Candidate) error {
	_, err := send(ctx, c, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.Store.Await(ctx, group, candidate)
	})
	return err
}

func (c *cable) End(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	_, err := send(ctx, c, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.Store.End(ctx, group, term, e)
	})
	return err
}

func (c *cable) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	return func(yield func(baton.Event, error) bool) {
		inner, cancel := context.WithCancel(ctx)
		defer context.AfterFunc(c.pulled, cancel)()
		defer cancel()
		for e, err := range c.Store.Watch(inner, group, after) {
			if c.pulled.Err() != nil {
				break
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
		<-ctx.Done()
		yield(baton.Event{}, ctx.Err())
	}
}
