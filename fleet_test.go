package baton_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/internal/boottime"
	"baton/store/memstore"
)

var (
	firstSeed = flag.Uint64("seed", 1, "first seed of the simulated fleet")
	seeds     = flag.Int("seeds", defaultSeeds, "number of seeds of the simulated fleet")
)

const (
	fleetSize   = 9
	fleetTTL    = 2 * time.Second
	fleetMargin = fleetTTL / 10
	// maxDrift is what rates may differ by at most; the margin allows for a tenth.
	maxDrift = 0.08
	// settled is how long after the last fault there must be a leader again:
	// the lease of a leader that was cut off runs out, a dead one in line
	// is passed over, and a candidate finishes the longest of its pauses.
	settled = 10 * fleetTTL
)

// TestFleet runs nine electors on clocks of their own over faulty links, and
// looks for two leaderships that are valid at the same true instant.
func TestFleet(t *testing.T) {
	onOneProcessor(t)
	leaderships := 0
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		f := simulate(t, seed, honest)
		leaderships += len(f.began)
		for _, problem := range f.problems {
			t.Errorf("seed %d: %s", seed, problem)
		}
		if t.Failed() {
			t.Fatalf("again with: go test . -run TestFleet -seed %d -seeds 1", seed)
		}
	}
	t.Logf("%d leaderships in %d runs, no two at once", leaderships, *seeds)
}

// onOneProcessor makes goroutines that are ready at the same simulated instant
// run in the same order each time, so that a seed that fails fails again.
func onOneProcessor(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// The check can fail: without a margin, clocks that drift make leaders overlap.
func TestFleetCatchesMissingMargin(t *testing.T) {
	mustCatch(t, func(lease baton.Lease, _ time.Duration) time.Duration {
		return lease.Remaining + fleetMargin
	})
}

// The check can fail: so does trust that counts from the receipt of an answer.
func TestFleetCatchesTrustFromReceipt(t *testing.T) {
	mustCatch(t, func(lease baton.Lease, took time.Duration) time.Duration {
		return lease.Remaining + took
	})
}

func mustCatch(t *testing.T, lie trust) {
	t.Helper()
	onOneProcessor(t)
	for seed := *firstSeed; seed < *firstSeed+200; seed++ {
		if f := simulate(t, seed, lie); len(f.overlaps) > 0 {
			t.Logf("seed %d: %s", seed, f.overlaps[0])
			return
		}
	}
	t.Fatal("200 runs of a broken elector, and no overlap was found")
}

// trust is what a node makes of an answer that took this long; all but honest
// ones turn the elector into a broken one.
type trust func(lease baton.Lease, took time.Duration) time.Duration

func honest(lease baton.Lease, _ time.Duration) time.Duration { return lease.Remaining }

// fleet is one simulated run.
type fleet struct {
	t     *testing.T
	rng   *rand.Rand
	store *memstore.Store
	trust trust

	mu       sync.Mutex
	began    []*led
	overlaps []string
	problems []string
}

// led is a leadership that began.
type led struct {
	node string
	at   time.Time
	l    *baton.Leadership
}

func simulate(t *testing.T, seed uint64, lie trust) *fleet {
	t.Helper()
	f := &fleet{t: t, rng: rand.New(rand.NewPCG(seed, 0)), trust: lie}
	synctest.Test(t, func(t *testing.T) { f.run(t.Context(), seed) })
	return f
}

func (f *fleet) run(ctx context.Context, seed uint64) {
	store, err := memstore.New(memstore.Config{Clock: boottime.Monotonic()})
	if err != nil {
		f.t.Fatal(err)
	}
	defer store.Close()
	f.store = store

	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	nodes := make([]*node, fleetSize)
	for i := range nodes {
		nodes[i] = newNode(f, fmt.Sprintf("n%d", i), seed<<8+uint64(i))
		running.Go(func() { nodes[i].live(ctx) })
	}
	f.disturb(nodes)
	for _, n := range nodes {
		n.heal()
	}
	f.awaitLeader()
	cancel()
	running.Wait()
}

// disturb freezes, cuts off and kills nodes for a while, and asks leaders to step down.
func (f *fleet) disturb(nodes []*node) {
	for range 100 {
		time.Sleep(f.between(fleetTTL/20, fleetTTL))
		n := nodes[f.rng.IntN(len(nodes))]
		if lead := f.leading(); lead != nil && f.rng.IntN(3) > 0 {
			for _, m := range nodes {
				if m.name == lead.node {
					n = m // leaders are where it hurts
				}
			}
		}
		howLong := f.between(fleetTTL/10, 3*fleetTTL)
		switch f.rng.IntN(5) {
		case 0, 1:
			n.gate.Freeze(howLong)
		case 2:
			n.cut(howLong)
		case 3:
			n.crash()
		case 4:
			if lease, err := f.store.Get(context.Background(), "g"); err == nil && lease.Held() {
				_ = f.store.End(context.Background(), "g", lease.Term, baton.Ending{Reason: baton.SteppedDown})
			}
		}
	}
}

func (f *fleet) between(least, most time.Duration) time.Duration {
	return least + time.Duration(f.rng.Int64N(int64(most-least)))
}

// start is called at the first instant of a leadership. No leadership becomes
// valid again once it was not, so any two that overlap do so here.
func (f *fleet) start(node string, l *baton.Leadership) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, other := range f.began {
		if other.l.Valid() {
			f.overlap("term %d of %s begins while term %d of %s is valid for another %v", l.Term(), node, other.l.Term(), other.node, other.l.Remaining())
		}
		if other.l.Term() >= l.Term() {
			f.overlap("term %d of %s begins after term %d of %s", l.Term(), node, other.l.Term(), other.node)
		}
	}
	f.began = append(f.began, &led{node: node, at: time.Now(), l: l})
}

func (f *fleet) overlap(format string, args ...any) {
	problem := fmt.Sprintf(format, args...)
	f.overlaps = append(f.overlaps, problem)
	f.problems = append(f.problems, problem)
}

func (f *fleet) problem(p string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problems = append(f.problems, p)
}

func (f *fleet) leading() *led {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.began {
		if b.l.Valid() {
			return b
		}
	}
	return nil
}

func (f *fleet) awaitLeader() {
	healed := time.Now()
	for f.leading() == nil {
		if time.Since(healed) > settled {
			f.problem(fmt.Sprintf("no leader %v after the last fault", settled))
			return
		}
		time.Sleep(fleetTTL / 20)
	}
}
