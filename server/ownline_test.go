package server_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/server"
	"baton/store/memstore"
)

// endable is a store that has no line, but can end leaderships for others.
type endable struct {
	baton.Store
	baton.Ender
}

// inLine waits at svc until its turn comes, which it reports.
func inLine(t *testing.T, svc *server.Service, nodes ...string) (called <-chan string) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	turns := make(chan string, len(nodes))
	for _, node := range nodes {
		c := candidate(node, "i")
		c.Wait = time.Minute
		wg.Go(func() {
			if out, err := svc.Campaign(ctx, "g", c); err == nil && out.Turn {
				turns <- node
			}
		})
		synctest.Wait()
	}
	return turns
}

// Whoever holds the group, as after an answer that was lost, is called at once:
// its next campaign tells it so, while the lease lasts.
func TestOwnLineCallsTheHolderAtOnce(t *testing.T) {
	world(t, func(t *testing.T, store *memstore.Store, serve func(baton.Store, server.Config) *server.Service) {
		svc := serve(plain{store}, server.Config{})
		c := candidate("n", "i")
		first, err := svc.Campaign(t.Context(), "g", c)
		if err != nil {
			t.Fatal(err)
		}
		inLine(t, svc, "other") // so that the line knows that the group is held, before the holder asks
		c.Wait = time.Minute
		began := time.Now()
		out, err := svc.Campaign(t.Context(), "g", c)
		if err != nil || !out.Turn || time.Since(began) > time.Second {
			t.Fatalf("after %v: %+v, %v", time.Since(began), out, err)
		}
		if out, err = svc.Campaign(t.Context(), "g", c); err != nil || !out.Leads || out.Lease.Term != first.Lease.Term {
			t.Errorf("%+v, %v: want term %d", out, err, first.Lease.Term)
		}
	})
}

// A loser is told when to come back by the same rule, whether it lost to a lease or to a turn.
func TestOutOfTurnIsTheRulesRetry(t *testing.T) {
	world(t, func(t *testing.T, store *memstore.Store, serve func(baton.Store, server.Config) *server.Service) {
		svc := serve(plain{store}, server.Config{DefaultPolicy: baton.Policy{RetryAfter: 8 * time.Second}})
		c := candidate("first", "1")
		c.Wait = time.Minute
		if out, err := svc.Campaign(t.Context(), "g", c); err != nil || !out.Turn {
			t.Fatalf("%+v, %v", out, err)
		}
		out, err := svc.Campaign(t.Context(), "g", candidate("barger", "2"))
		if err != nil || out.Leads || out.RetryAfter < 8*time.Second {
			t.Errorf("%+v, %v", out, err)
		}
	})
}

// overtaken is an Ender that finds the leadership changed: the one that was named is over.
type overtaken struct{ *memstore.Store }

func (o overtaken) End(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	return o.Store.End(ctx, group, term-1, e)
}

// A transfer that was refused has named nobody: the next vacancy goes to the first in line.
func TestRefusedTransferLeavesTheLineAsItIs(t *testing.T) {
	world(t, func(t *testing.T, store *memstore.Store, serve func(baton.Store, server.Config) *server.Service) {
		svc := serve(endable{store, overtaken{store}}, server.Config{})
		out, err := svc.Campaign(t.Context(), "g", candidate("leader", "l"))
		if err != nil {
			t.Fatal(err)
		}
		called := inLine(t, svc, "first", "second")
		e := baton.Ending{Reason: baton.Transferred, Successor: "second", Note: "x"}
		if _, err := svc.StepDown(t.Context(), "g", out.Lease.Term, e); !errors.Is(err, baton.ErrNotLeader) {
			t.Fatalf("step down: %v", err)
		}
		if err := svc.Resign(t.Context(), out.Lease.ID(), ""); err != nil {
			t.Fatal(err)
		}
		if node := <-called; node != "first" {
			t.Errorf("%s was called", node)
		}
	})
}

// Whom the last ending named goes first; an ending without a successor names nobody.
func TestLaterEndingReplacesTheSuccessor(t *testing.T) {
	for want, successor := range map[string]string{"first": "", "second": "second"} {
		world(t, func(t *testing.T, store *memstore.Store, serve func(baton.Store, server.Config) *server.Service) {
			// At a store with a line of its own, a successor must stand in that one.
			svc := serve(endable{store, endsWithoutLine{store}}, server.Config{})
			out, err := svc.Campaign(t.Context(), "g", candidate("leader", "l"))
			if err != nil {
				t.Fatal(err)
			}
			called := inLine(t, svc, "first", "second", "third")
			for _, e := range []baton.Ending{
				{Reason: baton.Transferred, Successor: "third", Note: "x"},
				{Reason: baton.SteppedDown, Successor: successor, Note: "y"},
			} {
				if _, err := svc.StepDown(t.Context(), "g", 0, e); err != nil {
					t.Fatal(err)
				}
			}
			if err := svc.Resign(t.Context(), out.Lease.ID(), ""); err != nil {
				t.Fatal(err)
			}
			if node := <-called; node != want {
				t.Errorf("%s was called, want %s", node, want)
			}
		})
	}
}

// endsWithoutLine leaves the successor to the server's line.
type endsWithoutLine struct{ *memstore.Store }

func (s endsWithoutLine) End(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	e.Reason, e.Successor = baton.SteppedDown, ""
	return s.Store.End(ctx, group, term, e)
}
