package etcdstore_test

import (
	"cmp"
	"context"
	"net/url"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"baton"
	"baton/internal/testserver"
	"baton/store/etcdstore"
	"baton/storetest"
	"baton/storetest/drill"
	"baton/storetest/history"
)

func open(t *testing.T, cfg etcdstore.Config) *etcdstore.Store {
	t.Helper()
	cfg.Timeout = cmp.Or(cfg.Timeout, drill.Unhurried)
	s, err := etcdstore.New(cfg)
	return drill.Opened(t, s, err)
}

// raw is a client past the proxies, to look and to meddle.
func raw(t *testing.T, members ...*testserver.Server) *clientv3.Client {
	t.Helper()
	var hosts []string
	for _, m := range members {
		u, err := url.Parse(m.Direct)
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, u.Host)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: hosts, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// leader is the member that leads by its own account, -1 if none does. Members
// in skip are not asked.
func leader(t *testing.T, members []*testserver.Server, skip ...int) int {
	t.Helper()
	for i, m := range members {
		if len(skip) > 0 && skip[0] == i {
			continue
		}
		c := raw(t, m)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		status, err := c.Status(ctx, c.Endpoints()[0])
		cancel()
		_ = c.Close()
		if err == nil && status.Leader == status.Header.MemberId {
			return i
		}
	}
	return -1
}

func findLeader(t *testing.T, members []*testserver.Server, skip ...int) (found int) {
	t.Helper()
	drill.Eventually(t, "a leader of etcd", func() bool {
		found = leader(t, members, skip...)
		return found >= 0
	})
	return found
}

const fleetTTL = 2 * time.Second

func startFleet(t *testing.T, hosts []string) *storetest.Fleet {
	t.Helper()
	return startFleetOn(t, func() baton.Store { return open(t, etcdstore.Config{Endpoints: hosts}) })
}

func startFleetOn(t *testing.T, openStore func() baton.Store) *storetest.Fleet {
	t.Helper()
	return storetest.StartFleet(t, storetest.FleetConfig{Open: openStore, TTL: fleetTTL, Patience: drill.Patience})
}

// Each fault hits the member that leads etcd, while it is asked to grant, renew
// and release through all members.
func TestHistoryWithAMemberDown(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(t *testing.T, members []*testserver.Server, hit int, f *storetest.Fleet){
		"killed": func(t *testing.T, members []*testserver.Server, hit int, f *storetest.Fleet) {
			members[hit].Kill(t)
			f.More("grants without the member that was killed", 10)
			members[hit].Restart(t)
		},
		// It wakes up as a leader that does not know of its successor.
		"paused": func(t *testing.T, members []*testserver.Server, hit int, f *storetest.Fleet) {
			for range 2 {
				members[hit].Pause(t)
				findLeader(t, members, hit)
				f.More("grants without the member that is paused", 10)
				members[hit].Resume(t)
				hit = findLeader(t, members)
			}
		},
		"cut-off": func(t *testing.T, members []*testserver.Server, hit int, f *storetest.Fleet) {
			for _, d := range []testserver.Direction{testserver.BothWays, testserver.ToClient} {
				members[hit].Cut(t, d)
				f.More("grants while a member cannot be reached", 10)
				members[hit].Heal(t)
			}
		},
		"refusing": func(t *testing.T, members []*testserver.Server, hit int, f *storetest.Fleet) {
			members[hit].Refuse(t)
			f.More("grants while a member refuses connections", 10)
			members[hit].Heal(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			members := testserver.StartEtcd(t, 3)
			f := startFleet(t, endpoints(t, members))
			f.More("grants before the fault", 10)
			fault(t, members, findLeader(t, members), f)
			f.More("grants after the fault", 10)
			f.Judge(history.Options{})
		})
	}
}

func TestOnlyMemberDown(t *testing.T) {
	t.Parallel()
	drill.Outages(t, storetest.FleetConfig{TTL: fleetTTL}, func(t *testing.T) drill.Site {
		members := testserver.StartEtcd(t, 1)
		return drill.Site{Server: members[0], Open: func(timeout time.Duration) baton.Store {
			return open(t, etcdstore.Config{Endpoints: endpoints(t, members), Timeout: timeout})
		}}
	})
}
