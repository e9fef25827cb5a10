package baton_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"baton"
	"baton/internal/boottime"
	"baton/internal/freeze"
	"baton/store/memstore"
	"baton/storetest"
)

// node is a process of the fleet: a clock, a link to the store, and whatever
// incarnation of its elector is alive.
type node struct {
	f     *fleet
	name  string
	lined bool // waits in line, or watches and tries
	gate  freeze.Gate
	clock *driftClock

	mu     sync.Mutex
	rng    *rand.Rand
	link   *storetest.Faults
	kill   context.CancelFunc
	healed bool
}

func newNode(f *fleet, name string, seed uint64) *node {
	rng := rand.New(rand.NewPCG(seed, 1))
	n := &node{f: f, name: name, rng: rng, lined: rng.IntN(4) > 0}
	n.clock = &driftClock{
		gate:   &n.gate,
		start:  time.Now(),
		offset: time.Duration(rng.Int64N(int64(2*time.Hour))) - time.Hour,
		rate:   1 + maxDrift*(2*rng.Float64()-1),
	}
	return n
}

func (n *node) random() float64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rng.Float64()
}

// live runs one incarnation after the other.
func (n *node) live(ctx context.Context) {
	for ctx.Err() == nil {
		alive, kill := context.WithCancel(ctx)
		store, link := storetest.Faulty(keptOpen{n.f.store}, n.faults())
		n.mu.Lock()
		n.link, n.kill = link, kill
		if n.healed {
			link.Heal()
		}
		n.mu.Unlock()
		n.incarnate(alive, store)
		kill()
		_ = store.Close()
	}
}

func (n *node) faults() storetest.FaultConfig {
	n.mu.Lock()
	defer n.mu.Unlock()
	return storetest.FaultConfig{
		Seed: n.rng.Uint64(), Clock: boottime.Monotonic(),
		LostRequest: 0.05, LostReply: 0.05, Duplicate: 0.05, Late: 0.05,
		Delay: 0.5, MaxDelay: fleetTTL / 2,
		Outage: 0.01, MaxOutage: fleetTTL,
	}
}

func (n *node) incarnate(ctx context.Context, link baton.Store) {
	slow := frozenStore{Store: link, n: n}
	var store baton.Store = &slow
	if n.lined {
		store = &frozenLine{frozenStore: slow, line: link.(baton.Line)}
	}
	e, err := baton.NewElector(store, baton.Config{
		Group: "g", NodeID: n.name, TTL: fleetTTL, Clock: n.clock, Logger: quiet, Jitter: n.random,
	})
	if err != nil {
		n.f.t.Error(err)
		return
	}
	defer e.Close()
	err = baton.Run(ctx, e, func(ctx context.Context, l *baton.Leadership) error {
		n.f.start(n.name, l)
		bored := make(chan struct{})
		stop := n.clock.AfterFunc(time.Duration(n.random()*float64(20*fleetTTL)), func() { close(bored) })
		defer stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-bored:
			return l.Resign(ctx)
		}
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		n.f.problem(fmt.Sprintf("%s gave up: %v", n.name, err))
	}
}

// cut keeps everything from getting through for a while.
func (n *node) cut(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	link := n.link
	link.Cut()
	time.AfterFunc(d, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if !n.healed && n.link == link {
			link.Hurt()
		}
	})
}

// crash lets nothing through any more and starts the process anew.
func (n *node) crash() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.link.Cut()
	n.kill()
}

// heal ends all faults.
func (n *node) heal() {
	n.gate.Open()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.healed = true
	n.link.Heal()
}

// keptOpen is a store that others use as well.
type keptOpen struct{ *memstore.Store }

func (keptOpen) Close() error { return nil }

// driftClock has an offset and a rate of its own.
type driftClock struct {
	gate   *freeze.Gate
	start  time.Time
	offset time.Duration
	rate   float64
}

func (c *driftClock) Now() time.Duration {
	return c.offset + time.Duration(float64(time.Since(c.start))*c.rate)
}

func (c *driftClock) AfterFunc(d time.Duration, f func()) func() bool {
	// Rounded up: a timer that fires before its time would be set again, and again.
	return time.AfterFunc(time.Duration(math.Ceil(float64(d)/c.rate)), func() { c.gate.Pass(); f() }).Stop
}

// frozenStore is the store as a process sees it that may be frozen: neither
// does a request leave meanwhile, nor does an answer arrive.
type frozenStore struct {
	baton.Store
	n *node
}

// told is what the node's own elector makes of an answer.
func (s *frozenStore) told(lease baton.Lease, sent time.Time) baton.Lease {
	s.n.gate.Pass()
	took := time.Duration(float64(time.Since(sent)) * s.n.clock.rate)
	lease.Remaining = s.n.f.trust(lease, took)
	return lease
}

func (s *frozenStore) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	s.n.gate.Pass()
	sent := time.Now()
	lease, err := s.Store.Acquire(ctx, group, c, ttl)
	return s.told(lease, sent), err
}

func (s *frozenStore) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	s.n.gate.Pass()
	sent := time.Now()
	lease, err := s.Store.Renew(ctx, id, extend)
	return s.told(lease, sent), err
}

func (s *frozenStore) Release(ctx context.Context, id baton.LeaseID) error {
	s.n.gate.Pass()
	err := s.Store.Release(ctx, id)
	s.n.gate.Pass()
	return err
}

func (s *frozenStore) Get(ctx context.Context, group string) (baton.Lease, error) {
	s.n.gate.Pass()
	lease, err := s.Store.Get(ctx, group)
	s.n.gate.Pass()
	return lease, err
}

func (s *frozenStore) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	return func(yield func(baton.Event, error) bool) {
		s.n.gate.Pass()
		for ev, err := range s.Store.Watch(ctx, group, after) {
			s.n.gate.Pass()
			if !yield(ev, err) {
				return
			}
		}
	}
}

// frozenLine is a frozenStore at which candidates wait in line.
type frozenLine struct {
	frozenStore
	line baton.Line
}

func (s *frozenLine) Await(ctx context.Context, group string, c baton.Candidate) error {
	s.n.gate.Pass()
	err := s.line.Await(ctx, group, c)
	s.n.gate.Pass()
	return err
}
