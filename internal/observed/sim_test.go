package observed

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/internal/freeze"
)

var (
	firstSeed = flag.Uint64("observed.seed", 1, "the first seed of the simulations")
	seeds     = flag.Uint64("observed.seeds", 300, "how many seeds the simulation of the sound code runs through")
)

const (
	simTTL   = time.Second
	simLasts = 40 * time.Second
	// simMargin is what a holder takes off, of every so much of a TTL.
	simMargin = 10
)

var simGuarantees = baton.Guarantees{Store: "simulated", MinTTL: 100 * time.Millisecond, MaxTTL: baton.MaxTTL, Extends: true, Time: baton.TimeObserved}

// flaws are mistakes that the simulation must find.
type flaws struct {
	fromReceipt, stampEarly, blindExpiry bool
}

// sim is a few processes, each an observer and a candidate, and one that only watches.
type sim struct {
	register *memory
	late     sync.WaitGroup

	mu       sync.Mutex
	trusted  map[string]trust
	terms    map[baton.Term]string
	highest  baton.Term
	grants   int
	watched  int
	problems []string
}

// trust is until when, in true time, a node believes that it leads in a term: the latest that it was promised.
type trust struct {
	term  baton.Term
	until time.Time
}

func (s *sim) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

// believes records that a node has been promised the group until then, and that nobody else believes so now.
func (s *sim) believes(node string, l baton.Lease, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !until.After(now) {
		return
	}
	for other, theirs := range s.trusted {
		if other != node && theirs.until.After(now) {
			s.problem("%s leads in term %d while %s believes for another %v that it does", node, l.Term, other, theirs.until.Sub(now))
		}
	}
	if mine := s.trusted[node]; mine.term != l.Term || until.After(mine.until) {
		s.trusted[node] = trust{l.Term, until}
	}
	if holder, ok := s.terms[l.Term]; ok && holder != l.InstanceID {
		s.problem("term %d was granted to %s and to %s", l.Term, holder, l.InstanceID)
	}
	if _, ok := s.terms[l.Term]; !ok {
		if l.Term < s.highest {
			s.problem("term %d after %d", l.Term, s.highest)
		}
		s.terms[l.Term], s.highest, s.grants = l.InstanceID, max(s.highest, l.Term), s.grants+1
	}
}

func (s *sim) gaveUp(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.trusted, node)
}

func simulate(t *testing.T, seed uint64, f flaws) *sim {
	s := &sim{trusted: map[string]trust{}, terms: map[baton.Term]string{}}
	synctest.Test(t, func(t *testing.T) {
		s.register = newMemory()
		s.register.blindExpiry = f.blindExpiry
		ctx, cancel := context.WithTimeout(t.Context(), simLasts)
		defer cancel()
		var nodes sync.WaitGroup
		for i := range 4 {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			gate := &freeze.Gate{}
			clock := &drifting{rate: 0.96 + 0.08*rng.Float64(), offset: time.Duration(rng.Int64N(int64(time.Hour))) - 30*time.Minute, start: time.Now(), gate: gate}
			leases := New(Config{
				Register:   &remote{memory: s.register, gate: gate, rng: rng, late: &s.late},
				Guarantees: simGuarantees, Clock: clock, Timeout: 2 * time.Second,
			})
			leases.sights.stampEarly = f.stampEarly
			t.Cleanup(leases.Close)
			node := rand.New(rand.NewPCG(seed, uint64(100+i)))
			nodes.Go(func() { s.node(ctx, fmt.Sprintf("node-%d", i), leases, clock, gate, node, f) })
			if i == 0 {
				nodes.Go(func() { s.watch(ctx, leases) })
			}
		}
		nodes.Wait()
		s.late.Wait()
	})
	return s
}

