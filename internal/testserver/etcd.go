package testserver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Etcd is etcd. Start starts a cluster of one; StartEtcd one of any size.
const Etcd Kind = "etcd"

// StartEtcd starts an etcd cluster for this test alone. Each member is a server
// that can be killed, paused and cut off from its clients on its own; what
// members say to each other cannot be cut. A member is ready only with most of
// the others, so do not wait for a Restart while fewer run.
func StartEtcd(t testing.TB, members int, options ...Option) []*Server {
	t.Helper()
	var peers []string
	for i := range members {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		peers = append(peers, fmt.Sprintf("m%d=http://127.0.0.1:%d", i, port))
	}
	servers, errs := make([]*Server, members), make([]error, members)
	var starting sync.WaitGroup
	for i, peer := range peers {
		starting.Go(func() {
			name, address, _ := strings.Cut(peer, "=")
			servers[i], errs[i] = start(Etcd, slices.Concat([]Option{
				Setting("name", name), Setting("initial-cluster", strings.Join(peers, ",")),
				Setting("listen-peer-urls", address), Setting("initial-advertise-peer-urls", address),
			}, options)...)
		})
	}
	starting.Wait()
	t.Cleanup(func() {
		// All at once: one that is left alone takes its time to end.
		var stopping sync.WaitGroup
		defer stopping.Wait()
		for _, s := range servers {
			if s != nil {
				stopping.Go(func() {
					if err := s.stop(); err != nil {
						t.Errorf("stop etcd: %v", err)
					}
				})
			}
		}
	})
	require(t, Etcd, errors.Join(errs...))
	return servers
}
