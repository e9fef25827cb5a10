package zkstore_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"baton"
	"baton/internal/leak"
	"baton/internal/testserver"
	"baton/store/zkstore"
	"baton/storetest"
	"baton/storetest/drill"
)

func TestMain(m *testing.M) { leak.Main(m) }

func hosts(servers ...*testserver.Server) []string {
	var all []string
	for _, s := range servers {
		all = append(all, strings.TrimPrefix(s.URL, "zookeeper://"))
	}
	return all
}

var prefixes atomic.Int64

// harness gives each check a prefix of its own on one server, which it may restart if it is alone there.
func harness(server *testserver.Server, restart func()) storetest.Harness {
	return storetest.Harness{Start: func(t storetest.T) storetest.Backing {
		prefix := fmt.Sprintf("/check-%d", prefixes.Add(1))
		return storetest.Backing{
			Open: func() baton.Store {
				s, err := zkstore.New(t.Context(), zkstore.Config{Servers: hosts(server), Prefix: prefix, Timeout: drill.Unhurried})
				if err != nil {
					t.Fatalf("open: %v", err)
				}
				return s
			},
			Restart: restart,
		}
	}}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.ZooKeeper)
	storetest.Run(t, harness(server, func() { server.Kill(t); server.Restart(t) }))
}

func TestConformanceUnderFaults(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.ZooKeeper)
	storetest.RunFaulty(t, harness(server, nil), 1, 2, 3)
}
