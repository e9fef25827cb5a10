package raftpeer

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// The only peer that campaigns was away for so long that raft tries it every ten seconds by now. It
// answers questions at once, and is offered raft's leadership, which it cannot take before raft has
// tried it again. That must not keep raft's leader from its own work, and the peer gets
// it in the end; or the leader is deposed before that, and can still lead later.
func TestOfferToAPeerThatIsBackAndBehind(t *testing.T) {
	for _, tt := range []struct {
		name string
		then func(c *simGroup, old, back, third *simNode)
	}{
		{"it catches up", func(c *simGroup, _, back, _ *simNode) {
			time.Sleep(10 * time.Second)
			if node, _ := c.check.leads(); node != back.name {
				c.t.Errorf("%q leads, want %s: %s", node, back.name, c.describe())
			}
		}},
		{"its raft leader is deposed", (*simGroup).deposeForATime},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onOneProcessor(t)
			c := &simGroup{t: t, rng: rand.New(rand.NewPCG(1, 0)), rates: exactly, check: newChecker(), lease: DefaultLease(DefaultElectionTimeout)}
			synctest.Test(t, func(t *testing.T) { c.offerToOneThatIsBack(t.Context(), tt.then) })
		})
	}
}

func (c *simGroup) offerToOneThatIsBack(ctx context.Context, then func(c *simGroup, old, back, third *simNode)) {
	var end context.CancelFunc
	c.over, end = context.WithCancel(ctx)
	end() // nobody campaigns by itself
	c.begin(3, 1)
	c.net.Calm()
	time.Sleep(3 * time.Second)
	old := c.leader()
	var others []*simNode
	for _, n := range c.nodes {
		if n != old {
			others = append(others, n)
		}
	}
	back, third := others[0], others[1]
	c.cut(back, old, true)
	c.cut(back, third, true)
	old.commits() // what the one that is away does not have
	time.Sleep(20 * time.Second)
	c.net.Heal()
	campaign, stop := context.WithCancel(ctx)
	c.ending.Go(func() { _, _ = back.process().e.Campaign(campaign) }) // how it ends is seen elsewhere
	time.Sleep(4 * time.Second)
	old.commits()
	then(c, old, back, third)
	stop()
	for _, n := range c.nodes {
		n.crash()
	}
	c.ending.Wait()
}

// commits tests that raft's leader does.
func (n *simNode) commits() {
	e := n.process().e
	if _, err := e.commit(command{Op: opBarrier, RaftTerm: e.raft.CurrentTerm()}); err != nil {
		n.c.t.Errorf("%s commits nothing: %v", n.name, err)
	}
}

// deposeForATime has a raft leader lose its leadership and win it again.
func (c *simGroup) deposeForATime(old, back, third *simNode) {
	c.cut(old, back, true)
	c.cut(old, third, true)
	time.Sleep(time.Second)
	c.net.Heal()
	time.Sleep(20 * time.Second)
	for range 50 {
		switch n := c.leader(); n {
		case old:
			old.commits()
			return
		case nil:
		default:
			_ = n.process().e.raft.LeadershipTransferToServer(raft.ServerID(old.name), raft.ServerAddress(old.name)) // a future that nobody waits for
		}
		time.Sleep(100 * time.Millisecond)
	}
	c.t.Errorf("%s is not elected again: %s", old.name, c.describe())
}
