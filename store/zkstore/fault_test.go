package zkstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"baton"
	"baton/internal/testserver"
	"baton/store/zkstore"
	"baton/storetest/history"
)

// allFaults: the long form, with every fault there is.
var allFaults = os.Getenv("BATON_TEST_FAULTS") == "all"

// fleet is nodes that campaign for one group, renew, release, read and die,
// each through one of several stores.
type fleet struct {
	t      *testing.T
	log    *history.Log
	group  string
	stores []baton.Store
	grants atomic.Int64
	stop   context.CancelFunc
	done   sync.WaitGroup
}

const fleetTTL = time.Second

func startFleet(t *testing.T, servers ...*testserver.Server) *fleet {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &fleet{t: t, log: history.NewLog(nil), group: "faults", stop: cancel}
	for i := range 3 {
		s := open(t, zkstore.Config{Servers: hosts(servers...), Session: 3 * time.Second})
		f.stores = append(f.stores, f.log.Record(fmt.Sprintf("store-%d", i), s))
	}
	for i := range 6 {
		f.done.Go(func() {
			f.node(ctx, f.stores[i%3], fmt.Sprintf("node-%d", i), rand.New(rand.NewPCG(uint64(i), 1)))
		})
	}
	t.Cleanup(func() { cancel(); f.done.Wait() })
	return f
}

func (f *fleet) node(ctx context.Context, s baton.Store, id string, rng *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		c := baton.Candidate{NodeID: id, InstanceID: fmt.Sprintf("%s-%d", id, n)}
		l, err := s.Acquire(ctx, f.group, c, fleetTTL)
		for err != nil && !errors.Is(err, baton.ErrConflict) && ctx.Err() == nil {
			if rng.IntN(4) == 0 {
				_, _ = s.Get(ctx, f.group)
			}
			rest(ctx, rng, 50*time.Millisecond)
			l, err = s.Acquire(ctx, f.group, c, fleetTTL) // the same campaign: its answer may have been lost
		}
		if err != nil {
			continue
		}
		f.grants.Add(1)
		for range rng.IntN(6) {
			rest(ctx, rng, 50*time.Millisecond)
			if _, err := s.Renew(ctx, l.ID(), fleetTTL); errors.Is(err, baton.ErrNotLeader) {
				break
			}
		}
		switch rng.IntN(10) {
		case 0: // dies
		case 1:
			_ = s.(baton.Ender).End(ctx, f.group, l.Term, baton.Ending{Reason: baton.SteppedDown, Immediate: true})
		default:
			_ = s.Release(ctx, l.ID())
		}
		rest(ctx, rng, 50*time.Millisecond)
	}
}

