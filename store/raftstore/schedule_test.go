package raftstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"baton"
	"baton/internal/leasefsm"
	"baton/internal/raftnode/raftsim"
)

// Schedules that chance would take long to find, each run with the store as it
// is and with the rule broken that forbids it.

// scheduled runs one in simulated time, on a calm network.
func scheduled(t *testing.T, broken trial, size int, f func(c *simCluster)) *checker {
	t.Helper()
	onOneProcessor(t)
	c := &simCluster{t: t, rng: rand.New(rand.NewPCG(1, 0)), trial: broken, trust: fromSend, reigns: map[uint64]bool{}}
	synctest.Test(t, func(*testing.T) {
		c.begin(size, 1)
		c.net.RPCTimeout = 5 * time.Second
		c.net.Calm()
		f(c)
		c.net.Heal()
		c.stop()
	})
	return c.check
}

// awaitReign waits for a server that leads and serves, other than this one.
func (c *simCluster) awaitReign(except *simNode) *simNode {
	for range 10_000 {
		for _, n := range c.nodes {
			p := n.process()
			if n == except || p == nil {
				continue
			}
			p.store.mu.Lock()
			serves := p.store.reign != nil && p.store.leads(p.store.reign.term)
			p.store.mu.Unlock()
			if serves {
				return n
			}
		}
		time.Sleep(time.Millisecond)
	}
	c.t.Fatalf("nobody leads the cluster")
	return nil
}

func (n *simNode) acquire(c *simCluster, node string, ttl time.Duration) baton.Lease {
	c.t.Helper()
	lease, err := n.process().store.Acquire(context.Background(), "g", baton.Candidate{NodeID: node, InstanceID: node + "-1"}, ttl)
	if err != nil {
		c.t.Fatalf("acquire: %v", err)
	}
	return lease
}

// stall stops raft's main loop in the middle of a write, so that the server
// takes itself for the leader until it wakes, and cuts it off.
func (n *simNode) stall() {
	p := n.process()
	p.DiskGate.Freeze(time.Hour)
	p.store.raft.Apply(entry{term: p.store.raft.CurrentTerm()}.encode(), 0)
	n.cutOff()
}

func (n *simNode) cutOff() {
	for _, other := range n.c.nodes {
		n.c.net.SetCut(n.name, other.name, true)
		n.c.net.SetCut(other.name, n.name, true)
	}
}

// takeOver lets the others elect a leader while old is stalled, and ends the
// lease there.
func (c *simCluster) takeOver(old *simNode, lease baton.Lease) *simNode {
	c.t.Helper()
	successor := c.awaitReign(old)
	c.check.askedFor(lease.Group, lease.Term)
	if err := successor.process().store.Release(context.Background(), lease.ID()); err != nil {
		c.t.Fatalf("release through the successor: %v", err)
	}
	successor.acquire(c, "other", time.Minute)
	return successor
}

// A leader is frozen with replies on their way to it. A successor is elected and
// gives the group away. The old leader wakes with a renewal waiting, and then
// the replies arrive. They say that it leads; they were true when they were sent.
func TestRepliesInFlightConfirmNothing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		broken trial
		acked  bool
	}{
		{"round", trial{}, false},
		{"raft.VerifyLeader", trial{verifiesLeader: true}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			scheduled(t, tc.broken, 3, func(c *simCluster) {
				old := c.awaitReign(nil)
				lease := old.acquire(c, "holder", time.Minute)
				var contact, votes []func()
				for _, n := range c.nodes {
					if n != old {
						contact = append(contact, c.net.Hold(n.name, old.name, raftsim.Heartbeat))
						votes = append(votes, c.net.Hold(n.name, old.name, raftsim.Entries))
					}
				}
				time.Sleep(200 * time.Millisecond) // requests leave, and their answers stay on the way
				old.stall()
				c.takeOver(old, lease)
				p := old.process()
				renewed := make(chan error, 1)
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
					defer cancel()
					_, err := p.store.Renew(ctx, lease.ID(), time.Minute)
					renewed <- err
				}()
				// The first of them tell it that its followers are there, the others that they follow it.
				for _, release := range contact {
					release()
				}
				synctest.Wait()
				p.Thaw()
				synctest.Wait()
				for _, release := range votes {
					release()
				}
				err := <-renewed
				if acked := err == nil; acked != tc.acked {
					c.t.Errorf("the deposed leader answered %v", err)
				}
				if err != nil && !errors.Is(err, baton.ErrUnavailable) {
					c.t.Errorf("the deposed leader answered %v: want ErrUnavailable", err)
				}
			})
		})
	}
}

