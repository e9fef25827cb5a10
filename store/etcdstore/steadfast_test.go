package etcdstore_test

import (
	"context"
	"errors"
	"reflect"
	"sync/atomic"
	"time"

	"baton"
	"baton/store/etcdstore"
	"baton/storetest"
	"baton/storetest/drill"
)

// steadfast is a store that asks again for what etcd left without an answer. Members elect another leader when a
// machine stands still for a second, and cannot be told to be more patient: their leases would be longer, too.
type steadfast struct {
	*etcdstore.Store
	closed atomic.Bool
}

// steady makes the handles of a harness such stores.
func steady(h storetest.Harness) storetest.Harness {
	start := h.Start
	h.Start = func(t storetest.T) storetest.Backing {
		b := start(t)
		open := b.Open
		b.Open = func() baton.Store { return &steadfast{Store: open().(*etcdstore.Store)} }
		return b
	}
	return h
}

func (s *steadfast) Close() error {
	s.closed.Store(true)
	return s.Store.Close()
}

// insist asks until there is an answer. After an attempt of unknown outcome, settled says of a refusal what it means.
func (s *steadfast) insist(ctx context.Context, ask func() error, settled func(refusal error) error) error {
	unsure := false
	for until := time.Now().Add(drill.Patience); ; <-time.After(20 * time.Millisecond) {
		err := ask()
		switch {
		case err != nil && unsure && baton.IsAnswer(err):
			return settled(err)
		case !errors.Is(err, baton.ErrUnavailable) || s.closed.Load() || ctx.Err() != nil || time.Now().After(until):
			return err
		}
		unsure = true
	}
}

// means is a refusal by which one learns that it is done.
func means(done error) func(error) error {
	return func(refusal error) error {
		if errors.Is(refusal, done) {
			return nil
		}
		return refusal
	}
}

func (s *steadfast) Release(ctx context.Context, id baton.LeaseID) error {
	return s.insist(ctx, func() error { return s.Store.Release(ctx, id) }, means(baton.ErrNotLeader))
}

func (s *steadfast) End(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	return s.insist(ctx, func() error { return s.Store.End(ctx, group, term, e) }, means(baton.ErrNotLeader))
}

func (s *steadfast) DeleteGroup(ctx context.Context, id string) error {
	return s.insist(ctx, func() error { return s.Store.DeleteGroup(ctx, id) }, means(baton.ErrNotFound))
}

func (s *steadfast) PutGroup(ctx context.Context, g baton.Group) (put baton.Group, err error) {
	err = s.insist(ctx, func() error {
		put, err = s.Store.PutGroup(ctx, g)
		return err
	}, func(refusal error) error {
		now, err := s.Group(ctx, g.ID)
		want := g
		want.Version = now.Version
		if err != nil || !reflect.DeepEqual(now, want) {
			return refusal
		}
		put = now
		return nil
	})
	return put, err
}
