package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"baton"
	"baton/storetest/history"
)

// Fleet is nodes that campaign for one group, renew, release, read and die,
// each through one of several handles on a store, and go on for as long as a
// test likes. Meanwhile the test hurts the server; in the end the history is judged.
type Fleet struct {
	t      T
	cfg    FleetConfig
	log    *history.Log
	grants atomic.Int64
	stop   context.CancelFunc
	nodes  sync.WaitGroup
}

// FleetConfig says what a fleet campaigns for.
type FleetConfig struct {
	// Open returns a handle on the store. Who opened it closes it, after the fleet.
	Open func() baton.Store
	// TTL is that of the leases; the store's shortest, but no less than a second, if 0.
	TTL time.Duration
	// Stores is how many handles are opened, Nodes how many nodes share them; 3 and 6 if 0.
	Stores, Nodes int
	// Rest is how long a node pauses between two requests at most; 50 ms if 0.
	Rest time.Duration
	// OneDiesIn is how many leaderships there are to one whose node dies, which costs
	// the others the rest of its lease; 10 if 0.
	OneDiesIn int
	// Patience bounds every wait, and twice what one request may take; a minute if 0.
	Patience time.Duration
	// Clock is that of the history; the system's if nil.
	Clock baton.Clock
}

const fleetGroup = "fleet"

// StartFleet lets the nodes begin. They end with Judge, or with the test.
func StartFleet(t T, cfg FleetConfig) *Fleet {
	t.Helper()
	cfg.Stores, cfg.Nodes = orElse(cfg.Stores, 3), orElse(cfg.Nodes, 6)
	cfg.Rest, cfg.OneDiesIn = orElse(cfg.Rest, 50*time.Millisecond), orElse(cfg.OneDiesIn, 10)
	cfg.Patience = orElse(cfg.Patience, time.Minute)
	f := &Fleet{t: t, cfg: cfg, log: history.NewLog(cfg.Clock)}
	var stores []baton.Store
	for i := range cfg.Stores {
		s := cfg.Open()
		f.cfg.TTL = orElse(f.cfg.TTL, max(time.Second, s.Guarantees().MinTTL))
		stores = append(stores, f.log.Record(fmt.Sprintf("store-%d", i), s))
	}
	ctx, cancel := context.WithCancel(t.Context())
	f.stop = cancel
	for i := range cfg.Nodes {
		f.nodes.Go(func() {
			f.node(ctx, stores[i%len(stores)], fmt.Sprintf("node-%d", i), rand.New(rand.NewPCG(uint64(i), 1)))
		})
	}
	t.Cleanup(func() { cancel(); f.nodes.Wait() })
	return f
}

func orElse[N int | time.Duration](n, otherwise N) N {
	if n == 0 {
		return otherwise
	}
	return n
}

func (f *Fleet) node(ctx context.Context, s baton.Store, id string, rng *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		c := baton.Candidate{NodeID: id, InstanceID: fmt.Sprintf("%s-%d", id, n)}
		l, err := s.Acquire(ctx, fleetGroup, c, f.cfg.TTL)
		for err != nil && !errors.Is(err, baton.ErrConflict) && ctx.Err() == nil {
			if rng.IntN(4) == 0 {
				_, _ = s.Get(ctx, fleetGroup)
			}
			f.rest(ctx, rng)
			l, err = s.Acquire(ctx, fleetGroup, c, f.cfg.TTL) // the same campaign: its answer may have been lost
		}
		if err != nil {
			continue
		}
		f.grants.Add(1)
		for range rng.IntN(6) {
			f.rest(ctx, rng)
			if _, err := s.Renew(ctx, l.ID(), f.cfg.TTL); errors.Is(err, baton.ErrNotLeader) {
				break
			}
		}
		ender, ends := s.(baton.Ender)
		switch fate := rng.IntN(f.cfg.OneDiesIn); {
		case fate == 0: // dies
		case fate == 1 && ends:
			_ = ender.End(ctx, fleetGroup, l.Term, baton.Ending{Reason: baton.SteppedDown, Immediate: true})
		default:
			_ = s.Release(ctx, l.ID())
		}
		f.rest(ctx, rng)
	}
}

func (f *Fleet) rest(ctx context.Context, rng *rand.Rand) {
	timer := time.NewTimer(time.Duration(rng.Int64N(int64(f.cfg.Rest)) + 1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// More waits until there were n more grants: the group can be led.
func (f *Fleet) More(what string, n int64) {
	f.t.Helper()
	want := f.grants.Load() + n
	eventually(f.t, f.cfg.Patience, what, func() bool { return f.grants.Load() >= want })
}

// Judge stops the nodes and checks what they saw.
func (f *Fleet) Judge(o history.Options) {
	f.t.Helper()
	f.stop()
	f.nodes.Wait()
	ops := f.log.Ops()
	unavailable, longest := 0, time.Duration(0)
	for _, op := range ops {
		if errors.Is(op.Err, baton.ErrUnavailable) {
			unavailable++
		}
		longest = max(longest, op.Return-op.Call)
	}
	f.t.Logf("%d requests, %d of them unavailable, the longest took %v; %d grants", len(ops), unavailable, longest, f.grants.Load())
	if longest > f.cfg.Patience/2 {
		f.t.Errorf("a request took %v, which is no bounded time", longest)
	}
	if r := history.Check(ops, o); r.Verdict != history.OK {
		f.t.Errorf("the history is %s: %s", r.Verdict, r.Detail)
	}
}

// AllFaults reports whether tests with real faults run all of them, which takes
// long, and not the two that always run: if BATON_TEST_FAULTS is "all".
func AllFaults() bool { return os.Getenv("BATON_TEST_FAULTS") == "all" }

// eventually polls until ok.
func eventually(t T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(limit)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("still not after %v: %s", limit, what)
		}
	}
}
