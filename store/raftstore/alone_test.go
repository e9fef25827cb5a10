package raftstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"baton"
)

// A server that is alone does not wait for a leader that it cannot have: neither
// when it begins nor when it is started again. Nor does it need the network for that, where what it says to
// itself could come late, and depose it.
func TestLoneServerElectsItself(t *testing.T) {
	c := newCluster(t, 1, func(cfg *Config) {
		cfg.ElectionTimeout = time.Minute // newCluster waits for less
		cfg.dial = func(_ context.Context, _, address string) (net.Conn, error) {
			t.Errorf("a server that is alone connects to %s", address)
			return nil, errors.ErrUnsupported
		}
	})
	grant(t, c.servers["s1"], "g", "n")
	c.stopAll()
	c.startAll()
}

// Many commands in few entries are compacted too.
func TestSnapshotByBytes(t *testing.T) {
	c := newCluster(t, 1, func(cfg *Config) { cfg.SnapshotEntries = 8 }) // raft itself looks after half a minute
	s := c.servers["s1"]
	deadline := time.Now().Add(20 * time.Second)
	for i := 0; s.Stats().Snapshots.Count == 0; i++ {
		grant(t, s, fmt.Sprint("group-", i), "n")
		if time.Now().After(deadline) {
			t.Fatalf("no snapshot after %d grants", i)
		}
	}
	last := grant(t, s, "last", "n")
	c.stopAll()
	c.startAll()
	if l, err := c.servers["s1"].Get(t.Context(), "last"); err != nil || l.Term != last.Term {
		t.Errorf("after a restart: %+v, %v", l, err)
	}
}

// What was changed through a server is never older there than that, whoever leads the cluster.
func TestRecentGroup(t *testing.T) {
	c := newCluster(t, 3, patient)
	for id, s := range c.servers {
		group := baton.Group{ID: "policy-of-" + id}
		for i := range 20 {
			group.Policy.MaxTTL = time.Minute + time.Duration(i)*time.Second
			put, err := s.PutGroup(t.Context(), group)
			if err != nil {
				t.Fatal(err)
			}
			if recent, known := s.RecentGroup(group.ID, time.Hour); known && recent.Version != put.Version {
				t.Errorf("%s has version %d at hand, and has just made %d", id, recent.Version, put.Version)
			}
			group.Version = put.Version
		}
		for {
			recent, known := s.RecentGroup(group.ID, time.Hour)
			if known {
				if recent.Policy.MaxTTL != group.Policy.MaxTTL {
					t.Errorf("%s has %+v at hand", id, recent)
				}
				break
			}
			if _, err := s.Group(t.Context(), group.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}
