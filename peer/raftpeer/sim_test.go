// Raft draws its timeouts from the old global source, which only honours a seed if told to.
//
//go:debug randseednop=0

package raftpeer

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	legacyrand "math/rand"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"baton"
	"baton/internal/raftnode/raftsim"
)

var (
	firstSeed = flag.Uint64("seed", 1, "first seed of the simulated peers")
	seeds     = flag.Int("seeds", 25, "number of seeds of the simulated peers")
)

// TestSimulatedPeers runs three or five peers through partitions, pauses,
// crashes and takeovers in simulated time, with clocks whose rates differ, and holds what they
// trusted against each other on the one true clock.
func TestSimulatedPeers(t *testing.T) {
	onOneProcessor(t)
	n := *seeds
	if testing.Short() {
		n = min(n, 20)
	}
	var terms, expired, ended int
	for seed := *firstSeed; seed < *firstSeed+uint64(n); seed++ {
		c := simulate(t, seed, flaws{}, slightly, 2+6*int(seed%2))
		terms, expired, ended = terms+len(c.check.holders), expired+c.check.reasons[baton.Expired], ended+c.check.reasons[baton.Resigned]+c.check.reasons[baton.Transferred]
		for _, problem := range c.check.problems {
			t.Errorf("seed %d: %s", seed, problem)
		}
		if t.Failed() {
			t.Fatalf("again with: go test ./peer/raftpeer -run TestSimulatedPeers -seed %d -seeds 1", seed)
		}
	}
	t.Logf("%d leaderships in %d runs, of which %d expired and %d were ended by their holder", terms, n, expired, ended)
	if terms < 10*n || expired < n || ended < n {
		t.Errorf("that is too little to prove anything")
	}
}

// The simulation can fail: each of these breaks one rule, and must be caught. Rules that chance
// would take long to catch have a schedule of their own.
func TestSimulationCatches(t *testing.T) {
	for _, tt := range []struct {
		name   string
		broken flaws
		rates  rates
	}{
		{"a successor that does not wait", flaws{noWait: true}, slightly},
		{"a begin whose commit is trusted", flaws{trustsBegin: true}, slightly},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onOneProcessor(t)
			const most = 100
			for seed := *firstSeed; seed < *firstSeed+most; seed++ {
				if c := simulate(t, seed, tt.broken, tt.rates, 8); len(c.check.problems) > 0 {
					t.Logf("seed %d: %s", seed, c.check.problems[0])
					return
				}
			}
			t.Fatalf("%d runs, and nothing was found", most)
		})
	}
}

// onOneProcessor makes what is ready at the same simulated instant run in the
// same order each time, so that a seed that fails fails again.
func onOneProcessor(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// rates draws how fast a clock goes.
type rates func(rng *rand.Rand) float64

// slightly: any two differ by less than Margin/Lease.
func slightly(rng *rand.Rand) float64 { return 0.955 + 0.09*rng.Float64() }

func wildly(rng *rand.Rand) float64 { return 0.5 + rng.Float64() }

// simGroup is one simulated run.
type simGroup struct {
	t      *testing.T
	net    *raftsim.Net
	nodes  []*simNode
	broken flaws
	rates  rates
	lease  time.Duration
	check  *checker
	over   context.Context // ends the work
	// patient nodes lead for as long as they can.
	patient bool
	// distance is what messages take at most; 0 for the simulation's own.
	distance time.Duration
	log      *slog.Logger   // nil: the test's own
	ending   sync.WaitGroup // of workers and of processes that were killed

	mu  sync.Mutex
	rng *rand.Rand
}

// simNode is a machine: a disk, and a process that runs on it or not.
type simNode struct {
	c    *simGroup
	name string

	mu   sync.Mutex
	disk *raftsim.Disk // as the last process left it
	p    *process
}

// process is one life of a peer.
type process struct {
	*raftsim.Process
	e *Elector
}

func (n *simNode) process() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.p
}

