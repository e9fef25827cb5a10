package raftstore

import (
	"context"
	"testing"
	"time"

	"baton"
	"baton/internal/raftnode/raftsim"
)

// A follower hears heartbeats of its leader, and none of its entries. A heartbeat says nothing
// about what was committed, so what such a server has at hand gets older and older.
func TestHeartbeatsMakeNothingRecent(t *testing.T) {
	const age = time.Second
	scheduled(t, trial{}, 3, func(c *simCluster) {
		leader := c.awaitReign(nil)
		put := func(g baton.Group) baton.Group {
			g, err := leader.process().store.PutGroup(context.Background(), g)
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		group := put(baton.Group{ID: "g", Policy: baton.Policy{MaxTTL: time.Minute}})
		var follower *simNode
		for _, n := range c.nodes {
			if n != leader {
				follower = n
			}
		}
		s := follower.process().store
		time.Sleep(time.Second)
		if _, err := s.Group(context.Background(), "g"); err != nil {
			t.Fatal(err)
		}
		if g, known := s.RecentGroup("g", age); !known || g.Version != group.Version {
			t.Errorf("just read, and not at hand: %+v, %v", g, known)
		}
		if g, known := s.RecentGroup("none", age); !known || g.Version != 0 {
			t.Errorf("another, which is not registered: %+v, %v", g, known)
		}
		release := c.net.Hold(leader.name, follower.name, raftsim.Entries)
		group.Policy.MaxTTL = time.Second
		group = put(group)
		time.Sleep(2 * age)
		if contact := time.Since(s.raft.LastContact()); contact > age {
			t.Errorf("nothing was heard for %v", contact)
		}
		if g, known := s.RecentGroup("g", age); known && g.Version != group.Version {
			t.Errorf("version %d is taken for recent, %v after version %d was made elsewhere", g.Version, 2*age, group.Version)
		}
		// What the leader says of the group is right, but shows that the rest is not at hand.
		if g, err := s.Group(context.Background(), "g"); err != nil || g.Version != group.Version {
			t.Errorf("asked for: %+v, %v", g, err)
		}
		if g, known := s.RecentGroup("g", age); known && g.Version != group.Version {
			t.Errorf("version %d is taken for recent, and the leader said %d", g.Version, group.Version)
		}
		release()
		time.Sleep(time.Second)
		if _, err := s.Group(context.Background(), "none"); err == nil {
			t.Error("a group that is not registered was found")
		}
		if g, known := s.RecentGroup("g", age); !known || g.Version != group.Version {
			t.Errorf("caught up, and not at hand: %+v, %v", g, known)
		}
	})
}
