package consulstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"baton"
	"baton/internal/storecall"
	"baton/internal/testserver"
	"baton/store/consulstore"
	"baton/storetest"
	"baton/storetest/drill"
	"baton/storetest/history"
)

// lasting holds a fault for so long that a lease runs out meanwhile, by
// everybody's count.
func lasting(t *testing.T) {
	t.Helper()
	_ = storecall.Pause(t.Context(), 2*ttl+ttl/2)
}

// startFleet lets one node in twenty die: that costs the others twenty seconds.
func startFleet(t *testing.T, openStore func() baton.Store) *storetest.Fleet {
	t.Helper()
	return storetest.StartFleet(t, storetest.FleetConfig{
		Open: openStore, TTL: ttl, Rest: 200 * time.Millisecond, OneDiesIn: 20, Patience: drill.Patience,
	})
}

// startFleetOn has the stores of the fleet ask one of the servers each.
func startFleetOn(t *testing.T, servers ...*testserver.Server) *storetest.Fleet {
	t.Helper()
	opened := 0
	return startFleet(t, func() baton.Store {
		opened++
		return open(t, consulstore.Config{Address: host(t, servers[opened%len(servers)].URL)})
	})
}

// Each fault hits the only server, twice. When it is over, the same stores go on.
func TestHistoryWithTheServerDown(t *testing.T) {
	t.Parallel()
	for name, fault := range drill.Faults {
		short := name == "killed" // for as long as a restart takes
		if !short && !storetest.AllFaults() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Start(t, testserver.Consul)
			f := startFleetOn(t, server)
			f.More("grants before the fault", 5)
			for range 2 {
				fault.Begin(server, t)
				if !short {
					lasting(t)
				}
				fault.End(server, t)
				f.More("grants after the fault", 5)
			}
			f.Judge(history.Options{})
		})
	}
}

// leader is the server that leads Consul by the account of others than skip, -1
// if none does.
func leader(t *testing.T, servers []*testserver.Server, skip int) int {
	t.Helper()
	for i, s := range servers {
		if i == skip {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		var self struct{ Stats map[string]map[string]string }
		_, err := raw(t, s, "").Raw().Query("/v1/agent/self", &self, (&api.QueryOptions{}).WithContext(ctx))
		cancel()
		if err == nil && self.Stats["raft"]["state"] == "Leader" {
			return i
		}
	}
	return -1
}

func findLeader(t *testing.T, servers []*testserver.Server, skip int) (found int) {
	t.Helper()
	drill.Eventually(t, "a leader of Consul", func() bool {
		found = leader(t, servers, skip)
		return found >= 0
	})
	return found
}

// Each fault hits the server that leads Consul, while it and the others are
// asked to grant, renew and release.
func TestHistoryWithTheLeaderDown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		often bool // in every run
		fault func(t *testing.T, servers []*testserver.Server, f *storetest.Fleet)
	}{
		// It wakes up as a leader that does not know of its successor, with
		// requests that have waited for it.
		{"paused", true, func(t *testing.T, servers []*testserver.Server, f *storetest.Fleet) {
			for range 2 {
				hit := findLeader(t, servers, -1)
				servers[hit].Pause(t)
				findLeader(t, servers, hit)
				f.More("grants without the leader that is paused", 5)
				servers[hit].Resume(t)
			}
		}},
		{"paused for long", false, func(t *testing.T, servers []*testserver.Server, _ *storetest.Fleet) {
			hit := findLeader(t, servers, -1)
			servers[hit].Pause(t)
			lasting(t)
			servers[hit].Resume(t)
		}},
		{"killed", false, func(t *testing.T, servers []*testserver.Server, f *storetest.Fleet) {
			hit := findLeader(t, servers, -1)
			servers[hit].Kill(t)
			f.More("grants without the leader that was killed", 5)
			servers[hit].Restart(t)
		}},
		{"cut off", false, func(t *testing.T, servers []*testserver.Server, f *storetest.Fleet) {
			hit := findLeader(t, servers, -1)
			servers[hit].Cut(t, testserver.BothWays)
			f.More("grants while the leader cannot be reached", 5)
			servers[hit].Heal(t)
		}},
	} {
		if !c.often && !storetest.AllFaults() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			servers := testserver.StartConsul(t, 3)
			f := startFleetOn(t, servers...)
			f.More("grants before the fault", 5)
			c.fault(t, servers, f)
			f.More("grants after the fault", 5)
			f.Judge(history.Options{})
		})
	}
}

// A lease that was renewed under one leader of Consul is not ended by the next
// one before the holder's time is over.
func TestAFailoverDoesNotCutAPromiseShort(t *testing.T) {
	t.Parallel()
	servers := testserver.StartConsul(t, 3)
	hit := findLeader(t, servers, -1)
	other := servers[(hit+1)%3]
	holder := open(t, consulstore.Config{Address: host(t, servers[hit].URL)})
	rival := open(t, consulstore.Config{Address: host(t, other.URL)})
	l := drill.Lead(t, holder, "g", "i-1", ttl)
	sent := time.Now()
	r, err := holder.Renew(t.Context(), l.ID(), ttl)
	if err != nil {
		t.Fatal(err)
	}
	servers[hit].Kill(t)
	var next baton.Lease
	drill.Eventually(t, "the group open again", func() bool {
		next, err = rival.Acquire(t.Context(), "g", candidate("i-2"), ttl)
		if err != nil && !errors.Is(err, baton.ErrHeld) && !errors.Is(err, baton.ErrUnavailable) {
			t.Fatalf("acquire: %v", err)
		}
		return err == nil
	})
	if early := time.Until(sent.Add(r.Remaining)); early > 0 || next.Term <= l.Term {
		t.Errorf("granted term %d after %d, %v before the holder's promise ended", next.Term, l.Term, early)
	}
}

// With the only server gone nothing can be decided, and everything says so in
// bounded time; when it is back, the same store goes on.
func TestOnlyServerDown(t *testing.T) {
	t.Parallel()
	for name, fault := range drill.Faults {
		if !fault.Always && !storetest.AllFaults() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Start(t, testserver.Consul)
			outage := storetest.BeforeOutage(t, drill.Insist(t, func() (*consulstore.Store, error) {
				return consulstore.New(t.Context(), consulstore.Config{Address: host(t, server.URL), Timeout: 3 * time.Second})
			}))
			fault.Begin(server, t)
			outage.During()
			fault.End(server, t)
			outage.After()
		})
	}
}
