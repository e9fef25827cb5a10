package raftstore

import (
	"fmt"
	"testing"

	"baton"
	"baton/storetest"
)

// harness gives each check a cluster of its own, whose servers are its handles.
func harness(size int) storetest.Harness {
	return storetest.Harness{Parallel: 8/size + 2, Start: func(t storetest.T) storetest.Backing {
		c := newCluster(t, size, patient)
		next := 0
		return storetest.Backing{
			Open: func() baton.Store {
				next++
				return c.servers[fmt.Sprintf("s%d", next%size+1)]
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
