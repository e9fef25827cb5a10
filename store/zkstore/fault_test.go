package zkstore_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"baton"
	"baton/internal/storecall"
	"baton/internal/testserver"
	"baton/store/zkstore"
	"baton/storetest"
	"baton/storetest/drill"
	"baton/storetest/history"
)

const fleetTTL = time.Second

func startFleet(t *testing.T, servers ...*testserver.Server) *storetest.Fleet {
	t.Helper()
	return storetest.StartFleet(t, storetest.FleetConfig{TTL: fleetTTL, Patience: drill.Patience, Open: func() baton.Store {
		return open(t, zkstore.Config{Servers: hosts(servers...), Session: 3 * time.Second})
	}})
}

// Each fault hits the member that leads ZooKeeper, while it is asked to grant,
// renew and release through all members.
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
			members[hit].Pause(t)
			findLeader(t, members, hit)
			f.More("grants without the member that is paused", 10)
			members[hit].Resume(t)
		},
		"cut-off": func(t *testing.T, members []*testserver.Server, hit int, f *storetest.Fleet) {
			for _, d := range []testserver.Direction{testserver.BothWays, testserver.ToClient} {
				members[hit].Cut(t, d)
				f.More("grants while a member cannot be reached", 10)
				members[hit].Heal(t)
			}
		},
	} {
		if !storetest.AllFaults() && name != "paused" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			members := testserver.StartZooKeeper(t, 3)
			f := startFleet(t, members...)
			f.More("grants before the fault", 10)
			fault(t, members, findLeader(t, members), f)
			f.More("grants after the fault", 10)
			f.Judge(history.Options{})
		})
	}
}

// What happens to single requests, and what a server does that is not down.
func TestHistoryWithABadConnection(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(t *testing.T, server *testserver.Server, f *storetest.Fleet){
		// Connections break again and again, and with each the answers that were under way.
		"answers-lost": func(t *testing.T, server *testserver.Server, f *storetest.Fleet) {
			breaks := 5
			if storetest.AllFaults() {
				breaks = 40
			}
			for range breaks {
				f.More("grants between two breaks", 2)
				server.Refuse(t)
				server.Heal(t)
			}
		},
		// A server that stands still for most of the time answers late, and what it is asked comes late too.
		"slow": func(t *testing.T, server *testserver.Server, f *storetest.Fleet) {
			for range 30 {
				server.Pause(t)
				_ = storecall.Pause(t.Context(), rand.N(500*time.Millisecond))
				server.Resume(t)
				_ = storecall.Pause(t.Context(), rand.N(100*time.Millisecond))
			}
		},
	} {
		if !storetest.AllFaults() && name != "answers-lost" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Start(t, testserver.ZooKeeper)
			f := startFleet(t, server)
			f.More("grants before the fault", 4)
			fault(t, server, f)
			f.More("grants after the fault", 4)
			f.Judge(history.Options{})
		})
	}
}

// With its only server gone nothing can be decided, and everything says so in
// bounded time; when it is back, the same stores go on.
func TestOnlyServerDown(t *testing.T) {
	t.Parallel()
	for name, fault := range drill.Faults {
		if name != "killed" && !storetest.AllFaults() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Start(t, testserver.ZooKeeper)
			f := startFleet(t, server)
			f.More("grants before the fault", 10)
			s := insist(t, zkstore.Config{Servers: hosts(server), Timeout: 2 * time.Second, Session: 3 * time.Second})
			outage := storetest.BeforeOutage(t, s)
			fault.Begin(server, t)
			outage.During()
			if _, err := zkstore.New(t.Context(), zkstore.Config{Servers: hosts(server), Timeout: time.Second}); !errors.Is(err, baton.ErrUnavailable) {
				t.Errorf("another store: got %v, want ErrUnavailable", err)
			}
			fault.End(server, t)
			outage.After()
			waitGoesOn(t, s)
			f.More("grants after the fault", 10)
			f.Judge(history.Options{})
		})
	}
}