// Two renewals: the first has been confirmed and its leader freezes before it
// answers; a successor takes over and arms the lease. The leader wakes, takes the second
// renewal, and answers the first. It must not acknowledge what only the second one asked for.
func TestAcknowledgesWhatWasConfirmed(t *testing.T) {
	for _, tc := range []struct {
		name   string
		broken bool
	}{{"what stood when it came", false}, {"what stands when it answers", true}} {
		t.Run(tc.name, func(t *testing.T) {
			var armed atomic.Bool
			held, proceed := make(chan struct{}), make(chan struct{})
			check := scheduled(t, trial{promisesLatest: tc.broken, hold: func() {
				if armed.CompareAndSwap(true, false) {
					close(held)
					<-proceed
				}
			}}, 3, func(c *simCluster) {
				held, proceed = make(chan struct{}), make(chan struct{})
				old := c.awaitReign(nil)
				const ttl = 5 * time.Second
				lease := old.acquire(c, "holder", ttl)
				p := old.process()
				time.Sleep(time.Second) // the others have applied it too
				armed.Store(true)
				first := make(chan baton.Lease, 1)
				go func() {
					l, _ := p.store.Renew(context.Background(), lease.ID(), ttl)
					first <- l
				}()
				<-held
				old.stall()
				successor := c.awaitReign(old)
				time.Sleep(time.Second)
				second := make(chan struct{})
				go func() {
					defer close(second)
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					_, _ = p.store.Renew(ctx, lease.ID(), ttl)
				}()
				synctest.Wait()
				close(proceed)
				<-first
				<-second
				time.Sleep(2 * ttl) // the successor lets it expire
				if l, err := successor.process().store.Get(context.Background(), "g"); err != nil || l.Held() {
					c.t.Errorf("the lease has not run out: %+v, %v", l, err)
				}
			})
			if caught := len(check.problems) > 0; caught != tc.broken {
				t.Errorf("problems: %q", check.problems)
			}
		})
	}
}

// A disk is slow, so that a lease runs out while its extension waits to be
// written. The extension is committed, and right behind it the expiry.
func TestExtensionOfWhatHasLapsedMeanwhile(t *testing.T) {
	for _, tc := range []struct {
		name   string
		broken bool
	}{{"looks again", false}, {"acknowledges", true}} {
		t.Run(tc.name, func(t *testing.T) {
			check := scheduled(t, trial{acknowledgesClosed: tc.broken}, 3, func(c *simCluster) {
				n := c.awaitReign(nil)
				lease := n.acquire(c, "holder", 200*time.Millisecond)
				p := n.process()
				p.whenStored(func(c leasefsm.Command) {
					if _, ok := c.(leasefsm.Extend); ok {
						p.DiskGate.Freeze(50 * time.Millisecond) // the expiry is written, and sent, later
					}
				})
				p.DiskGate.Freeze(300 * time.Millisecond)
				_, err := n.process().store.Renew(context.Background(), lease.ID(), 2*time.Second)
				if !tc.broken && !errors.Is(err, baton.ErrNotLeader) {
					c.t.Errorf("extended: %v", err)
				}
				time.Sleep(time.Second)
			})
			if caught := len(check.problems) > 0; caught != tc.broken {
				t.Errorf("problems: %q", check.problems)
			}
		})
	}
}

