package etcdstore_test

import (
	"fmt"
	"net/url"
	"testing"

	"baton"
	"baton/internal/leak"
	"baton/internal/testserver"
	"baton/store/etcdstore"
	"baton/storetest"
	"baton/storetest/drill"
)

func TestMain(m *testing.M) { leak.Main(m) }

// endpoints are the addresses of members as clients reach them, which is where
// they can be cut off.
func endpoints(t testing.TB, members []*testserver.Server) []string {
	t.Helper()
	var hosts []string
	for _, m := range members {
		u, err := url.Parse(m.URL)
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, u.Host)
	}
	return hosts
}

// prefixes counts, so that each check has one of its own.
var prefixes = make(chan int, 1)

func init() { prefixes <- 0 }

func freshPrefix() string {
	n := <-prefixes
	prefixes <- n + 1
	return fmt.Sprintf("/test-%d", n)
}

// harness gives every check a prefix of its own in one cluster.
func harness(hosts []string, restart func()) storetest.Harness {
	return storetest.Harness{Start: func(t storetest.T) storetest.Backing {
		prefix := freshPrefix()
		return storetest.Backing{
			Open: func() baton.Store {
				s, err := etcdstore.New(etcdstore.Config{Endpoints: hosts, Prefix: prefix, Timeout: drill.Unhurried})
				if err != nil {
					t.Fatalf("open: %v", err)
				}
				return s
			},
			Restart: restart,
		}
	}}
}

func TestConformanceOneMember(t *testing.T) {
	t.Parallel()
	members := testserver.StartEtcd(t, 1)
	storetest.Run(t, harness(endpoints(t, members), func() {
		members[0].Kill(t)
		members[0].Restart(t)
	}))
}

func TestConformanceThreeMembers(t *testing.T) {
	t.Parallel()
	members := testserver.StartEtcd(t, 3)
	storetest.Run(t, steady(harness(endpoints(t, members), func() {
		for _, m := range members { // a rolling restart
			m.Restart(t)
		}
	})))
}

func TestConformanceBehindAFaultyNetwork(t *testing.T) {
	t.Parallel()
	members := testserver.StartEtcd(t, 1)
	storetest.RunFaulty(t, harness(endpoints(t, members), nil), 1, 2)
}
