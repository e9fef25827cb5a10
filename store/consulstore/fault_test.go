package consulstore_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"baton"
	"baton/internal/testserver"
	"baton/store/consulstore"
)

// allFaults reports whether the faults that every run leaves out are wanted too.
func allFaults() bool { return os.Getenv("BATON_TEST_FAULTS") == "all" }

// lasting holds a fault for so long that a lease runs out meanwhile, by
// everybody's count.
func lasting(t *testing.T) {
	t.Helper()
	timer := time.NewTimer(2*ttl + ttl/2)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

func storesOn(t *testing.T, servers ...*testserver.Server) (stores []baton.Store) {
	t.Helper()
	for i := range 3 {
		stores = append(stores, open(t, consulstore.Config{Address: host(t, servers[i%len(servers)].URL)}))
	}
	return stores
}

// Each fault hits the only server. When it is over, the same stores go on.
func TestHistoryWithTheServerDown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		often bool // in every run
		fault func(t *testing.T, server *testserver.Server, f *fleet)
	}{
		{"killed", true, func(t *testing.T, server *testserver.Server, f *fleet) {
			for range 2 {
				server.Kill(t)
				server.Restart(t)
				f.more("grants after the restart", 5)
			}
		}},
		{"paused", false, func(t *testing.T, server *testserver.Server, _ *fleet) {
			server.Pause(t)
			lasting(t)
			server.Resume(t)
		}},
		{"cut off both ways", false, func(t *testing.T, server *testserver.Server, _ *fleet) {
			server.Cut(t, testserver.BothWays)
			lasting(t)
			server.Heal(t)
		}},
		// Requests are carried out, and nobody hears of it.
		{"cut off on the way back", false, func(t *testing.T, server *testserver.Server, _ *fleet) {
			server.Cut(t, testserver.ToClient)
			lasting(t)
			server.Heal(t)
		}},
		{"cut off on the way there", false, func(t *testing.T, server *testserver.Server, _ *fleet) {
			server.Cut(t, testserver.ToServer)
			lasting(t)
			server.Heal(t)
		}},
		{"refusing", false, func(t *testing.T, server *testserver.Server, _ *fleet) {
			server.Refuse(t)
			lasting(t)
			server.Heal(t)
		}},
	} {
		if !c.often && !allFaults() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Start(t, testserver.Consul)
			f := startFleet(t, storesOn(t, server)...)
			f.more("grants before the fault", 5)
			c.fault(t, server, f)
			f.more("grants after the fault", 5)
			f.judge()
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
	eventually(t, "a leader of Consul", func() bool {
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
		fault func(t *testing.T, servers []*testserver.Server, f *fleet)
	}{
		// It wakes up as a leader that does not know of its successor, with
		// requests that have waited for it.
		{"paused", true, func(t *testing.T, servers []*testserver.Server, f *fleet) {
			for range 2 {
				hit := findLeader(t, servers, -1)
				servers[hit].Pause(t)
				findLeader(t, servers, hit)
				f.more("grants without the leader that is paused", 5)
				servers[hit].Resume(t)
			}
		}},
		{"paused for long", false, func(t *testing.T, servers []*testserver.Server, _ *fleet) {
			hit := findLeader(t, servers, -1)
			servers[hit].Pause(t)
			lasting(t)
			servers[hit].Resume(t)
		}},
		{"killed", false, func(t *testing.T, servers []*testserver.Server, f *fleet) {
			hit := findLeader(t, servers, -1)
			servers[hit].Kill(t)
			f.more("grants without the leader that was killed", 5)
			servers[hit].Restart(t)
		}},
		{"cut off", false, func(t *testing.T, servers []*testserver.Server, f *fleet) {
			hit := findLeader(t, servers, -1)
			servers[hit].Cut(t, testserver.BothWays)
			f.more("grants while the leader cannot be reached", 5)
			servers[hit].Heal(t)
		}},
	} {
		if !c.often && !allFaults() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			servers := testserver.StartConsul(t, 3)
			f := startFleet(t, storesOn(t, servers...)...)
			f.more("grants before the fault", 5)
			c.fault(t, servers, f)
			f.more("grants after the fault", 5)
			f.judge()
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
	l := lead(t, holder, "g", "i-1", ttl)
	sent := time.Now()
	r, err := holder.Renew(t.Context(), l.ID(), ttl)
	if err != nil {
		t.Fatal(err)
	}
	servers[hit].Kill(t)
	var next baton.Lease
	eventually(t, "the group open again", func() bool {
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
	for name, fault := range map[string]struct {
		begin, end func(*testing.T, *testserver.Server)
	}{
		"killed": {
			func(t *testing.T, s *testserver.Server) { s.Kill(t) },
			func(t *testing.T, s *testserver.Server) { s.Restart(t) },
		},
		"paused": {
			func(t *testing.T, s *testserver.Server) { s.Pause(t) },
			func(t *testing.T, s *testserver.Server) { s.Resume(t) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Start(t, testserver.Consul)
			s := open(t, consulstore.Config{Address: host(t, server.URL), Timeout: 3 * time.Second})
			l := lead(t, s, "down", "i", baton.MaxTTL)
			watching, waiting := make(chan error, 1), make(chan error, 1)
			watched := make(chan struct{}, 100)
			go func() {
				var last error
				for _, err := range s.Watch(t.Context(), "down", "") {
					last = err
					watched <- struct{}{}
				}
				watching <- last
			}()
			<-watched
			go func() { waiting <- s.Await(t.Context(), "down", candidate("w")) }()

			fault.begin(t, server)
			for what, call := range map[string]func() error{
				"acquire":      func() error { _, err := s.Acquire(t.Context(), "down", candidate("j"), ttl); return err },
				"renew":        func() error { _, err := s.Renew(t.Context(), l.ID(), ttl); return err },
				"release":      func() error { return s.Release(t.Context(), l.ID()) },
				"get":          func() error { _, err := s.Get(t.Context(), "down"); return err },
				"history":      func() error { _, err := s.History(t.Context(), "down"); return err },
				"group":        func() error { _, err := s.Group(t.Context(), "down"); return err },
				"groups":       func() error { _, err := s.Groups(t.Context()); return err },
				"put group":    func() error { _, err := s.PutGroup(t.Context(), baton.Group{ID: "x"}); return err },
				"delete group": func() error { return s.DeleteGroup(t.Context(), "x") },
				"end":          func() error { return s.End(t.Context(), "x", 1, baton.Ending{Reason: baton.SteppedDown}) },
				"the watch":    func() error { return <-watching },
				"the wait":     func() error { return <-waiting },
			} {
				answered := make(chan error, 1)
				go func() { answered <- call() }()
				select {
				case err := <-answered:
					if !errors.Is(err, baton.ErrUnavailable) {
						t.Errorf("%s: got %v, want ErrUnavailable", what, err)
					}
				case <-time.After(time.Minute):
					t.Fatalf("%s does not return", what)
				}
			}
			fault.end(t, server)
			eventually(t, "the same store to go on with the same lease", func() bool {
				r, err := s.Renew(t.Context(), l.ID(), ttl)
				return err == nil && r.Remaining > 0
			})
		})
	}
}
