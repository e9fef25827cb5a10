package testserver

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// ZooKeeper is ZooKeeper. Start starts one that stands alone; StartZooKeeper an ensemble.
const ZooKeeper Kind = "zookeeper"

// StartZooKeeper starts an ensemble for this test alone. Each member is a server
// that can be killed, paused and cut off from its clients on its own; what
// members say to each other cannot be cut. A member is ready only with most of
// the others, so do not wait for a Restart while fewer run.
func StartZooKeeper(t testing.TB, members int, options ...Option) []*Server {
	t.Helper()
	var ensemble []Option
	for i := range members {
		peers, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		votes, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		ensemble = append(ensemble, Setting("server."+strconv.Itoa(i+1), fmt.Sprintf("127.0.0.1:%d:%d", peers, votes)))
	}
	servers, errs := make([]*Server, members), make([]error, members)
	var starting sync.WaitGroup
	for i := range members {
		starting.Go(func() {
			servers[i], errs[i] = start(ZooKeeper, slices.Concat([]Option{Setting("myid", strconv.Itoa(i+1))}, ensemble, options)...)
		})
	}
	starting.Wait()
	t.Cleanup(func() {
		var stopping sync.WaitGroup
		defer stopping.Wait()
		for _, s := range servers {
			if s != nil {
				stopping.Go(func() {
					if err := s.stop(); err != nil {
						t.Errorf("stop zookeeper: %v", err)
					}
				})
			}
		}
	})
	require(t, ZooKeeper, errors.Join(errs...))
	return servers
}
