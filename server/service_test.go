package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/internal/boottime"
	"baton/internal/leak"
	"baton/server"
	"baton/store/memstore"
)

func TestMain(m *testing.M) { leak.Main(m) }

// world is a memory store and services over it, all on the bubble's clock.
func world(t *testing.T, f func(t *testing.T, store *memstore.Store, serve func(baton.Store, server.Config) *server.Service)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, err := memstore.New(memstore.Config{Clock: boottime.Monotonic()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close() }()
		f(t, store, func(s baton.Store, cfg server.Config) *server.Service {
			cfg.Clock = boottime.Monotonic()
			if cfg.Logger == nil {
				cfg.Logger = slog.New(slog.DiscardHandler)
			}
			svc, err := server.New(s, cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(svc.Close)
			return svc
		})
	})
}

func candidate(node, instance string) server.Campaign {
	return server.Campaign{Candidate: baton.Candidate{NodeID: node, InstanceID: instance}, TTL: 10 * time.Second}
}

// plain hides all that a store can do besides being one.
type plain struct{ baton.Store }

// A change of policy made through one server is seen by another within PolicyAge.
func TestServersOnOneStoreAgree(t *testing.T) {
	world(t, func(t *testing.T, store *memstore.Store, serve func(baton.Store, server.Config) *server.Service) {
		a, b := serve(store, server.Config{}), serve(store, server.Config{})
		ctx := t.Context()
		if _, err := b.Campaign(ctx, "g", candidate("x", "1")); err != nil {
			t.Fatal(err)
		}
		if _, err := a.PutGroup(ctx, baton.Group{ID: "g", AllowedNodes: []string{"y"}}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Campaign(ctx, "g", candidate("x", "2")); !errors.Is(err, baton.ErrNotAllowed) {
			t.Errorf("the server that made the change: %v", err)
		}
		time.Sleep(time.Second)
		if _, err := b.Campaign(ctx, "g", candidate("x", "2")); !errors.Is(err, baton.ErrNotAllowed) {
			t.Errorf("the other server, a second later: %v", err)
		}
	})
}

// A grant that slipped past a change of policy is stepped down when it renews.
func TestBarredLeaderIsAskedAtItsRenewal(t *testing.T) {
	world(t, func(t *testing.T, store *memstore.Store, serve func(baton.Store, server.Config) *server.Service) {
		svc := serve(store, server.Config{})
		out, err := svc.Campaign(t.Context(), "g", candidate("x", "1"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.PutGroup(t.Context(), baton.Group{ID: "g", AllowedNodes: []string{"y"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		lease, err := svc.Renew(t.Context(), out.Lease.ID(), 10*time.Second)
		if err != nil || lease.Ending == nil || lease.Remaining > 9*time.Second {
			t.Errorf("renewal: %+v, %v", lease, err)
		}
	})
}

// silent is a registry that stops answering.
type silent struct {
	*memstore.Store
	off atomic.Bool
}

func (s *silent) Group(ctx context.Context, id string) (baton.Group, error) {
	if s.off.Load() {
		return baton.Group{}, errors.New("registry is gone")
	}
	return s.Store.Group(ctx, id)
}

// A renewal does not fail because the policy cannot be read again; a campaign waits until it can.
func TestRenewalOutlivesTheRegistry(t *testing.T) {
	world(t, func(t *testing.T, store *memstore.Store, serve func(baton.Store, server.Config) *server.Service) {
		registry := &silent{Store: store}
		svc := serve(registry, server.Config{})
		out, err := svc.Campaign(t.Context(), "g", candidate("x", "1"))
		if err != nil {
			t.Fatal(err)
		}
		registry.off.Store(true)
		time.Sleep(2 * time.Second)
		if _, err := svc.Renew(t.Context(), out.Lease.ID(), 10*time.Second); err != nil {
			t.Errorf("renewal: %v", err)
		}
		if _, err := svc.Campaign(t.Context(), "g", candidate("y", "1")); !errors.Is(err, baton.ErrUnavailable) {
			t.Errorf("campaign: %v", err)
		}
	})
}

// Processes that share a node id and name no instance never share a term.
func TestCandidatesWithoutInstanceNeverShareATerm(t *testing.T) {
	for name, wrap := range map[string]func(*memstore.Store) baton.Store{
		"the store's line":  func(s *memstore.Store) baton.Store { return s },
		"the server's line": func(s *memstore.Store) baton.Store { return plain{s} },
	} {
		t.Run(name, func(t *testing.T) {
			world(t, func(t *testing.T, store *memstore.Store, serve func(baton.Store, server.Config) *server.Service) {
				svc := serve(wrap(store), server.Config{})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var mu sync.Mutex
				terms := map[baton.Term]int{}
				var wg sync.WaitGroup
				for i := range 8 {
					wg.Go(func() {
						for ctx.Err() == nil {
							c := server.Campaign{Candidate: baton.Candidate{NodeID: "shared"}, TTL: 2 * time.Second}
							if i%2 == 0 {
								c.Wait = 3 * time.Second
							}
							out, err := svc.Campaign(ctx, "g", c)
							if err != nil {
								time.Sleep(10 * time.Millisecond)
								continue
							}
							if !out.Leads {
								time.Sleep(out.RetryAfter)
								continue
							}
							mu.Lock()
							terms[out.Lease.Term]++
							mu.Unlock()
							time.Sleep(time.Duration(i) * 100 * time.Millisecond)
							_ = svc.Resign(ctx, out.Lease.ID(), "") // may be over
						}
					})
				}
				wg.Wait()
				if len(terms) < 10 {
					t.Errorf("only %d terms were led", len(terms))
				}
				for term, n := range terms {
					if n > 1 {
						t.Errorf("term %d was given to %d campaigns", term, n)
					}
				}
			})
		})
	}
}

// The server's own line: in order, one at a time, and it hears of an expiry too.
func TestOwnLine(t *testing.T) {
	world(t, func(t *testing.T, store *memstore.Store, serve func(baton.Store, server.Config) *server.Service) {
		svc := serve(plain{store}, server.Config{})
		if _, err := svc.Campaign(t.Context(), "g", candidate("leader", "l")); err != nil {
			t.Fatal(err)
		}
		var order []string
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 5 {
			c := candidate(fmt.Sprint("n", i), "i")
			c.Wait = time.Minute
			wg.Go(func() {
				for {
					out, err := svc.Campaign(t.Context(), "g", c)
					if err != nil {
						t.Error(err)
						return
					}
					if out.Leads {
						mu.Lock()
						order = append(order, c.NodeID)
						mu.Unlock()
						if i != 2 { // that one dies with its lease
							if err := svc.Resign(t.Context(), out.Lease.ID(), ""); err != nil {
								t.Error(err)
							}
						}
						return
					}
				}
			})
			synctest.Wait()
		}
		began := time.Now()
		wg.Wait()
		if fmt.Sprint(order) != "[n0 n1 n2 n3 n4]" {
			t.Errorf("order %v", order)
		}
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("two leases of 10 s ran out in %v", took)
		}
		if _, err := svc.StepDown(t.Context(), "g", 0, baton.Ending{Reason: baton.SteppedDown, Note: "x"}); err == nil {
			t.Error("a plain store stepped a leader down")
		}
		// When nobody has waited for a while, nothing is watched any more.
		time.Sleep(time.Minute)
	})
}

func TestPlainStoreSaysWhatItCannotDo(t *testing.T) {
	world(t, func(t *testing.T, store *memstore.Store, serve func(baton.Store, server.Config) *server.Service) {
		svc := serve(plain{store}, server.Config{})
		out, err := svc.Campaign(t.Context(), "g", candidate("n", "i"))
		if err != nil {
			t.Fatal(err)
		}
		_, errGroups := svc.Groups(t.Context())
		_, errGroup := svc.Group(t.Context(), "g")
		_, errPut := svc.CreateGroup(t.Context(), baton.Group{ID: "g"})
		_, errHistory := svc.History(t.Context(), "g")
		_, errStep := svc.StepDown(t.Context(), "g", 0, baton.Ending{Reason: baton.SteppedDown, Note: "x"})
		for i, err := range []error{errGroups, errGroup, errPut, svc.DeleteGroup(t.Context(), "g"), errHistory, errStep, svc.Resign(t.Context(), out.Lease.ID(), "m")} {
			var conflict *baton.ConflictError
			if !errors.As(err, &conflict) || conflict.Reason != baton.ConflictUnsupported {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if _, err := server.New(plain{store}, server.Config{ExplicitGroups: true}); err == nil {
			t.Error("explicit groups without a registry")
		}
	})
}

// unsure is a registry that cannot decide, and says what it had found so far.
type unsure struct {
	*memstore.Store
	found error
}

func (u unsure) Group(context.Context, string) (baton.Group, error) {
	return baton.Group{}, &baton.UnavailableError{Op: "read", Err: u.found}
}

func (u unsure) Acquire(context.Context, string, baton.Candidate, time.Duration) (baton.Lease, error) {
	return baton.Lease{}, &baton.UnavailableError{Op: "acquire", Err: u.found}
}

// What kept a store from deciding is no answer, whatever it looks like: a
// policy that could not be read is not a group without one, and a lease that could not be asked for is not lost.
func TestWhatAnUnavailableStoreWrapsIsNoAnswer(t *testing.T) {
	world(t, func(t *testing.T, store *memstore.Store, serve func(baton.Store, server.Config) *server.Service) {
		svc := serve(unsure{store, baton.ErrNotFound}, server.Config{})
		if out, err := svc.Campaign(t.Context(), "g", candidate("n", "i")); !errors.Is(err, baton.ErrUnavailable) || errors.Is(err, baton.ErrNotFound) {
			t.Errorf("unknown policy: %+v, %v", out, err)
		}
		svc = serve(plain{unsure{store, &baton.HeldError{}}}, server.Config{})
		if out, err := svc.Campaign(t.Context(), "g", candidate("n", "i")); !errors.Is(err, baton.ErrUnavailable) {
			t.Errorf("unknown lease: %+v, %v", out, err)
		}
	})
}

// An instance that was drawn for one process and then named by it is not handed
// to another one that shares the node id and names none: they would lead in one term.
func TestDrawnInstanceThatWasNamedIsNotSharedOut(t *testing.T) {
	for name, servers := range map[string]int{"one server": 1, "two servers": 2} {
		t.Run(name, func(t *testing.T) {
			world(t, func(t *testing.T, store *memstore.Store, serve func(baton.Store, server.Config) *server.Service) {
				first := serve(store, server.Config{})
				second := first
				if servers == 2 {
					second = serve(store, server.Config{})
				}
				waits := server.Campaign{Candidate: baton.Candidate{NodeID: "shared"}, TTL: 10 * time.Second, Wait: time.Minute}
				told, err := first.Campaign(t.Context(), "g", waits)
				if err != nil || !told.Turn {
					t.Fatalf("%+v, %v", told, err)
				}
				leads, err := second.Campaign(t.Context(), "g", candidate("shared", told.InstanceID))
				if err != nil || !leads.Leads {
					t.Fatalf("%+v, %v", leads, err)
				}
				other, err := first.Campaign(t.Context(), "g", candidate("shared", ""))
				if err != nil || other.Leads {
					t.Errorf("another process was told that it leads in term %d too: %+v, %v", leads.Lease.Term, other, err)
				}
			})
		})
	}
}

// tardy is a store whose answer to a campaign is late on the way.
type tardy struct {
	*memstore.Store
	late time.Duration
}

func (s *tardy) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	lease, err := s.Store.Acquire(ctx, group, c, ttl)
	time.Sleep(s.late)
	return lease, err
}

// A lease runs out at the store before it does by the time its grant was heard of; it ran out all the same.
func TestLogSaysWhyTheLastOneEnded(t *testing.T) {
	world(t, func(t *testing.T, store *memstore.Store, serve func(baton.Store, server.Config) *server.Service) {
		slow := &tardy{Store: store, late: time.Second}
		var log bytes.Buffer
		svc := serve(slow, server.Config{Logger: slog.New(slog.NewJSONHandler(&log, nil))})
		if _, err := svc.Campaign(t.Context(), "g", candidate("x", "1")); err != nil {
			t.Fatal(err)
		}
		slow.late = 0
		time.Sleep(9*time.Second + 500*time.Millisecond)
		out, err := svc.Campaign(t.Context(), "g", candidate("y", "1"))
		if err != nil || !out.Leads {
			t.Fatalf("after the lease: %+v, %v", out, err)
		}
		if !strings.Contains(log.String(), `"previous_ended":"EXPIRED"`) {
			t.Errorf("log: %s", &log)
		}
	})
}
