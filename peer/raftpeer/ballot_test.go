package raftpeer

import (
	"context"
	legacyrand "math/rand"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// Of nine peers that miss their leader, some do at nearly the same time. One is elected at
// once all the same: a vote that is split costs a raft term, and an election timeout or two.
func TestNineDoNotSplitTheVote(t *testing.T) {
	onOneProcessor(t)
	const seeds, kills = 4, 25
	elections := func(broken flaws) (terms uint64, slowest time.Duration) {
		for seed := uint64(1); seed <= seeds; seed++ {
			c := &simGroup{t: t, rng: rand.New(rand.NewPCG(seed, 0)), broken: broken, rates: exactly, check: newChecker(), lease: DefaultLease(DefaultElectionTimeout), patient: true, distance: 10 * time.Millisecond}
			legacyrand.Seed(int64(seed)) //nolint:staticcheck // raft draws its timeouts from there
			synctest.Test(t, func(t *testing.T) {
				n, most := c.killLeaders(t.Context(), seed, kills)
				terms, slowest = terms+n, max(slowest, most)
			})
			for _, problem := range c.check.problems {
				t.Errorf("seed %d: %s", seed, problem)
			}
		}
		return terms, slowest
	}
	terms, slowest := elections(flaws{})
	splitTerms, splitSlowest := elections(flaws{splitsVotes: true})
	t.Logf("%d elections took %d raft terms, and %v at most; %d and %v where all ask who want to", seeds*kills, terms, slowest, splitTerms, splitSlowest)
	// How many votes are split without it is a matter of chance: one in ten, about.
	if most := uint64(seeds * kills * 21 / 20); terms > most || splitTerms <= terms {
		t.Errorf("%d raft terms, and %d without a ballot", terms, splitTerms)
	}
	// Whoever misses the leader first is elected, and not when a majority has waited for as long.
	if slowest >= splitSlowest {
		t.Errorf("%v without a leader, and %v without a ballot", slowest, splitSlowest)
	}
}

// killLeaders has nine peers lose one leader after the other, and returns how many raft terms they needed,
// and the longest time without a leader.
func (c *simGroup) killLeaders(ctx context.Context, seed uint64, kills int) (terms uint64, slowest time.Duration) {
	var end context.CancelFunc
	c.over, end = context.WithCancel(ctx)
	c.begin(9, seed)
	c.net.Calm()
	time.Sleep(2 * time.Second)
	for range kills {
		old := c.leader()
		before := old.process().e.raft.CurrentTerm()
		old.crash()
		struck := time.Now()
		for c.leader() == nil {
			time.Sleep(time.Millisecond)
		}
		slowest = max(slowest, time.Since(struck))
		terms += c.leader().process().e.raft.CurrentTerm() - before
		time.Sleep(c.between(500*time.Millisecond, time.Second))
		old.start(nil)
		time.Sleep(500 * time.Millisecond)
	}
	end()
	for _, n := range c.nodes {
		n.crash()
	}
	c.ending.Wait()
	return terms, slowest
}

// A peer that waits for its turn to ask does not keep its process from ending.
func TestWhoWaitsForItsTurnStopsAtOnce(t *testing.T) {
	onOneProcessor(t)
	const seed = 1
	c := &simGroup{t: t, rng: rand.New(rand.NewPCG(seed, 0)), rates: exactly, check: newChecker(), lease: DefaultLease(DefaultElectionTimeout), patient: true, distance: 10 * time.Millisecond}
	legacyrand.Seed(seed) //nolint:staticcheck // raft draws its timeouts from there
	synctest.Test(t, func(t *testing.T) {
		var end context.CancelFunc
		c.over, end = context.WithCancel(t.Context())
		c.begin(9, seed)
		c.net.Calm()
		time.Sleep(2 * time.Second)
		for c.candidates() < 4 {
			if l := c.leader(); l != nil {
				l.crash()
			}
			time.Sleep(time.Millisecond)
		}
		end()
		began := time.Now()
		var stopping sync.WaitGroup
		for _, n := range c.nodes {
			if p := n.process(); p != nil {
				p.Kill() // nothing is under way on the network
				stopping.Go(func() {
					if err := p.e.stop(); err != nil {
						t.Errorf("stop %s: %v", n.name, err)
					}
				})
			}
		}
		stopping.Wait()
		if took := time.Since(began); took > DefaultElectionTimeout/100 {
			t.Errorf("it took %v", took)
		}
		c.ending.Wait()
	})
}

func (c *simGroup) candidates() (n int) {
	for _, node := range c.nodes {
		if p := node.process(); p != nil && p.e.raft.State() == raft.Candidate {
			n++
		}
	}
	return n
}