func rest(ctx context.Context, rng *rand.Rand, most time.Duration) {
	timer := time.NewTimer(time.Duration(rng.Int64N(int64(most)) + 1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// more waits until there were n more grants: the group can be led.
func (f *fleet) more(what string, n int64) {
	f.t.Helper()
	want := f.grants.Load() + n
	eventually(f.t, what, func() bool { return f.grants.Load() >= want })
}

// judge stops the fleet and checks what it saw.
func (f *fleet) judge() {
	f.t.Helper()
	f.stop()
	f.done.Wait()
	ops := f.log.Ops()
	unavailable, longest := 0, time.Duration(0)
	for _, op := range ops {
		if errors.Is(op.Err, baton.ErrUnavailable) {
			unavailable++
		}
		longest = max(longest, op.Return-op.Call)
	}
	f.t.Logf("%d requests, %d of them unavailable, the longest took %v; %d grants", len(ops), unavailable, longest, f.grants.Load())
	if longest > patience/2 {
		f.t.Errorf("a request took %v, which is no bounded time", longest)
	}
	if r := history.Check(ops, history.Options{}); r.Verdict != history.OK {
		f.t.Errorf("the history is %s: %s", r.Verdict, r.Detail)
	}
}

// Each fault hits the member that leads ZooKeeper, while it is asked to grant,
// renew and release through all members.
func TestHistoryWithAMemberDown(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(t *testing.T, members []*testserver.Server, hit int, f *fleet){
		"killed": func(t *testing.T, members []*testserver.Server, hit int, f *fleet) {
			members[hit].Kill(t)
			f.more("grants without the member that was killed", 10)
			members[hit].Restart(t)
		},
		// It wakes up as a leader that does not know of its successor.
		"paused": func(t *testing.T, members []*testserver.Server, hit int, f *fleet) {
			members[hit].Pause(t)
			findLeader(t, members, hit)
			f.more("grants without the member that is paused", 10)
			members[hit].Resume(t)
		},
		"cut-off": func(t *testing.T, members []*testserver.Server, hit int, f *fleet) {
			for _, d := range []testserver.Direction{testserver.BothWays, testserver.ToClient} {
				members[hit].Cut(t, d)
				f.more("grants while a member cannot be reached", 10)
				members[hit].Heal(t)
			}
		},
	} {
		if !allFaults && name != "paused" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			members := testserver.StartZooKeeper(t, 3)
			f := startFleet(t, members...)
			f.more("grants before the fault", 10)
			fault(t, members, findLeader(t, members), f)
			f.more("grants after the fault", 10)
			f.judge()
		})
	}
}

// What happens to single requests, and what a server does that is not down.
func TestHistoryWithABadConnection(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(t *testing.T, server *testserver.Server, f *fleet){
		// Connections break again and again, and with each the answers that were under way.
		"answers-lost": func(t *testing.T, server *testserver.Server, f *fleet) {
			breaks := 5
			if allFaults {
				breaks = 40
			}
			for range breaks {
				f.more("grants between two breaks", 2)
				server.Refuse(t)
				server.Heal(t)
			}
		},
		// A server that stands still for most of the time answers late, and what it is asked comes late too.
		"slow": func(t *testing.T, server *testserver.Server, f *fleet) {
			rng := rand.New(rand.NewPCG(3, 4))
			for range 30 {
				server.Pause(t)
				rest(t.Context(), rng, 500*time.Millisecond)
				server.Resume(t)
				rest(t.Context(), rng, 100*time.Millisecond)
			}
		},
	} {
		if !allFaults && name != "answers-lost" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Start(t, testserver.ZooKeeper)
			f := startFleet(t, server)
			f.more("grants before the fault", 4)
			fault(t, server, f)
			f.more("grants after the fault", 4)
			f.judge()
		})
	}
}