// simulate runs peers whose lease is that many election timeouts long.
func simulate(t *testing.T, seed uint64, broken flaws, rates rates, timeouts int) *simGroup {
	t.Helper()
	c := &simGroup{
		t: t, rng: rand.New(rand.NewPCG(seed, 0)), broken: broken, rates: rates, check: newChecker(),
		lease: time.Duration(timeouts) * DefaultElectionTimeout,
	}
	legacyrand.Seed(int64(seed)) //nolint:staticcheck // raft draws its timeouts from there
	synctest.Test(t, func(t *testing.T) { c.run(t.Context(), seed) })
	return c
}

func (c *simGroup) run(ctx context.Context, seed uint64) {
	size := 3
	if seed%4 == 0 {
		size = 5
	}
	var end context.CancelFunc
	c.over, end = context.WithCancel(ctx)
	c.begin(size, seed)
	time.Sleep(time.Second)
	for range 25 {
		time.Sleep(c.between(20*time.Millisecond, 1500*time.Millisecond))
		c.disturb()
	}
	c.heal()
	before := c.check.count()
	time.Sleep(20 * time.Second)
	if c.check.count() == before {
		c.check.problem("nobody was elected for 20s after the last fault: %s", c.describe())
	}
	end()
	for _, n := range c.nodes {
		n.crash()
	}
	c.ending.Wait()
}

// describe says how all nodes are.
func (c *simGroup) describe() string {
	var all []string
	for _, n := range c.nodes {
		p := n.process()
		if p == nil {
			all = append(all, n.name+" is down")
			continue
		}
		rec, candidate, _ := p.e.standing()
		_, leader := p.e.raft.LeaderWithID()
		all = append(all, fmt.Sprintf("%s is raft's %v in raft term %d, follows %q, campaigns: %v, knows %+v",
			n.name, p.e.raft.State(), p.e.raft.CurrentTerm(), leader, candidate != nil, rec))
	}
	return strings.Join(all, "; ")
}

func (c *simGroup) between(least, most time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return least + time.Duration(c.rng.Int64N(int64(most-least)))
}

