package consulstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"baton"
	"baton/storetest/history"
)

// fleet is nodes that campaign for one group, renew, release, read and die,
// each through one of several stores.
type fleet struct {
	t      *testing.T
	log    *history.Log
	group  string
	stores []baton.Store
	grants atomic.Int64
	stop   context.CancelFunc
	done   sync.WaitGroup
}

func startFleet(t *testing.T, stores ...baton.Store) *fleet {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &fleet{t: t, log: history.NewLog(nil), group: "faults", stop: cancel}
	for i, s := range stores {
		f.stores = append(f.stores, f.log.Record(fmt.Sprintf("store-%d", i), s))
	}
	for i := range 6 {
		f.done.Go(func() {
			f.node(ctx, f.stores[i%len(f.stores)], fmt.Sprintf("node-%d", i), rand.New(rand.NewPCG(uint64(i), 1)))
		})
	}
	t.Cleanup(func() { cancel(); f.done.Wait() })
	return f
}

func (f *fleet) node(ctx context.Context, s baton.Store, id string, rng *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		c := baton.Candidate{NodeID: id, InstanceID: fmt.Sprintf("%s-%d", id, n)}
		l, err := s.Acquire(ctx, f.group, c, ttl)
		for err != nil && !errors.Is(err, baton.ErrConflict) && ctx.Err() == nil {
			if rng.IntN(4) == 0 {
				_, _ = s.Get(ctx, f.group)
			}
			rest(ctx, rng, 300*time.Millisecond)
			l, err = s.Acquire(ctx, f.group, c, ttl) // the same campaign: its answer may have been lost
		}
		if err != nil {
			continue
		}
		f.grants.Add(1)
		for range rng.IntN(6) {
			rest(ctx, rng, 200*time.Millisecond)
			if _, err := s.Renew(ctx, l.ID(), ttl); errors.Is(err, baton.ErrNotLeader) {
				break
			}
		}
		switch rng.IntN(20) {
		case 0: // dies, which costs two TTLs
		case 1, 2:
			_ = s.(baton.Ender).End(ctx, f.group, l.Term, baton.Ending{Reason: baton.SteppedDown, Immediate: true})
		default:
			_ = s.Release(ctx, l.ID())
		}
		rest(ctx, rng, 200*time.Millisecond)
	}
}

func rest(ctx context.Context, rng *rand.Rand, most time.Duration) {
	timer := time.NewTimer(time.Duration(rng.Int64N(int64(most)) + 1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// more waits until there were n more grants: the group can be led.
func (f *fleet) more(what string, n int64) {
	f.t.Helper()
	want := f.grants.Load() + n
	eventually(f.t, what, func() bool { return f.grants.Load() >= want })
}

// judge stops the fleet and checks what it saw.
func (f *fleet) judge() {
	f.t.Helper()
	f.stop()
	f.done.Wait()
	ops := f.log.Ops()
	unavailable, longest := 0, time.Duration(0)
	for _, op := range ops {
		if errors.Is(op.Err, baton.ErrUnavailable) {
			unavailable++
		}
		longest = max(longest, op.Return-op.Call)
	}
	f.t.Logf("%d requests, %d of them unavailable, the longest took %v; %d grants", len(ops), unavailable, longest, f.grants.Load())
	if longest > time.Minute {
		f.t.Errorf("a request took %v, which is no bounded time", longest)
	}
	if r := history.Check(ops, history.Options{}); r.Verdict != history.OK {
		f.t.Errorf("the history is %s: %s", r.Verdict, r.Detail)
	}
}
