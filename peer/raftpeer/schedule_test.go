package raftpeer

import (
	"cmp"
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"baton/internal/raftnode/raftsim"
)

// A leader is frozen in the middle of a write, with answers on their way to it
// that were true when they were sent: that its followers are there, that they follow it, and
// the questions of a confirmation. A successor is elected and waits out the lease. The old leader
// wakes before its trust has run out, and then the answers arrive. If it trusts for
// longer because of them, both lead.
func TestFrozenLeader(t *testing.T) {
	for _, tt := range []struct {
		name   string
		broken flaws
		rates  rates
		caught bool
	}{
		{"as it is", flaws{}, exactly, false},
		{"clocks within the margin", flaws{}, slightly, false},
		{"clocks beyond the margin", flaws{}, wildly, true},
		{"trust from the receipt", flaws{fromReceipt: true}, exactly, true},
		{"raft.VerifyLeader", flaws{verifiesLeader: true}, exactly, true},
		{"LeaderCh", flaws{believesCh: true}, exactly, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onOneProcessor(t)
			const most = 30
			for seed := uint64(1); seed <= most; seed++ {
				c := &simGroup{t: t, rng: rand.New(rand.NewPCG(seed, 0)), broken: tt.broken, rates: tt.rates, check: newChecker(), lease: 8 * DefaultElectionTimeout}
				synctest.Test(t, func(t *testing.T) { c.freezeLeader(t.Context(), seed) })
				for _, problem := range c.check.problems {
					t.Logf("seed %d: %s", seed, problem)
				}
				switch caught := len(c.check.problems) > 0; {
				case caught && tt.caught:
					return
				case caught:
					t.Fatalf("seed %d: two leaders", seed)
				}
			}
			if tt.caught {
				t.Fatalf("%d runs, and nothing was found", most)
			}
		})
	}
}

func exactly(*rand.Rand) float64 { return 1 }

func (c *simGroup) freezeLeader(ctx context.Context, seed uint64) {
	var end context.CancelFunc
	c.over, end = context.WithCancel(ctx)
	c.patient = true
	c.begin(3, seed)
	c.net.Calm()
	time.Sleep(3 * time.Second)
	old := c.leader()
	p := old.process()
	p.awaitQuestions(450 * time.Millisecond)
	time.Sleep(385 * time.Millisecond) // of the 400 to the next
	var contact, follow, questions []func()
	for _, n := range c.nodes {
		if n != old {
			contact = append(contact, c.net.Hold(n.name, old.name, raftsim.Heartbeat))
			follow = append(follow, c.net.Hold(n.name, old.name, raftsim.Entries))
			questions = append(questions, c.net.Hold(n.name, old.name, raftsim.Others))
		}
	}
	p.awaitQuestions(60 * time.Millisecond)
	time.Sleep(3 * time.Millisecond) // they have arrived, and the answers are on their way
	p.stall()
	for _, n := range c.nodes { // what is on its way arrives, what is sent from now on does not
		c.net.SetCut(n.name, old.name, true)
		c.net.SetCut(old.name, n.name, true)
	}
	for _, release := range questions {
		release() // they arrive at the door of a frozen process
	}
	time.Sleep(700 * time.Millisecond)
	p.Gate.Open()
	for _, release := range contact {
		release()
	}
	synctest.Wait()
	p.DiskGate.Open()
	synctest.Wait()
	for _, release := range follow {
		release()
	}
	time.Sleep(5 * time.Second)
	c.net.Heal()
	end()
	for _, n := range c.nodes {
		n.crash()
	}
	c.ending.Wait()
}

// awaitQuestions waits for the next confirmation to be asked for, if there is one.
func (p *process) awaitQuestions(most time.Duration) {
	asked := p.e.Traffic().Questions
	for began := time.Now(); time.Since(began) < most && p.e.Traffic().Questions == asked; {
		time.Sleep(time.Millisecond)
	}
}

// stall stops the process, and raft's main loop in the middle of a write, so that it
// takes itself for raft's leader until it wakes.
func (p *process) stall() {
	p.Freeze(time.Hour)
	b, _ := json.Marshal(command{Op: opBarrier, RaftTerm: p.e.raft.CurrentTerm()})
	_ = p.e.raft.Apply(b, 0) // a future that nobody waits for
}

// begin starts all nodes.
func (c *simGroup) begin(size int, seed uint64) {
	c.net = raftsim.NewNet(seed)
	c.net.Distance = cmp.Or(c.distance, c.net.Distance)
	if c.patient {
		c.net.RPCTimeout = 5 * time.Second
	}
	var servers []raft.Server
	for i := range size {
		n := &simNode{c: c, name: "n" + string(rune('1'+i))}
		c.nodes = append(c.nodes, n)
		servers = append(servers, raft.Server{ID: raft.ServerID(n.name), Address: raft.ServerAddress(n.name)})
	}
	for _, n := range c.nodes {
		n.start(servers)
	}
}
