package raftpeer

import (
	"context"
	legacyrand "math/rand"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"baton/internal/raftnode/raftsim"
)

// A new raft leader counts the lease of its predecessor from what a majority recalls. In each of these it
// takes one of them, and no other, to know how late the old leader was confirmed.
func TestRecall(t *testing.T) {
	for _, tt := range []struct {
		name   string
		how    func(c *simGroup, old, near, far *simNode)
		broken flaws
	}{
		{"the follower that the new raft leader has to ask", (*simGroup).loseOld, flaws{recallsAlone: true}},
		{"the old leader itself", (*simGroup).transferToFar, flaws{ownUnnoted: true}},
		{"processes that have died since", (*simGroup).restartFollowers, flaws{forgets: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onOneProcessor(t)
			const most = 30
			for seed := uint64(1); seed <= most; seed++ {
				if problems := recall(t, seed, flaws{}, tt.how); len(problems) > 0 {
					t.Fatalf("seed %d: %q", seed, problems)
				}
				if problems := recall(t, seed, tt.broken, tt.how); len(problems) > 0 {
					t.Logf("broken, seed %d: %s", seed, problems[0])
					return
				}
			}
			t.Fatalf("broken, and in %d runs nothing was found", most)
		})
	}
}

// recall has a leader confirmed by the near follower and not by the far one, and then what how does.
func recall(t *testing.T, seed uint64, broken flaws, how func(c *simGroup, old, near, far *simNode)) []string {
	c := &simGroup{t: t, rng: rand.New(rand.NewPCG(seed, 0)), broken: broken, rates: slightly, check: newChecker(), lease: 8 * DefaultElectionTimeout}
	legacyrand.Seed(int64(seed)) //nolint:staticcheck // raft draws its timeouts from there
	synctest.Test(t, func(t *testing.T) {
		var end context.CancelFunc
		c.over, end = context.WithCancel(t.Context())
		c.patient = true
		c.begin(3, seed)
		c.net.Calm()
		time.Sleep(3 * time.Second)
		old := c.leader()
		var followers []*simNode
		for _, n := range c.nodes {
			if n != old {
				followers = append(followers, n)
			}
		}
		near, far := followers[0], followers[1]
		release := c.net.Hold(old.name, far.name, raftsim.Others) // raft's own goes through
		time.Sleep(2 * c.lease)
		old.process().awaitQuestions(c.lease)
		time.Sleep(DefaultElectionTimeout + 20*time.Millisecond) // they were answered, or given up
		release()
		how(c, old, near, far)
		time.Sleep(2 * c.lease)
		if node, _ := c.check.leads(); node == "" || node == old.name {
			c.check.problem("%q leads: %s", node, c.describe())
		}
		end()
		for _, n := range c.nodes {
			n.crash()
		}
		c.ending.Wait()
	})
	return c.check.problems
}

// loseOld: the followers elect one of them, and in some runs the one that vouched for nobody.
func (c *simGroup) loseOld(old, near, far *simNode) {
	c.cut(old, near, true)
	c.cut(old, far, true)
}

// transferToFar: the old leader has the one elected that vouched for nobody, with its own vote.
func (c *simGroup) transferToFar(old, near, far *simNode) {
	c.cut(old, near, true)
	c.cut(near, far, true)
	_ = old.process().e.raft.LeadershipTransferToServer(raft.ServerID(far.name), raft.ServerAddress(far.name)) // a future that nobody waits for
}

// restartFollowers: the followers elect one, in processes that have vouched for nobody yet.
func (c *simGroup) restartFollowers(old, near, far *simNode) {
	c.loseOld(old, near, far)
	for _, n := range []*simNode{near, far} {
		n.crash()
		n.start(nil)
	}
}

func (c *simGroup) cut(a, b *simNode, cut bool) {
	c.net.SetCut(a.name, b.name, cut)
	c.net.SetCut(b.name, a.name, cut)
}

// A peer that has not heard of the new raft term may vouch for the old one still: what it recalls is worth nothing.
func TestRecallOfAnEarlierRaftTerm(t *testing.T) {
	onOneProcessor(t)
	c := &simGroup{t: t, rng: rand.New(rand.NewPCG(1, 0)), rates: exactly, check: newChecker(), lease: 8 * DefaultElectionTimeout, patient: true}
	synctest.Test(t, func(t *testing.T) {
		var end context.CancelFunc
		c.over, end = context.WithCancel(t.Context())
		c.begin(3, 1)
		c.net.Calm()
		time.Sleep(3 * time.Second)
		e := c.leader().process().e
		for ahead, want := range []bool{true, false} {
			barrier := e.clock.Now()
			r := &reign{e: e, term: e.raft.CurrentTerm() + uint64(ahead), life: t.Context(), since: barrier}
			r.recall()
			r.owned.Wait()
			if r.recalled != want || r.recalled != (r.since < barrier) {
				t.Errorf("peers %d raft terms behind: counts from %v, the barrier was at %v", ahead, r.since, barrier)
			}
		}
		end()
		for _, n := range c.nodes {
			n.crash()
		}
		c.ending.Wait()
	})
}
