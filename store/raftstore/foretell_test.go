package raftstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/internal/line"
)

// called waits in line, and tells when it is called.
func (n *simNode) called(node string) <-chan error {
	done := make(chan error, 1)
	go func() {
		done <- n.process().store.Await(context.Background(), "g", baton.Candidate{NodeID: node, InstanceID: node + "-1"})
	}()
	synctest.Wait()
	return done
}

// A leader resigns while the disk is slow. The next in line is called at once, and its
// Acquire follows the resignation into the log: granted when that is
// committed and not before. One out of turn is refused.
func TestTheNextIsCalledWhileTheEndIsBeingCommitted(t *testing.T) {
	const slow = 300 * time.Millisecond
	check := scheduled(t, trial{}, 3, func(c *simCluster) {
		n := c.awaitReign(nil)
		lease := n.acquire(c, "holder", time.Minute)
		first, second := n.called("first"), n.called("second")
		began := time.Now()
		n.process().DiskGate.Freeze(slow)
		released := make(chan error, 1)
		c.check.askedFor(lease.Group, lease.Term)
		go func() { released <- n.process().store.Release(context.Background(), lease.ID()) }()
		if err := <-first; err != nil || time.Since(began) >= slow {
			c.t.Errorf("called after %v: %v", time.Since(began), err)
		}
		refused := make(chan error, 1)
		go func() {
			_, err := n.process().store.Acquire(context.Background(), "g", baton.Candidate{NodeID: "second", InstanceID: "second-1"}, time.Minute)
			refused <- err
		}()
		next := n.acquire(c, "first", time.Minute)
		if next.Term != lease.Term+1 || time.Since(began) < slow {
			c.t.Errorf("granted term %d after %v", next.Term, time.Since(began))
		}
		if err := <-released; err != nil {
			c.t.Errorf("release: %v", err)
		}
		if err := <-refused; !errors.Is(err, baton.ErrHeld) {
			c.t.Errorf("out of turn: %v", err)
		}
		c.check.askedFor(next.Group, next.Term)
		if err := n.process().store.Release(context.Background(), next.ID()); err != nil {
			c.t.Errorf("release: %v", err)
		}
		if err := <-second; err != nil {
			c.t.Errorf("the second was called with %v", err)
		}
	})
	for _, p := range check.problems {
		t.Error(p)
	}
}

// The end that somebody was called for cannot be written. Nothing has changed: the lease
// is renewed, and whoever was called is still the first in line.
func TestAnEndThatDoesNotComeIsTakenBack(t *testing.T) {
	check := scheduled(t, trial{}, 3, func(c *simCluster) {
		n := c.awaitReign(nil)
		lease := n.acquire(c, "holder", time.Minute)
		s := n.process().store
		first, second := n.called("first"), n.called("second")
		s.mu.Lock()
		settle := s.reign.closed(lease.Group, lease.Term)
		s.reign.foretell(lease.Group)
		s.mu.Unlock()
		if err := <-first; err != nil {
			c.t.Fatalf("called: %v", err)
		}
		// Its Acquire is faster than the end: it is refused by the record, and waits for the fate.
		acquired := make(chan error, 1)
		go func() {
			_, err := s.Acquire(context.Background(), "g", baton.Candidate{NodeID: "first", InstanceID: "first-1"}, time.Minute)
			acquired <- err
		}()
		time.Sleep(2 * line.TurnKept)
		select {
		case err := <-acquired:
			c.t.Fatalf("answered before the fate of the end was known: %v", err)
		case err := <-second:
			c.t.Fatalf("the second was called while the first waits for the fate of the end: %v", err)
		default:
		}
		settle(unavailable("propose", errNotProposed))
		if err := <-acquired; !errors.Is(err, baton.ErrHeld) {
			c.t.Errorf("acquired: %v", err)
		}
		if _, err := s.Renew(context.Background(), lease.ID(), time.Minute); err != nil {
			c.t.Errorf("renewed: %v", err)
		}
		first = n.called("first")
		c.check.askedFor(lease.Group, lease.Term)
		if err := s.Release(context.Background(), lease.ID()); err != nil {
			c.t.Fatal(err)
		}
		if err := <-first; err != nil {
			c.t.Errorf("called again: %v", err)
		}
		next := n.acquire(c, "first", time.Minute)
		c.check.askedFor(next.Group, next.Term)
		if err := s.Release(context.Background(), next.ID()); err != nil {
			c.t.Fatal(err)
		}
		if err := <-second; err != nil {
			c.t.Errorf("the second was called with %v", err)
		}
	})
	for _, p := range check.problems {
		t.Error(p)
	}
}

// A leadership is being transferred, and its holder resigns before that is committed. Nobody is called
// before it is known who was named, because that one goes first.
func TestTheNamedSuccessorGoesFirstAlsoIfTheEndFollowsAtOnce(t *testing.T) {
	check := scheduled(t, trial{}, 3, func(c *simCluster) {
		n := c.awaitReign(nil)
		lease := n.acquire(c, "holder", time.Minute)
		s := n.process().store
		first, named := n.called("first"), n.called("named")
		n.process().DiskGate.Freeze(300 * time.Millisecond)
		c.check.askedFor(lease.Group, lease.Term)
		ended, released := make(chan error, 1), make(chan error, 1)
		go func() {
			ended <- s.End(context.Background(), lease.Group, lease.Term, baton.Ending{Reason: baton.Transferred, Successor: "named"})
		}()
		synctest.Wait()
		go func() { released <- s.Release(context.Background(), lease.ID()) }()
		if err := <-ended; err != nil {
			c.t.Errorf("transfer: %v", err)
		}
		if err := <-released; err != nil {
			c.t.Errorf("release: %v", err)
		}
		synctest.Wait()
		select {
		case err := <-first:
			c.t.Errorf("the first in line was called: %v", err)
		default:
		}
		select {
		case err := <-named:
			if err != nil {
				c.t.Errorf("the one that was named was called with %v", err)
			}
		default:
			c.t.Errorf("the one that was named was not called")
		}
		next := n.acquire(c, "named", time.Minute)
		c.check.askedFor(next.Group, next.Term)
		if err := s.Release(context.Background(), next.ID()); err != nil {
			c.t.Errorf("release: %v", err)
		}
		if err := <-first; err != nil {
			c.t.Errorf("the first was called with %v", err)
		}
	})
	for _, p := range check.problems {
		t.Error(p)
	}
}