func (c *simGroup) choose(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

// start begins a new life on the node's disk.
func (n *simNode) start(bootstrap []raft.Server) {
	c := n.c
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.p != nil {
		return
	}
	p := &process{Process: c.net.Start(n.name, n.disk)}
	c.mu.Lock()
	rate := c.rates(c.rng)
	c.mu.Unlock()
	clock := p.Clock(rate)
	trial := &trial{flaws: c.broken, raftLog: func(l hclog.Logger) hclog.Logger { return gated{l, p.Gate} }}
	trial.hold = p.Gate.Pass
	trial.trust = func(term baton.Term, until time.Duration) {
		if p.Dead.Err() == nil {
			c.check.trusts(n.name, term, time.Now().Add(time.Duration(float64(until-clock.Now())/rate)))
		}
	}
	trial.ended = c.check.ended
	peers := map[string]string{}
	for _, n := range c.nodes {
		peers[n.name] = n.name + ":1"
	}
	cfg := Config{Group: "g", NodeID: n.name, Peers: peers, Dir: "none", Lease: c.lease, Clock: clock, Logger: cmp.Or(c.log, testLogger()), trial: trial}.withDefaults()
	e, err := start(cfg, parts{
		logs: p.Disk, stable: p.Disk, snapshots: p.Disk, bootstrap: bootstrap,
		transport: p.Transport(), peers: simPeers{p},
	})
	if err != nil {
		c.t.Errorf("start %s: %v", n.name, err)
		return
	}
	p.e = e
	p.Join(e)
	n.p = p
	c.ending.Go(func() { c.work(p) })
	c.ending.Go(func() { c.observe(p) })
}

// work is what a process does with its elector: it campaigns, works for a while, resigns.
func (c *simGroup) work(p *process) {
	life, cancel := context.WithCancel(c.over)
	defer cancel()
	defer context.AfterFunc(p.Dead, cancel)()
	for c.patient && life.Err() == nil {
		if l, err := p.e.Campaign(life); err == nil {
			<-l.Over()
			p.Gate.Pass()
		}
	}
	for life.Err() == nil {
		if c.choose(4) == 0 {
			_ = raftsim.Sleep(life, c.between(0, 2*time.Second))
		}
		patience, stop := context.WithTimeout(life, c.between(500*time.Millisecond, 10*time.Second))
		l, err := p.e.Campaign(patience)
		stop()
		p.Gate.Pass()
		if err != nil {
			continue
		}
		working, stop := context.WithTimeout(life, c.between(50*time.Millisecond, 4*time.Second))
		select {
		case <-l.Context().Done():
		case <-working.Done():
		}
		stop()
		p.Gate.Pass()
		if c.choose(2) == 0 {
			successor := c.nodes[c.choose(len(c.nodes))].name
			if l.ResignTo(life, successor) == nil {
				continue
			}
		}
		_ = l.Resign(life) // if it fails, others wait for longer
	}
}

// observe holds what an observer is told against the rules.
func (c *simGroup) observe(p *process) {
	life, cancel := context.WithCancel(c.over)
	defer cancel()
	defer context.AfterFunc(p.Dead, cancel)()
	for event, err := range p.e.Observe(life) {
		if err != nil {
			return
		}
		c.check.observed(p.Name, event)
	}
}

// crash ends a life. What the process does after it, nobody sees.
func (n *simNode) crash() {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.p
	if p == nil {
		return
	}
	n.p, n.disk = nil, p.Kill()
	n.c.check.died(n.name)
	n.c.ending.Go(func() {
		if err := p.e.stop(); err != nil {
			n.c.t.Errorf("stop %s: %v", n.name, err)
		}
	})
}

// leader is the node that is raft's leader in the latest raft term, or nil.
func (c *simGroup) leader() *simNode {
	var found *simNode
	term := uint64(0)
	for _, n := range c.nodes {
		if p := n.process(); p != nil && p.e.raft.State() == raft.Leader {
			if at := p.e.raft.CurrentTerm(); at > term {
				found, term = n, at
			}
		}
	}
	return found
}

// disturb does one bad thing, mostly to the leader.
func (c *simGroup) disturb() {
	n := c.nodes[c.choose(len(c.nodes))]
	if leader := c.leader(); leader != nil && c.choose(4) > 0 {
		n = leader
	}
	howLong := c.between(20*time.Millisecond, max(3*c.lease/2, 1200*time.Millisecond))
	switch c.choose(10) {
	case 0, 1, 2, 3:
		if p := n.process(); p != nil {
			p.Freeze(howLong)
		}
	case 4, 5:
		c.isolate(n, howLong, true, true)
	case 6:
		out := c.choose(2) == 0
		c.isolate(n, howLong, out, !out)
	case 7:
		n.crash()
		time.AfterFunc(howLong, func() {
			if c.over.Err() == nil {
				n.start(nil)
			}
		})
	case 8:
		if p := n.process(); p != nil {
			go func() { _ = p.e.handOnAny() }()
		}
	case 9:
		if p := n.process(); p != nil {
			_ = p.e.raft.Snapshot()
		}
	}
}

func (c *simGroup) isolate(n *simNode, howLong time.Duration, out, in bool) {
	set := func(out, in bool) {
		for _, other := range c.nodes {
			if other != n {
				c.net.SetCut(n.name, other.name, out)
				c.net.SetCut(other.name, n.name, in)
			}
		}
	}
	set(out, in)
	time.AfterFunc(howLong, func() { set(false, false) })
}

// heal ends all faults; those that were to end by themselves have by then.
func (c *simGroup) heal() {
	time.Sleep(4 * time.Second)
	c.net.Calm()
	c.net.Heal()
	for _, n := range c.nodes {
		n.start(nil)
		n.process().Thaw()
	}
}

// simPeers is what peers ask each other beside raft.
type simPeers struct{ p *process }

func (s simPeers) state(ctx context.Context, to raft.Server, question question) (peerState, error) {
	return raftsim.Exchange(ctx, s.p.Process, string(to.Address), raftsim.Others, func(_ context.Context, q *raftsim.Process) (peerState, error) {
		return q.Host.(*Elector).answer(question), nil
	})
}

func (s simPeers) end(ctx context.Context, to raft.Server, c command) error {
	_, err := raftsim.Exchange(ctx, s.p.Process, string(to.Address), raftsim.Others, func(_ context.Context, q *raftsim.Process) (record, error) {
		return q.Host.(*Elector).commit(c)
	})
	return err
}