// With its only server gone nothing can be decided, and everything says so in
// bounded time; when it is back, the same stores go on.
func TestOnlyServerDown(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		begin, end func(*testing.T, *testserver.Server)
	}{
		"killed": {
			func(t *testing.T, m *testserver.Server) { m.Kill(t) },
			func(t *testing.T, m *testserver.Server) { m.Restart(t) },
		},
		"paused": {
			func(t *testing.T, m *testserver.Server) { m.Pause(t) },
			func(t *testing.T, m *testserver.Server) { m.Resume(t) },
		},
		"cut-off": {
			func(t *testing.T, m *testserver.Server) { m.Cut(t, testserver.BothWays) },
			func(t *testing.T, m *testserver.Server) { m.Heal(t) },
		},
		"cut-off-one-way": {
			func(t *testing.T, m *testserver.Server) { m.Cut(t, testserver.ToClient) },
			func(t *testing.T, m *testserver.Server) { m.Heal(t) },
		},
	} {
		if !allFaults && name != "killed" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Start(t, testserver.ZooKeeper)
			f := startFleet(t, server)
			f.more("grants before the fault", 10)
			s := open(t, zkstore.Config{Servers: hosts(server), Timeout: 2 * time.Second, Session: 3 * time.Second})
			l := lead(t, s, "down", "holder", baton.MaxTTL)
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
			go func() { waiting <- s.Await(t.Context(), "down", baton.Candidate{NodeID: "w", InstanceID: "i"}) }()

			fault.begin(t, server)
			var calls sync.WaitGroup
			for what, call := range map[string]func() error{
				"acquire": func() error {
					_, err := s.Acquire(t.Context(), "down", baton.Candidate{NodeID: "n", InstanceID: "j"}, fleetTTL)
					return err
				},
				"renew":        func() error { _, err := s.Renew(t.Context(), l.ID(), fleetTTL); return err },
				"get":          func() error { _, err := s.Get(t.Context(), "down"); return err },
				"history":      func() error { _, err := s.History(t.Context(), "down"); return err },
				"groups":       func() error { _, err := s.Groups(t.Context()); return err },
				"put group":    func() error { _, err := s.PutGroup(t.Context(), baton.Group{ID: "down"}); return err },
				"end":          func() error { return s.End(t.Context(), "x", 1, baton.Ending{Reason: baton.SteppedDown}) },
				"delete group": func() error { return s.DeleteGroup(t.Context(), "x") },
				"release": func() error {
					return s.Release(t.Context(), baton.LeaseID{Group: "x", NodeID: "n", InstanceID: "i", Term: 1})
				},
				"the watch": func() error { return <-watching },
				"the wait":  func() error { return <-waiting },
				"another store": func() error {
					_, err := zkstore.New(t.Context(), zkstore.Config{Servers: hosts(server), Timeout: time.Second})
					return err
				},
			} {
				calls.Go(func() {
					answered := make(chan error, 1)
					go func() { answered <- call() }()
					select {
					case err := <-answered:
						if !errors.Is(err, baton.ErrUnavailable) {
							t.Errorf("%s: got %v, want ErrUnavailable", what, err)
						}
					case <-time.After(patience / 2):
						t.Errorf("%s does not return", what)
					}
				})
			}
			calls.Wait()
			if t.Failed() {
				return
			}
			fault.end(t, server)
			eventually(t, "the same store to go on with the same lease", func() bool {
				now, err := s.Renew(t.Context(), l.ID(), fleetTTL)
				return err == nil && now.Remaining > 0
			})
			go func() { waiting <- s.Await(t.Context(), "down", baton.Candidate{NodeID: "w", InstanceID: "i"}) }()
			if err := s.Release(t.Context(), l.ID()); err != nil {
				t.Errorf("release after the fault: %v", err)
			}
			if err := <-waiting; err != nil {
				t.Errorf("a wait after the fault: %v", err)
			}
			f.more("grants after the fault", 10)
			f.judge()
		})
	}
}

// What an ensemble does of which one or two members stand still.
func TestMembersThatHang(t *testing.T) {
	t.Parallel()
	members := testserver.StartZooKeeper(t, 3)
	leads := findLeader(t, members)
	followers := slices.Delete(slices.Clone(members), leads, leads+1)
	t.Run("OneIsLeft", func(t *testing.T) { hangingMemberIsLeft(t, followers) })
	t.Run("ReadsNeedAQuorum", func(t *testing.T) { readsNeedAQuorum(t, members[leads], followers) })
}

// A member that hangs costs one attempt: the session goes on at another long
// before ZooKeeper would have ended it.
func hangingMemberIsLeft(t *testing.T, followers []*testserver.Server) {
	s := open(t, zkstore.Config{Servers: hosts(followers...), Session: 10 * time.Second})
	l := lead(t, s, "left", "holder", time.Minute)
	for range 2 {
		used := slices.IndexFunc(followers, func(m *testserver.Server) bool { return hosts(m)[0] == s.Server() })
		if used < 0 {
			t.Fatalf("the store is connected to %s, which is none of %v", s.Server(), hosts(followers...))
		}
		followers[used].Pause(t)
		if _, err := s.Renew(t.Context(), l.ID(), time.Minute); err != nil {
			t.Errorf("renew while a member hangs: %v", err)
		}
		if now := s.Server(); now == hosts(followers[used])[0] {
			t.Errorf("the store stays with the member that hangs")
		}
		followers[used].Resume(t)
	}
}

// A member that leads and cannot reach the others does not answer, not even
// what it could read from its own memory: they may have another leader.
func readsNeedAQuorum(t *testing.T, leader *testserver.Server, followers []*testserver.Server) {
	s := open(t, zkstore.Config{Servers: hosts(leader), Timeout: 2 * time.Second})
	l := lead(t, s, "quorum", "holder", time.Minute)
	conn := raw(t, leader)
	if _, err := conn.Sync("/baton"); err != nil {
		t.Fatal(err)
	}
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
	eventually(t, "a read with a quorum", func() bool {
		now, err := s.Get(t.Context(), "quorum")
		return err == nil && now.ID() == l.ID()
	})
}
