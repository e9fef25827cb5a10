package baton_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/store/memstore"
)

// Everything that can be called is called, in any order and at once: by the
// work, by others, inside Run and after it, over a store that is slow and loses
// answers. The seeds vary the order.
func TestCallsInAnyOrder(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			newBrawl(t, seed).run()
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// brawl is one run: three nodes, and what they do to each other.
type brawl struct {
	t     *testing.T
	clock *jumpClock
	mem   *memstore.Store
	store baton.Store
	ends  time.Time

	mu      sync.Mutex
	rng     *rand.Rand
	working map[baton.Term]*baton.Leadership
	led     map[baton.Term]bool
}

func newBrawl(t *testing.T, seed uint64) *brawl {
	b := &brawl{
		t: t, clock: &jumpClock{}, rng: rand.New(rand.NewPCG(seed, 0)), ends: time.Now().Add(20 * testTTL),
		working: map[baton.Term]*baton.Leadership{}, led: map[baton.Term]bool{},
	}
	b.mem = newMem(t, b.clock)
	bad := &badStore{Store: b.mem, b: b}
	b.store = bad
	if seed%2 == 0 {
		b.store = struct{ baton.Store }{bad} // without a line
	}
	return b
}

func (b *brawl) run() {
	var nodes sync.WaitGroup
	for _, id := range []string{"a", "b", "c"} {
		nodes.Go(func() {
			for time.Now().Before(b.ends) {
				b.process(id)
			}
		})
	}
	nodes.Wait()
	time.Sleep(testTTL) // an answer that was lost may have left a lease behind, for a TTL
	if lease := get(b.t, b.mem); lease.Held() {
		b.t.Errorf("all are gone, and it is held: %+v", lease)
	}
}

// process is one life of a node.
func (b *brawl) process(id string) {
	e := newElector(b.t, b.store, id, b.clock, func(c *baton.Config) {
		c.Jitter, c.Ready, c.OnOverrun = b.chance, b.ready, func(baton.Overrun) {}
	})
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	atOnce := 0
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for ctx.Err() == nil && !b.leads(ctx, e, &atOnce) {
				b.pause(testTTL)
			}
		})
	}
	all.Go(func() {
		for _, err := range e.Observe(ctx) {
			if err != nil || b.chance() < .05 {
				return
			}
		}
	})
	for range 3 {
		all.Go(func() {
			b.pause(4 * testTTL)
			b.meddle(ctx, e, cancel)
		})
	}
	all.Go(func() {
		b.pause(8 * testTTL)
		cancel()
	})
	all.Wait()
	_ = e.Close()
}

// leads calls Run, which is refused while another Run leads, and reports whether the elector is closed.
func (b *brawl) leads(ctx context.Context, e baton.Elector, atOnce *int) bool {
	defer func() { _ = recover() }() // some work panics
	return errors.Is(baton.Run(ctx, e, func(ctx context.Context, l *baton.Leadership) error {
		b.begins(l, atOnce)
		defer b.ended(l, atOnce)
		return b.work(ctx, l)
	}), baton.ErrClosed)
}

func (b *brawl) work(ctx context.Context, l *baton.Leadership) error {
	what := b.chance()
	switch b.pause(testTTL); {
	case what < .1:
		return nil
	case what < .2:
		_ = l.Resign(ctx)
	case what < .3:
		_ = l.ResignTo(ctx, "b")
	case what < .4:
		l.Lose(errors.New("the ledger has seen a later term"))
	case what < .5:
		panic("the work")
	case what < .6:
		b.pause(3 * testTTL) // whatever the context says
		return nil
	}
	<-ctx.Done()
	b.pause(2 * time.Second)
	return ctx.Err()
}

func (b *brawl) meddle(ctx context.Context, e *baton.LeaseElector, cancel context.CancelFunc) {
	switch what := b.chance(); {
	case what < .3:
		cancel()
	case what < .6:
		_ = e.Close()
	default:
		for _, l := range b.others(0) {
			_ = l.Resign(ctx)
		}
	}
}

func (b *brawl) ready(context.Context) error {
	switch what := b.chance(); {
	case what < .1:
		b.pause(testTTL / 2)
	case what < .12:
		return errors.New("not ready")
	}
	return nil
}

// begins is called as work starts, and looks for what must never be.
func (b *brawl) begins(l *baton.Leadership, atOnce *int) {
	for _, other := range b.others(l.Term()) {
		if other.Valid() && l.Valid() {
			b.t.Errorf("%v and %v lead at once", other.Token(), l.Token())
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if *atOnce++; *atOnce > 1 {
		b.t.Errorf("work runs twice at once under %v", l.Token())
	}
	if b.led[l.Term()] {
		b.t.Errorf("term %d is led again", l.Term())
	}
	b.led[l.Term()], b.working[l.Term()] = true, l
}

func (b *brawl) ended(l *baton.Leadership, atOnce *int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*atOnce--
	delete(b.working, l.Term())
}

// others are the leaderships under which work runs, but for this term's.
func (b *brawl) others(than baton.Term) (others []*baton.Leadership) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for term, l := range b.working {
		if term != than {
			others = append(others, l)
		}
	}
	return others
}

func (b *brawl) chance() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rng.Float64()
}

func (b *brawl) pause(most time.Duration) { time.Sleep(time.Duration(b.chance() * float64(most))) }

// badStore is slow, loses requests and answers, and lets requests outlive their callers.
type badStore struct {
	*memstore.Store
	b *brawl
}

func (s *badStore) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	return s.travel(ctx, func(ctx context.Context) (baton.Lease, error) { return s.Store.Acquire(ctx, group, c, ttl) })
}

func (s *badStore) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	return s.travel(ctx, func(ctx context.Context) (baton.Lease, error) { return s.Store.Renew(ctx, id, extend) })
}

func (s *badStore) Release(ctx context.Context, id baton.LeaseID) error {
	s.b.mu.Lock()
	if s.b.working[id.Term] != nil {
		s.b.t.Errorf("term %d is released while its work runs", id.Term)
	}
	s.b.mu.Unlock()
	_, err := s.travel(ctx, func(ctx context.Context) (baton.Lease, error) { return baton.Lease{}, s.Store.Release(ctx, id) })
	return err
}

func (s *badStore) travel(ctx context.Context, call func(context.Context) (baton.Lease, error)) (baton.Lease, error) {
	lost := func() bool {
		if s.b.chance() < .3 {
			s.b.pause(3 * time.Second)
		}
		return s.b.chance() < .05
	}
	if lost() {
		return baton.Lease{}, errNoReply
	}
	lease, err := call(context.WithoutCancel(ctx))
	switch {
	case lost():
		return baton.Lease{}, errNoReply
	case ctx.Err() != nil:
		return baton.Lease{}, ctx.Err()
	}
	return lease, err
}