// node campaigns, leads, renews late or in time, ends well or badly, and stands still now and then.
func (s *sim) node(ctx context.Context, id string, l *Leases, clock *drifting, gate *freeze.Gate, rng *rand.Rand, f flaws) {
	rest := func(most time.Duration) {
		pause(ctx, time.Duration(rng.Int64N(int64(most)))+1)
		gate.Pass()
	}
	// ask sends a request, and takes what it is promised to begin where it may.
	ask := func(request func() (baton.Lease, error)) (baton.Lease, error) {
		sent := clock.Now()
		lease, err := request()
		gate.Pass()
		if f.fromReceipt {
			sent, lease.Remaining = clock.Now(), lease.TTL
		}
		if err == nil {
			s.believes(id, lease, clock.when(sent+lease.Remaining-lease.TTL/simMargin))
		}
		return lease, err
	}
	for n := 0; ctx.Err() == nil; n++ {
		c := baton.Candidate{NodeID: id, InstanceID: fmt.Sprintf("%s-%d", id, n)}
		ttl := simTTL - time.Duration(rng.Int64N(int64(simTTL/2)))
		lease, err := ask(func() (baton.Lease, error) { return l.Acquire(ctx, "g", c, ttl) })
		for err != nil && !errors.Is(err, baton.ErrConflict) && ctx.Err() == nil {
			rest(300 * time.Millisecond)
			lease, err = ask(func() (baton.Lease, error) { return l.Acquire(ctx, "g", c, ttl) })
		}
		if err != nil {
			continue
		}
		for range rng.IntN(8) {
			if rng.IntN(6) == 0 {
				gate.Freeze(time.Duration(rng.Int64N(int64(2 * simTTL))))
			}
			rest(simTTL / 2)
			if rng.IntN(4) == 0 {
				ttl += time.Duration(rng.Int64N(int64(simTTL / 4))) // more than was granted, or raised to since
			}
			if _, err := ask(func() (baton.Lease, error) { return l.Renew(ctx, lease.ID(), ttl) }); errors.Is(err, baton.ErrNotLeader) {
				break
			}
		}
		switch rng.IntN(4) {
		case 0: // dies, and its lease has to run out
		case 1:
			_ = l.End(ctx, "g", lease.Term, baton.Ending{Reason: baton.SteppedDown}, nil)
			_, _ = ask(func() (baton.Lease, error) { return l.Renew(ctx, lease.ID(), ttl) })
			s.gaveUp(id)
			_ = l.Release(ctx, lease.ID())
		default:
			s.gaveUp(id)
			_ = l.Release(ctx, lease.ID())
		}
		rest(300 * time.Millisecond)
	}
}

// watch follows the group with one cursor through all the errors there are. Each term begins once and ends once.
func (s *sim) watch(ctx context.Context, l *Leases) {
	var cursor baton.Cursor
	var last baton.Event
	for ctx.Err() == nil {
		for ev, err := range l.Watch(ctx, "g", cursor) {
			if err != nil {
				break
			}
			s.mu.Lock()
			s.watched++
			switch {
			case ev.Gap:
				s.problem("a gap at term %d, with all that happened kept", ev.Term)
			case last.Type == baton.LeaderChanged && (ev.Type != baton.LeaderLost || ev.Term != last.Term):
				s.problem("after the beginning of term %d comes %s of term %d", last.Term, ev.Type, ev.Term)
			case last.Type == baton.LeaderLost && (ev.Type != baton.LeaderChanged || ev.Term <= last.Term):
				s.problem("after the end of term %d comes %s of term %d", last.Term, ev.Type, ev.Term)
			}
			s.mu.Unlock()
			cursor, last = ev.Cursor, ev
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// Clocks are off by any time and by up to four in a hundred, processes stand
// still, requests and answers are lost, late and repeated: no two nodes believe
// at one time that they lead, and terms rise.
func TestNoTwoLeadAtOnce(t *testing.T) {
	grants, watched := 0, 0
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		s := simulate(t, seed, flaws{})
		for _, p := range s.problems {
			t.Errorf("seed %d: %s", seed, p)
		}
		if t.Failed() {
			return
		}
		grants, watched = grants+s.grants, watched+s.watched
	}
	t.Logf("%d grants, %d events", grants, watched)
	if grants < int(*seeds)*10 || watched < int(*seeds)*10 {
		t.Errorf("%d grants and %d events in %d runs: too few to show anything", grants, watched, *seeds)
	}
}

// The simulation can fail: each of these breaks one rule.
func TestSimulationCatchesFlaws(t *testing.T) {
	for name, f := range map[string]flaws{
		"trust from receipt":          {fromReceipt: true},
		"stamp from before the read":  {stampEarly: true},
		"expiry of whatever is there": {blindExpiry: true},
	} {
		t.Run(name, func(t *testing.T) {
			const most = 200
			for seed := *firstSeed; seed < *firstSeed+most; seed++ {
				if s := simulate(t, seed, f); len(s.problems) > 0 {
					t.Logf("seed %d: %s", seed, s.problems[0])
					return
				}
			}
			t.Fatalf("%d runs of broken code, and nothing was found", most)
		})
	}
}
