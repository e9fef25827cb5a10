package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"baton"
	"baton/store/memstore"
	"baton/storetest/internal/capability"
)

// limited is a memory store with the limits of a server that counts in whole seconds, keeps
// leases for longer than it says, and refuses to extend. It can do nothing that is optional.
type limited struct {
	*memstore.Store
	floor, step, lag time.Duration
}

func (s *limited) Guarantees() baton.Guarantees {
	g := s.Store.Guarantees()
	g.Store, g.MinTTL, g.TTLStep, g.ExpiryLag = "limited", s.floor, s.step, s.lag
	g.Extends, g.Transfers, g.Waiting = false, false, baton.WaitWatch
	return g
}

// show hides the lag: past what was promised nothing is left, though the lease is still kept.
func (s *limited) show(l baton.Lease) baton.Lease {
	if l.Held() {
		l.TTL -= s.lag
		l.Remaining = max(0, l.Remaining-s.lag).Truncate(s.step)
	}
	return l
}

func (s *limited) showError(err error) error {
	var held *baton.HeldError
	var not *baton.NotLeaderError
	switch {
	case errors.As(err, &held):
		held.Lease = s.show(held.Lease)
	case errors.As(err, &not) && not.Current != nil:
		*not.Current = s.show(*not.Current)
	}
	return err
}

func (s *limited) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	if err := s.Guarantees().ValidateTTL(ttl); err != nil {
		return baton.Lease{}, err
	}
	up := (ttl + s.step - 1) / s.step * s.step
	l, err := s.Store.Acquire(ctx, group, c, min(up+s.lag, baton.MaxTTL))
	return s.show(l), s.showError(err)
}

func (s *limited) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	if err := s.Guarantees().ValidateExtend(extend); err != nil {
		return baton.Lease{}, err
	}
	l, err := s.Store.Get(ctx, id.Group)
	if err == nil && l.ID() == id && extend > l.TTL-s.lag {
		return baton.Lease{}, &baton.InvalidTTLError{Field: "extend", TTL: extend, Min: s.floor, Max: l.TTL - s.lag}
	}
	if l.ID() == id {
		extend = l.TTL // as a keep-alive does
	}
	l, err = s.Store.Renew(ctx, id, extend)
	return s.show(l), s.showError(err)
}

func (s *limited) Get(ctx context.Context, group string) (baton.Lease, error) {
	l, err := s.Store.Get(ctx, group)
	return s.show(l), err
}

// TestLimitedStoresPass shows that the suite asks for no more than a store promises.
func TestLimitedStoresPass(t *testing.T) {
	for name, limits := range map[string]limited{
		"whole seconds": {floor: 2 * time.Second, step: time.Second},
		"slow":          {floor: 10 * time.Second, step: time.Millisecond, lag: 10 * time.Second},
	} {
		h := onMemory(func(inner *memstore.Store) baton.Store {
			s := limits
			s.Store = inner
			return capability.Join(&s, capability.Set{})
		})
		for _, c := range Cases() {
			if failed, said := verdict(t, func(t T) { c.Check(t, h) }); failed {
				t.Errorf("%s: %s fails:\n%s", name, c.Name, said)
			}
		}
		for seed := range uint64(5) {
			if failed, said := verdict(t, func(t T) { CheckFaulty(t, h, seed) }); failed {
				t.Errorf("%s: behind faults, seed %d, it fails:\n%s", name, seed, said)
			}
		}
	}
}