// waitGoesOn wants the session that places in line are bound to to be there again.
func waitGoesOn(t *testing.T, s *zkstore.Store) {
	t.Helper()
	var l baton.Lease
	if err := drill.Answer(func() (err error) {
		l, err = s.Acquire(t.Context(), "after", baton.Candidate{NodeID: "node-holder", InstanceID: "holder"}, time.Minute)
		return err
	}); err != nil {
		t.Fatalf("acquire after the fault: %v", err)
	}
	waiting := make(chan error, 1)
	go func() {
		waiting <- drill.Answer(func() error {
			return s.Await(t.Context(), "after", baton.Candidate{NodeID: "w", InstanceID: "i"})
		})
	}()
	tries := 0
	err := drill.Answer(func() error { tries++; return s.Release(t.Context(), l.ID()) })
	if err != nil && (tries == 1 || !errors.Is(err, baton.ErrNotLeader)) { // which one before may have done
		t.Errorf("release after the fault: %v", err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("a wait after the fault: %v", err)
	}
}

// What an ensemble does of which one or two members stand still.
func TestMembersThatHang(t *testing.T) {
	t.Parallel()
	members := testserver.StartZooKeeper(t, 3)
	// Which one leads may change while they hang.
	followers := func(leads int) []*testserver.Server { return slices.Delete(slices.Clone(members), leads, leads+1) }
	t.Run("OneIsLeft", func(t *testing.T) { hangingMemberIsLeft(t, followers(findLeader(t, members))) })
	t.Run("ReadsNeedAQuorum", func(t *testing.T) {
		leads := findLeader(t, members)
		readsNeedAQuorum(t, members[leads], followers(leads))
	})
}

// A member that hangs costs one attempt: the session goes on at another long
// before ZooKeeper would have ended it, and before the library would have left.
func hangingMemberIsLeft(t *testing.T, followers []*testserver.Server) {
	patient := open(t, zkstore.Config{Servers: hosts(followers...), Timeout: drill.Patience})
	l := lead(t, patient, "left", "holder", baton.MaxTTL)
	s := insist(t, zkstore.Config{Servers: hosts(followers...), Session: 10 * time.Second})
	// The member that is left may be held up, too, by the machine, and then the time of one call is too short.
	const times, tries = 2, 8
	left := 0
	for range tries {
		if left == times {
			return
		}
		for _, m := range followers { // one that has just been woken has lost its leader
			drill.Eventually(t, "a member that takes part", func() bool { return strings.Contains(says(direct(m), "srvr"), "Mode:") })
		}
		used := -1
		drill.Eventually(t, "a connection to one of them", func() bool {
			used = slices.IndexFunc(followers, func(m *testserver.Server) bool { return hosts(m)[0] == s.Server() })
			return used >= 0
		})
		followers[used].Pause(t)
		_, err := s.Renew(t.Context(), l.ID(), baton.MaxTTL)
		now := s.Server()
		followers[used].Resume(t)
		switch {
		case errors.Is(err, baton.ErrUnavailable):
			t.Logf("renew while a member hangs: %v", err)
			continue
		case err != nil:
			t.Fatalf("renew while a member hangs: %v", err)
		case now == hosts(followers[used])[0]:
			t.Errorf("the store stays with the member that hangs")
		}
		left++
	}
	if left < times {
		t.Errorf("of %d members that hung, the store left %d in time", tries, left)
	}
}

// A member that leads and cannot reach the others does not answer, not even
// what it could read from its own memory: they may have another leader.
func readsNeedAQuorum(t *testing.T, leader *testserver.Server, followers []*testserver.Server) {
	l := lead(t, open(t, zkstore.Config{Servers: hosts(leader), Timeout: drill.Patience}), "quorum", "holder", baton.MaxTTL)
	s := insist(t, zkstore.Config{Servers: hosts(leader), Timeout: 2 * time.Second})
	conn := raw(t, leader)
	drill.Eventually(t, "a sync with a quorum", func() bool { _, err := conn.Sync("/baton"); return err == nil })
	for _, m := range followers {
		m.Pause(t)
	}
	_, failed := conn.Sync("/baton")
	text, _, err := conn.Get("/baton/leases/quorum")
	t.Logf("sync and read, without a quorum: %v, %v; %s", failed, err, text)
	if now, err := s.Get(t.Context(), "quorum"); !errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("get without a quorum: %+v, %v", now, err)
	}
	for _, m := range followers {
		m.Resume(t)
	}
	drill.Eventually(t, "a read with a quorum", func() bool {
		now, err := s.Get(t.Context(), "quorum")
		return err == nil && now.ID() == l.ID()
	})
}
