package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"baton"
	"baton/internal/testserver"
	"baton/store/etcdstore"
	"baton/storetest/history"
)

// patience is far beyond what anything here takes.
const patience = time.Minute

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("still not after %v: %s", patience, what)
		}
	}
}

func open(t *testing.T, cfg etcdstore.Config) *etcdstore.Store {
	t.Helper()
	s, err := etcdstore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
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
	eventually(t, "a leader of etcd", func() bool {
		found = leader(t, members, skip...)
		return found >= 0
	})
	return found
}

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

const fleetTTL = 2 * time.Second

func startFleet(t *testing.T, hosts []string) *fleet {
	t.Helper()
	return startFleetOn(t, func() baton.Store { return open(t, etcdstore.Config{Endpoints: hosts}) })
}

func startFleetOn(t *testing.T, openStore func() baton.Store) *fleet {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &fleet{t: t, log: history.NewLog(nil), group: "faults", stop: cancel}
	for i := range 3 {
		f.stores = append(f.stores, f.log.Record(fmt.Sprintf("store-%d", i), openStore()))
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

// Each fault hits the member that leads etcd, while it is asked to grant, renew
// and release through all members.
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
			for range 2 {
				members[hit].Pause(t)
				findLeader(t, members, hit)
				f.more("grants without the member that is paused", 10)
				members[hit].Resume(t)
				hit = findLeader(t, members)
			}
		},
		"cut-off": func(t *testing.T, members []*testserver.Server, hit int, f *fleet) {
			for _, d := range []testserver.Direction{testserver.BothWays, testserver.ToClient} {
				members[hit].Cut(t, d)
				f.more("grants while a member cannot be reached", 10)
				members[hit].Heal(t)
			}
		},
		"refusing": func(t *testing.T, members []*testserver.Server, hit int, f *fleet) {
			members[hit].Refuse(t)
			f.more("grants while a member refuses connections", 10)
			members[hit].Heal(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			members := testserver.StartEtcd(t, 3)
			f := startFleet(t, endpoints(t, members))
			f.more("grants before the fault", 10)
			fault(t, members, findLeader(t, members), f)
			f.more("grants after the fault", 10)
			f.judge()
		})
	}
}

// With its only member gone nothing can be decided, and everything says so in
// bounded time; when it is back, the same stores go on.
func TestOnlyMemberDown(t *testing.T) {
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			member := testserver.StartEtcd(t, 1)[0]
			f := startFleet(t, endpoints(t, []*testserver.Server{member}))
			f.more("grants before the fault", 10)
			s := open(t, etcdstore.Config{Endpoints: endpoints(t, []*testserver.Server{member}), Timeout: 2 * time.Second})
			id := baton.LeaseID{Group: "down", NodeID: "n", InstanceID: "i", Term: 1}
			if _, err := s.Acquire(t.Context(), "down", baton.Candidate{NodeID: "n", InstanceID: "i"}, baton.MaxTTL); err != nil {
				t.Fatal(err)
			}
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

			fault.begin(t, member)
			for what, call := range map[string]func() error{
				"acquire": func() error {
					_, err := s.Acquire(t.Context(), "down", baton.Candidate{NodeID: "n", InstanceID: "j"}, fleetTTL)
					return err
				},
				"renew": func() error { _, err := s.Renew(t.Context(), id, fleetTTL); return err },
				"release": func() error {
					return s.Release(t.Context(), baton.LeaseID{Group: "x", NodeID: "n", InstanceID: "i", Term: 1})
				},
				"get":          func() error { _, err := s.Get(t.Context(), "down"); return err },
				"history":      func() error { _, err := s.History(t.Context(), "down"); return err },
				"groups":       func() error { _, err := s.Groups(t.Context()); return err },
				"put group":    func() error { _, err := s.PutGroup(t.Context(), baton.Group{ID: "down"}); return err },
				"the watch":    func() error { return <-watching },
				"the wait":     func() error { return <-waiting },
				"end":          func() error { return s.End(t.Context(), "x", 1, baton.Ending{Reason: baton.SteppedDown}) },
				"delete group": func() error { return s.DeleteGroup(t.Context(), "x") },
			} {
				answered := make(chan error, 1)
				go func() { answered <- call() }()
				select {
				case err := <-answered:
					if !errors.Is(err, baton.ErrUnavailable) {
						t.Errorf("%s: got %v, want ErrUnavailable", what, err)
					}
				case <-time.After(patience / 2):
					t.Fatalf("%s does not return", what)
				}
			}
			fault.end(t, member)
			eventually(t, "the same store to go on with the same lease", func() bool {
				l, err := s.Renew(t.Context(), id, fleetTTL)
				return err == nil && l.Remaining > 0
			})
			f.more("grants after the fault", 10)
			f.judge()
		})
	}
}
