package raftstore

import (
	"fmt"
	"testing"

	"baton"
	"baton/storetest"
)

// handle is a server of a cluster whose servers are closed one after the other.
type handle struct {
	*Store
	c *testCluster
}

func (h handle) Close() error { return h.c.end(h.Store) }

// harness gives each check a cluster of its own, whose servers are its handles.
func harness(size int) storetest.Harness {
	return storetest.Harness{Parallel: 8/size + 2, Start: func(t storetest.T) storetest.Backing {
		c := newCluster(t, size, patient)
		next := 0
		return storetest.Backing{
			Open: func() baton.Store {
				next++
				return handle{c.servers[fmt.Sprintf("s%d", next%size+1)], c}
			},
			Restart: func() { c.stopAll(); c.startAll() },
		}
	}}
}

func TestConformance(t *testing.T) {
	for _, size := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d servers", size), func(t *testing.T) { storetest.Run(t, harness(size)) })
	}
}