// An expiry is in the log of a follower and of nobody else who lives, and the leader that
// proposed it is gone. Whoever inherits it lets nobody renew before its fate is
// known.
func TestInheritedExpiry(t *testing.T) {
	check := scheduled(t, trial{}, 3, func(c *simCluster) {
		old := c.awaitReign(nil)
		lease := old.acquire(c, "holder", time.Second)
		for _, n := range c.nodes {
			n.process().whenStored(func(c leasefsm.Command) {
				if _, ok := c.(leasefsm.Expire); ok && n != old {
					go old.crash()
				}
			})
		}
		for old.process() != nil {
			time.Sleep(time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		for {
			for _, n := range c.nodes {
				if p := n.process(); p != nil {
					_, err := p.store.Renew(ctx, lease.ID(), time.Second)
					if errors.Is(err, baton.ErrNotLeader) {
						return
					}
					if !errors.Is(err, baton.ErrUnavailable) {
						c.t.Errorf("renewal of a lease whose expiry was inherited: %v", err)
						return
					}
				}
			}
		}
	})
	for _, p := range check.problems {
		t.Error(p)
	}
}

// A grant is committed and its leader dies before it answers. The same
// instance asks again, elsewhere, and gets what it was granted.
func TestRepeatedAcquireFindsItsGrant(t *testing.T) {
	scheduled(t, trial{}, 3, func(c *simCluster) {
		old := c.awaitReign(nil)
		me := baton.Candidate{NodeID: "holder", InstanceID: "i1"}
		p := old.process()
		go func() { _, _ = p.store.Acquire(context.Background(), "g", me, time.Minute) }()
		for !c.check.granted("g", 1) {
			time.Sleep(100 * time.Microsecond)
		}
		old.crash()
		lease, err := c.awaitReign(old).process().store.Acquire(context.Background(), "g", me, time.Minute)
		if err != nil || lease.Term != 1 {
			c.t.Errorf("asked again: %+v, %v", lease, err)
		}
	})
}

// A follower that was away so long that it is sent a snapshot, and is then
// elected, goes on with the terms where they were.
func TestTermsSurviveASnapshot(t *testing.T) {
	check := scheduled(t, trial{}, 3, func(c *simCluster) {
		old := c.awaitReign(nil)
		var away *simNode
		for _, n := range c.nodes {
			if n != old {
				away = n
			}
		}
		away.crash()
		last := baton.Term(0)
		for i := range 40 {
			lease := old.acquire(c, fmt.Sprintf("n%d", i), time.Minute)
			c.check.askedFor("g", lease.Term)
			if err := old.process().store.Release(context.Background(), lease.ID()); err != nil {
				c.t.Fatal(err)
			}
			last = lease.Term
		}
		if err := old.process().store.raft.Snapshot().Error(); err != nil {
			c.t.Fatal(err)
		}
		away.start(nil)
		for away.process().store.progressNow(false).Applied < old.process().store.progressNow(false).Applied {
			time.Sleep(10 * time.Millisecond)
		}
		if away.process().Disk.Snapshots() == 0 {
			c.t.Error("it was not sent a snapshot")
		}
		if err := old.process().store.raft.LeadershipTransferToServer(raft.ServerID(away.name), raft.ServerAddress(away.name)).Error(); err != nil {
			c.t.Fatal(err)
		}
		if c.awaitReign(old) != away {
			c.t.Fatal("it was not elected")
		}
		if lease := away.acquire(c, "next", time.Minute); lease.Term != last+1 {
			c.t.Errorf("term %d after %d", lease.Term, last)
		}
	})
	for _, p := range check.problems {
		t.Error(p)
	}
}

// A renewal that came in time counts, however long its round takes.
func TestRenewalRoundAcrossTheDeadline(t *testing.T) {
	check := scheduled(t, trial{}, 3, func(c *simCluster) {
		n := c.awaitReign(nil)
		lease := n.acquire(c, "holder", 200*time.Millisecond)
		time.Sleep(150 * time.Millisecond)
		for _, other := range c.nodes {
			if other != n {
				release := c.net.Hold(other.name, n.name, raftsim.Others)
				time.AfterFunc(100*time.Millisecond, release)
			}
		}
		renewed, err := n.process().store.Renew(context.Background(), lease.ID(), 200*time.Millisecond)
		if err != nil || renewed.Remaining <= 0 || renewed.Remaining > 100*time.Millisecond {
			c.t.Errorf("%v left, %v: want what is left of 200ms from when it came", renewed.Remaining, err)
		}
	})
	for _, p := range check.problems {
		t.Error(p)
	}
}

// An expiry is proposed as the leader loses touch. Its entry survives because
// only one that has it can be elected, or is truncated because another one is.
func TestExpiryOfUnknownFate(t *testing.T) {
	for _, survives := range []bool{true, false} {
		t.Run(fmt.Sprintf("survives %v", survives), func(t *testing.T) {
			check := scheduled(t, trial{}, 3, func(c *simCluster) {
				c.net.RPCTimeout = 100 * time.Millisecond
				old := c.awaitReign(nil)
				const ttl = 2 * time.Second
				lease := old.acquire(c, "holder", ttl)
				time.Sleep(ttl - 50*time.Millisecond)
				p := old.process()
				written := make(chan struct{})
				p.whenStored(func(c leasefsm.Command) {
					if _, ok := c.(leasefsm.Expire); ok {
						close(written)
					}
				})
				old.cutOff()
				if survives {
					for _, n := range c.nodes {
						n.cutOff() // so that nobody else can be elected
					}
				}
				<-written
				for p.store.raft.State() == raft.Leader {
					time.Sleep(10 * time.Millisecond)
				}
				renewed := func(n *simNode) error {
					ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
					defer cancel()
					_, err := n.process().store.Renew(ctx, lease.ID(), ttl)
					return err
				}
				if survives {
					for _, n := range c.nodes {
						c.net.SetCut(n.name, old.name, false)
						c.net.SetCut(old.name, n.name, false)
					}
					// Only one that has the entry can be elected now.
					if err := renewed(c.awaitReign(nil)); !errors.Is(err, baton.ErrNotLeader) {
						c.t.Errorf("renewed after its expiry survived: %v", err)
					}
					return
				}
				successor := c.awaitReign(old)
				if err := renewed(successor); err != nil {
					c.t.Errorf("renewed after its expiry was lost: %v", err)
				}
				c.net.Heal()
				for p.store.raft.Leader() == "" {
					time.Sleep(10 * time.Millisecond)
				}
				if err := renewed(old); err != nil { // passed on
					c.t.Errorf("renewed through the one that had proposed its expiry: %v", err)
				}
			})
			for _, p := range check.problems {
				t.Error(p)
			}
		})
	}
}

// A leads, then B, then A again. What A knew of deadlines in its first reign is
// not what it goes by in its second.
func TestReignsBeginAnew(t *testing.T) {
	check := scheduled(t, trial{}, 3, func(c *simCluster) {
		a := c.awaitReign(nil)
		lease := a.acquire(c, "holder", time.Minute)
		time.Sleep(40 * time.Second)
		hand := func(from, to *simNode) {
			for c.awaitReign(nil) == from {
				_ = from.process().store.raft.LeadershipTransferToServer(raft.ServerID(to.name), raft.ServerAddress(to.name)).Error()
			}
		}
		b := c.nodes[0]
		if b == a {
			b = c.nodes[1]
		}
		hand(a, b)
		time.Sleep(time.Second)
		hand(c.awaitReign(nil), a)
		if c.awaitReign(nil) != a {
			c.t.Fatal("a does not lead again")
		}
		now, err := a.process().store.Get(context.Background(), "g")
		if err != nil || now.Term != lease.Term || now.Remaining < 59*time.Second {
			c.t.Errorf("in its second reign: %+v, %v", now, err)
		}
	})
	for _, p := range check.problems {
		t.Error(p)
	}
}

// A leadership is lost and won again, and nobody told: the reign of the old
// raft term is still there. It answers nothing, changes nothing, and is
// replaced.
func TestSwallowedFlap(t *testing.T) {
	check := scheduled(t, trial{}, 3, func(c *simCluster) {
		n := c.awaitReign(nil)
		lease := n.acquire(c, "holder", time.Minute)
		s := n.process().store
		s.mu.Lock()
		stale := s.reign
		stale.term--
		stale.rounds.term--
		s.mu.Unlock()
		if _, err := stale.renew(context.Background(), lease.ID(), time.Minute); !errors.Is(err, baton.ErrUnavailable) {
			c.t.Errorf("renewed: %v", err)
		}
		if err := stale.release(context.Background(), lease.ID()); !errors.Is(err, baton.ErrUnavailable) {
			c.t.Errorf("released: %v", err)
		}
		for {
			s.mu.Lock()
			now := s.reign
			s.mu.Unlock()
			if now != stale && now != nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if l, err := s.Renew(context.Background(), lease.ID(), time.Minute); err != nil || l.Term != lease.Term {
			c.t.Errorf("in the new reign: %+v, %v", l, err)
		}
	})
	for _, p := range check.problems {
		t.Error(p)
	}
}

// What is handed to a reign as it ends is answered, and does not hold up the end.
func TestProposalsAtTheEndOfAReign(t *testing.T) {
	scheduled(t, trial{}, 3, func(c *simCluster) {
		n := c.awaitReign(nil)
		s := n.process().store
		s.mu.Lock()
		r := s.reign
		s.mu.Unlock()
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			for range 2 * maxBatch {
				if err := r.commit(context.Background(), "test", leasefsm.RaiseFloor{Term: 1}, nil).Err; err != nil && !errors.Is(err, baton.ErrUnavailable) {
					c.t.Errorf("answered %v", err)
				}
			}
		}()
		time.Sleep(5 * time.Millisecond)
		n.crash()
		<-answered
	})
}

// A leader whose disk fails acknowledges nothing, and another takes over. What it had half
// written changes nothing when it is back.
func TestLeaderWhoseDiskFails(t *testing.T) {
	check := scheduled(t, trial{}, 3, func(c *simCluster) {
		old := c.awaitReign(nil)
		lease := old.acquire(c, "holder", time.Minute)
		p := old.process()
		p.Disk.Fail(errors.New("no space left on device"))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := p.store.Release(ctx, lease.ID()); err == nil {
			c.t.Error("released on a disk that fails")
		}
		successor := c.awaitReign(old)
		if l, err := successor.process().store.Renew(context.Background(), lease.ID(), time.Minute); err != nil || l.Term != lease.Term {
			c.t.Errorf("renewed through the successor: %+v, %v", l, err)
		}
		old.crash()
		old.start(nil)
		c.settle()
	})
	for _, p := range check.problems {
		t.Error(p)
	}
}

// A server dies with a vote written and not sent, and with entries written and
// not acknowledged. It comes back with both.
func TestCrashWhileStoring(t *testing.T) {
	check := scheduled(t, trial{}, 3, func(c *simCluster) {
		for range 10 {
			old := c.awaitReign(nil)
			for _, n := range c.nodes {
				if n != old {
					n.process().whenStored(func(leasefsm.Command) { go n.crash() })
					break
				}
			}
			c.mustAcquire(old, "g", fmt.Sprintf("n%d", len(c.check.leaders)))
			time.Sleep(time.Second) // the last write that it dies of is done
			for _, n := range c.nodes {
				n.start(nil)
			}
			old.crash()
			c.awaitReign(old)
			old.start(nil)
		}
		c.settle()
	})
	for _, p := range check.problems {
		t.Error(p)
	}
}
