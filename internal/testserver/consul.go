package testserver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Consul is a Consul server that keeps its data on disk. Start starts a cluster
// of one; StartConsul one of any size. Settings are those of an agent's
// configuration file, each value as HCL. It is a heavy kind.
const Consul Kind = "consul"

// StartConsul starts a Consul cluster for this test alone. Each server can be
// killed, paused and cut off from its clients on its own; what servers say to
// each other cannot be cut. A server is ready only with most of the others, so do
// not wait for a Restart while fewer run.
func StartConsul(t testing.TB, servers int, options ...Option) []*Server {
	t.Helper()
	skipHeavy(t, Consul)
	var ports []int
	var addresses []string
	for range servers {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, port)
		addresses = append(addresses, fmt.Sprintf("%q", fmt.Sprintf("127.0.0.1:%d", port)))
	}
	started, errs := make([]*Server, servers), make([]error, servers)
	var starting sync.WaitGroup
	for i, port := range ports {
		starting.Go(func() {
			started[i], errs[i] = start(Consul, slices.Concat([]Option{
				Setting("node_name", fmt.Sprintf("%q", fmt.Sprintf("s%d", i))),
				Setting("bootstrap_expect", fmt.Sprint(servers)),
				Setting("ports", fmt.Sprintf("{ serf_lan = %d }", port)),
				Setting("retry_join", "["+strings.Join(addresses, ", ")+"]"),
				Setting("retry_interval", `"200ms"`),
				// One that is paused stays a member, so that another one can be spared.
				Setting("autopilot", "{ cleanup_dead_servers = false }"),
			}, options)...)
		})
	}
	starting.Wait()
	t.Cleanup(func() {
		var stopping sync.WaitGroup
		defer stopping.Wait()
		for _, s := range started {
			if s != nil {
				stopping.Go(func() {
					if err := s.stop(); err != nil {
						t.Errorf("stop consul: %v", err)
					}
				})
			}
		}
	})
	require(t, Consul, errors.Join(errs...))
	return started
}
