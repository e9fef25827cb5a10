// Raft draws its timeouts from the old global source, which only honours a seed if told to.
//
//go:debug randseednop=0

package raftstore

import (
	"context"
	"flag"
	"fmt"
	legacyrand "math/rand"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"baton"
	"baton/internal/boottime"
	"baton/internal/raftnode/raftsim"
	"baton/storetest/history"
)

var (
	firstSeed = flag.Uint64("seed", 1, "first seed of the simulated cluster")
	seeds     = flag.Int("seeds", defaultSeeds, "number of seeds of the simulated cluster")
)

// TestSimulatedCluster runs clusters of three and five servers through
// partitions, pauses, crashes and takeovers in simulated time, under clients that
// campaign, renew, extend, release, end and read through any server, and holds
// what they were told against what happened.
func TestSimulatedCluster(t *testing.T) {
	onOneProcessor(t)
	n := *seeds
	if testing.Short() {
		n = min(n, 20)
	}
	var answers, terms, reigns int
	for seed := *firstSeed; seed < *firstSeed+uint64(n); seed++ {
		c := simulate(t, seed, trial{}, fromSend)
		answers, terms, reigns = answers+c.check.answers, terms+len(c.check.leaders), reigns+len(c.reigns)
		for _, problem := range c.check.problems {
			t.Errorf("seed %d: %s", seed, problem)
		}
		if t.Failed() {
			t.Fatalf("again with: go test ./store/raftstore -run TestSimulatedCluster -seed %d -seeds 1", seed)
		}
	}
	t.Logf("%d answers, %d terms and %d raft leaders in %d runs", answers, terms, reigns, n)
	if terms < 10*n || reigns < 2*n {
		t.Errorf("that is too little to prove anything")
	}
}

// onOneProcessor makes what is ready at the same simulated instant run in the
// same order each time, so that a seed that fails fails again.
func onOneProcessor(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// trusted is until when a client trusts an answer; all but fromSend are wrong.
type trusted func(sent, received time.Time, remaining time.Duration) time.Time

func fromSend(sent, _ time.Time, remaining time.Duration) time.Time { return sent.Add(remaining) }

func fromReceipt(_, received time.Time, remaining time.Duration) time.Time {
	return received.Add(remaining)
}

// simCluster is one simulated run.
type simCluster struct {
	t      *testing.T
	rng    *rand.Rand
	net    *raftsim.Net
	nodes  []*simNode
	trial  trial
	trust  trusted
	check  *checker
	log    *history.Log
	ending sync.WaitGroup // of processes that were killed

	mu     sync.Mutex
	reigns map[uint64]bool
}

// simNode is a machine: a disk, and a process that runs on it or not.
type simNode struct {
	c    *simCluster
	name string

	mu   sync.Mutex
	disk *raftsim.Disk // as the last process left it
	p    *process
}

func (n *simNode) process() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.p
}

func simulate(t *testing.T, seed uint64, broken trial, trust trusted) *simCluster {
	t.Helper()
	c := &simCluster{t: t, rng: rand.New(rand.NewPCG(seed, 0)), trial: broken, trust: trust, reigns: map[uint64]bool{}}
	legacyrand.Seed(int64(seed)) //nolint:staticcheck // raft draws its timeouts from there
	synctest.Test(t, func(t *testing.T) { c.run(t.Context(), seed) })
	return c
}

func (c *simCluster) begin(size int, seed uint64) {
	c.check = newChecker()
	c.log = history.NewLog(boottime.Monotonic())
	c.net = raftsim.NewNet(seed)
	var servers []raft.Server
	for i := range size {
		n := &simNode{c: c, name: fmt.Sprintf("s%d", i+1)}
		c.nodes = append(c.nodes, n)
		servers = append(servers, raft.Server{ID: raft.ServerID(n.name), Address: raft.ServerAddress(n.name)})
	}
	for _, n := range c.nodes {
		n.start(servers)
	}
}

func (c *simCluster) run(ctx context.Context, seed uint64) {
	size := 3
	if seed%4 == 0 {
		size = 5
	}
	c.begin(size, seed)
	ctx, cancel := context.WithCancel(ctx)
	var clients sync.WaitGroup
	for i := range 5 {
		client := newSimClient(c, fmt.Sprintf("n%d", i), rand.New(rand.NewPCG(seed, uint64(10+i))))
		clients.Go(func() { client.live(ctx) })
	}
	time.Sleep(2 * time.Second)
	for range 20 {
		time.Sleep(c.between(50*time.Millisecond, 2*time.Second))
		c.disturb()
	}
	cancel()
	clients.Wait()
	c.heal()
	c.settle()
	if result := history.Check(c.log.Ops(), history.Options{Slack: time.Nanosecond}); result.Verdict == history.Illegal {
		c.check.problem("history of group %s: %v", result.Group, result)
	}
	c.stop()
}

func (c *simCluster) stop() {
	for _, n := range c.nodes {
		n.crash()
	}
	c.ending.Wait()
}

func (c *simCluster) between(least, most time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return least + time.Duration(c.rng.Int64N(int64(most-least)))
}

func (c *simCluster) choose(n int) int {
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
	trial := c.trial
	if trial.hold == nil {
		trial.hold = p.Gate.Pass
	}
	trial.answered = func(q request, a response, err error) {
		if p.Dead.Err() == nil && err == nil {
			c.check.answered(q, a)
		}
	}
	trial.applied = c.check.applied
	cfg := Config{
		ID: n.name, Dir: "none", Clock: p.Clock(1), Logger: testLogger(),
		SnapshotEntries: 16, trial: &trial,
	}.withDefaults()
	s, err := start(cfg, parts{
		logs: p.Disk, stable: p.Disk, snapshots: p.Disk, bootstrap: bootstrap,
		transport: p.Transport(), peers: &simPeers{p},
	})
	if err != nil {
		c.t.Errorf("start %s: %v", n.name, err)
		return
	}
	p.store = s
	p.Join(s)
	n.p = p
}

// crash ends a life. What the process does after it, nobody sees.
func (n *simNode) crash() {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.p
	if p == nil {
		return
	}
	n.p = nil
	n.disk = p.Kill()
	n.c.ending.Go(func() {
		if err := p.store.stop(); err != nil {
			n.c.t.Errorf("stop %s: %v", n.name, err)
		}
	})
}

// leader is the node that believes to lead in the latest raft term, or nil.
func (c *simCluster) leader() *simNode {
	var found *simNode
	term := uint64(0)
	for _, n := range c.nodes {
		if p := n.process(); p != nil && p.store.raft.State() == raft.Leader {
			if at := p.store.raft.CurrentTerm(); at > term {
				found, term = n, at
			}
		}
	}
	if found != nil {
		c.mu.Lock()
		c.reigns[term] = true
		c.mu.Unlock()
	}
	return found
}

// disturb does one bad thing, mostly to the leader.
func (c *simCluster) disturb() {
	n := c.nodes[c.choose(len(c.nodes))]
	if leader := c.leader(); leader != nil && c.choose(4) > 0 {
		n = leader
	}
	howLong := c.between(50*time.Millisecond, 2500*time.Millisecond)
	switch c.choose(8) {
	case 0, 1, 2:
		if p := n.process(); p != nil {
			p.Freeze(howLong)
		}
	case 3:
		c.isolate(n, howLong, true, true)
	case 4:
		out := c.choose(2) == 0
		c.isolate(n, howLong, out, !out)
	case 5:
		c.crashFor(n, howLong)
	case 6:
		if p := n.process(); p != nil {
			p.handOn()
		}
	case 7:
		if p := n.process(); p != nil {
			_ = p.store.raft.Snapshot()
		}
	}
}

// crashFor kills a node and starts it again after a while, unless that takes the majority.
func (c *simCluster) crashFor(n *simNode, howLong time.Duration) {
	n.crash()
	time.AfterFunc(howLong, func() { n.start(nil) })
}

func (c *simCluster) isolate(n *simNode, howLong time.Duration, out, in bool) {
	for _, other := range c.nodes {
		if other != n {
			c.net.SetCut(n.name, other.name, out)
			c.net.SetCut(other.name, n.name, in)
		}
	}
	time.AfterFunc(howLong, func() {
		for _, other := range c.nodes {
			if other != n {
				c.net.SetCut(n.name, other.name, false)
				c.net.SetCut(other.name, n.name, false)
			}
		}
	})
}

// heal ends all faults; those that were to end by themselves have by then.
func (c *simCluster) heal() {
	time.Sleep(3 * time.Second)
	c.net.Calm()
	c.net.Heal()
	for _, n := range c.nodes {
		n.start(nil)
		n.process().Thaw()
	}
}

// settle checks that everything works again, through every server, and that all have the same state.
func (c *simCluster) settle() {
	for i, n := range c.nodes {
		for g := range simGroups {
			c.mustAcquire(n, groupName(g), fmt.Sprintf("last-%d", i))
		}
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		var seen []string
		for _, n := range c.nodes {
			p := n.process().store.progressNow(true)
			seen = append(seen, fmt.Sprintf("%s at %d: %s", n.name, p.Applied, p.Hash))
		}
		same := true
		for _, s := range seen {
			_, a, _ := strings.Cut(s, " at ")
			_, b, _ := strings.Cut(seen[0], " at ")
			same = same && a == b
		}
		if same {
			return
		}
		if time.Now().After(deadline) {
			c.check.problem("servers differ: %s", strings.Join(seen, "; "))
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (c *simCluster) mustAcquire(n *simNode, group, name string) {
	store := n.process().store
	deadline := time.Now().Add(30 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		lease, err := store.Acquire(ctx, group, baton.Candidate{NodeID: name, InstanceID: name + "-" + group}, time.Second)
		if err == nil {
			c.check.askedFor(group, lease.Term)
			err = store.Release(ctx, lease.ID())
		}
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			c.check.problem("group %s cannot be had through %s 30s after the last fault: %v", group, n.name, err)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}
