package line

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/internal/boottime"
	"baton/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

const group = "payments"

// store is an owner of a line as small as one can be: it knows who holds the
// group, and tells the line under its own lock.
type store struct {
	*Line
	mu     sync.Mutex
	holder string // a node, "" if vacant
}

func newStore(t *testing.T, holder string) *store {
	s := &store{holder: holder}
	s.Line = New(boottime.Monotonic(), func(context.Context, string) (bool, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.holder == "", nil
	})
	t.Cleanup(s.Close)
	return s
}

func (s *store) vacate(successor string, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holder = ""
	s.Open(group, successor, wait)
}

// foretell says that whoever holds the group is about to go, shut that it stays.
func (s *store) foretell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Foretell(group)
}

func (s *store) shut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holder = "z"
	s.Shut(group)
}

func (s *store) grant(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holder = node
	s.Granted(group, candidate(node))
}

func candidate(node string) baton.Candidate {
	return baton.Candidate{NodeID: node, InstanceID: node + "-1"}
}

// wait is an Await that runs on its own.
type wait struct {
	node   string
	cancel context.CancelFunc
	result chan error
}

func (s *store) await(c baton.Candidate) *wait {
	ctx, cancel := context.WithCancel(context.Background())
	w := &wait{node: c.NodeID, cancel: cancel, result: make(chan error, 1)}
	go func() { w.result <- s.Await(ctx, group, c) }()
	synctest.Wait()
	return w
}

func (s *store) awaits(nodes ...string) []*wait {
	var ws []*wait
	for _, n := range nodes {
		ws = append(ws, s.await(candidate(n)))
	}
	return ws
}

func (w *wait) waits(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-w.result:
		t.Fatalf("Await of %s returned %v: want it to wait", w.node, err)
	default:
	}
}

func (w *wait) called(t *testing.T) {
	t.Helper()
	if err := w.returned(t); err != nil {
		t.Fatalf("Await of %s: %v: want its turn", w.node, err)
	}
}

func (w *wait) returned(t *testing.T) error {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-w.result:
		return err
	default:
		t.Fatalf("Await of %s still waits", w.node)
		return nil
	}
}

func (w *wait) cancelled(t *testing.T) {
	t.Helper()
	w.cancel()
	if err := w.returned(t); !errors.Is(err, context.Canceled) {
		t.Fatalf("Await of %s: %v: want it cancelled", w.node, err)
	}
}

func (s *store) inOrder(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, m := range s.Members(group) {
		got = append(got, m.NodeID)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("in line: %v, want %v", got, want)
	}
}

func (s *store) forgotten(t *testing.T) {
	t.Helper()
	s.Len(group)
	s.Line.mu.Lock()
	defer s.Line.mu.Unlock()
	if n := len(s.groups); n != 0 {
		t.Fatalf("%d groups are remembered, want none", n)
	}
}

// bubble runs f with fake time, and checks that it left no wait behind.
func bubble(t *testing.T, holder string, f func(t *testing.T, s *store)) {
	synctest.Test(t, func(t *testing.T) { f(t, newStore(t, holder)) })
}

func TestVacantGroupCallsTheFirstAtOnce(t *testing.T) {
	bubble(t, "", func(t *testing.T, s *store) {
		a := s.await(candidate("a"))
		a.called(t)
		b := s.await(candidate("b"))
		b.waits(t)
		s.grant("a")
		b.waits(t)
		s.inOrder(t, "b")
		b.cancelled(t)
	})
}

func TestEachVacancyCallsOneInOrderOfArrival(t *testing.T) {
	bubble(t, "z", func(t *testing.T, s *store) {
		ws := s.awaits("a", "b", "c", "d")
		for i, w := range ws {
			s.vacate("", 0)
			w.called(t)
			for _, later := range ws[i+1:] {
				later.waits(t)
			}
			s.grant(w.node)
		}
		s.forgotten(t)
	})
}

func TestMissedTurnGoesToTheNextAndCostsThePlace(t *testing.T) {
	bubble(t, "z", func(t *testing.T, s *store) {
		ws := s.awaits("a", "b", "c")
		s.vacate("", 0)
		ws[0].called(t)
		time.Sleep(TurnKept - 1)
		ws[1].waits(t)
		time.Sleep(1)
		ws[1].called(t)
		s.inOrder(t, "b", "c")

		a := s.await(candidate("a"))
		s.inOrder(t, "b", "c", "a")
		s.grant("b")
		s.vacate("", 0)
		ws[2].called(t)
		a.waits(t)
		s.grant("c")
		a.cancelled(t)
	})
}

func TestTurnIsKeptForRepeatedAwaitButNotProlonged(t *testing.T) {
	bubble(t, "z", func(t *testing.T, s *store) {
		ws := s.awaits("a", "b")
		s.vacate("", 0)
		ws[0].called(t)
		for range 9 {
			time.Sleep(TurnKept / 10)
			s.await(candidate("a")).called(t)
		}
		time.Sleep(TurnKept / 10)
		ws[1].called(t)
		s.grant("b")
	})
}

func TestPlaceSurvivesFromOnePollToTheNext(t *testing.T) {
	bubble(t, "z", func(t *testing.T, s *store) {
		ws := s.awaits("a", "b", "c")
		ws[0].cancelled(t)
		ws[1].cancelled(t)
		time.Sleep(PlaceKept - 1)
		a := s.await(candidate("a"))
		s.inOrder(t, "a", "b", "c")
		time.Sleep(1)
		s.inOrder(t, "a", "c")
		time.Sleep(time.Hour) // no limit while they wait
		s.inOrder(t, "a", "c")
		a.cancelled(t)
		ws[2].cancelled(t)
		time.Sleep(PlaceKept)
		s.forgotten(t)
	})
}

func TestFirstThatDiedCostsASecond(t *testing.T) {
	bubble(t, "z", func(t *testing.T, s *store) {
		ws := s.awaits("a", "b")
		ws[0].cancelled(t)
		s.vacate("", 0)
		time.Sleep(TurnKept - 1)
		ws[1].waits(t)
		time.Sleep(1)
		ws[1].called(t)
		s.inOrder(t, "b")
	})
}

func TestFirstBetweenPollsFindsItsTurnKept(t *testing.T) {
	bubble(t, "z", func(t *testing.T, s *store) {
		ws := s.awaits("a", "b")
		ws[0].cancelled(t)
		s.vacate("", 0)
		time.Sleep(TurnKept / 2)
		s.await(candidate("a")).called(t)
		// It learned of its turn only now, and has the whole of it.
		time.Sleep(TurnKept - 1)
		ws[1].waits(t)
		s.grant("a")
		time.Sleep(TurnKept)
		ws[1].waits(t)
		ws[1].cancelled(t)
	})
}

// The Await of the first ends in the same moment in which its turn comes. It
// cannot use it, so the next one is called without delay, and the first keeps its place.
func TestTurnAtTheMomentOfCancellationPassesOnAtOnce(t *testing.T) {
	bubble(t, "z", func(t *testing.T, s *store) {
		ctx, cancel := context.WithCancel(context.Background())
		first, err := s.enter(ctx, group, candidate("a"))
		if err != nil {
			t.Fatal(err)
		}
		ws := s.awaits("b", "c")
		s.vacate("", 0)
		ws[0].waits(t)
		cancel()
		if done, err := s.leave(ctx, first); !done || !errors.Is(err, context.Canceled) {
			t.Fatalf("leave: %v, %v", done, err)
		}
		ws[0].called(t)
		ws[1].waits(t)
		s.inOrder(t, "a", "b", "c")

		// b misses its turn. a has declined and has not come again: c is next.
		time.Sleep(TurnKept)
		ws[1].called(t)
		// a comes again: it is first, but c's turn is not taken away.
		a := s.await(candidate("a"))
		a.waits(t)
		time.Sleep(TurnKept)
		a.called(t)
		s.inOrder(t, "a")
	})
}

func TestLineInWhichAllDeclinedCallsWhoeverComesNext(t *testing.T) {
	for _, next := range []string{"a", "b"} {
		t.Run(next, func(t *testing.T) {
			bubble(t, "z", func(t *testing.T, s *store) {
				ctx, cancel := context.WithCancel(context.Background())
				w, err := s.enter(ctx, group, candidate("a"))
				if err != nil {
					t.Fatal(err)
				}
				s.vacate("", 0)
				cancel()
				if done, err := s.leave(ctx, w); !done || err == nil {
					t.Fatalf("leave: %v, %v", done, err)
				}
				if _, _, ok := s.TurnOf(group); ok {
					t.Fatal("a turn is out to one that declined")
				}
				s.await(candidate(next)).called(t)
			})
		})
	}
}

// A waiter that was called runs only much later, as after a pause of the process.
func TestCalledWaiterMissesNothingBeforeItRuns(t *testing.T) {
	bubble(t, "z", func(t *testing.T, s *store) {
		w, err := s.enter(t.Context(), group, candidate("a"))
		if err != nil {
			t.Fatal(err)
		}
		b := s.await(candidate("b"))
		s.vacate("", 0)
		time.Sleep(time.Minute)
		b.waits(t)
		if done, err := s.leave(t.Context(), w); !done || err != nil {
			t.Fatalf("leave: %v, %v", done, err)
		}
		time.Sleep(TurnKept - 1)
		b.waits(t)
		time.Sleep(1)
		b.called(t)
	})
}

func TestGrantOutOfTurnTakesTheTurnBackAndNotThePlace(t *testing.T) {
	bubble(t, "z", func(t *testing.T, s *store) {
		ws := s.awaits("a", "b")
		// Both before a can run: it was called in vain and does not notice.
		s.vacate("", 0)
		s.grant("y")
		ws[0].waits(t)

		s.vacate("", 0)
		ws[0].called(t)
		s.grant("y")
		time.Sleep(TurnKept)
		s.inOrder(t, "a", "b")
		a := s.await(candidate("a"))
		s.vacate("", 0)
		a.called(t)
		ws[1].waits(t)
		ws[1].cancelled(t)
	})
}

func TestGrantToOneThatStillWaitsEndsItsAwait(t *testing.T) {
	bubble(t, "z", func(t *testing.T, s *store) {
		ws := s.awaits("a", "b")
		s.grant("b")
		ws[1].called(t) // its Acquire gets the lease it holds
		s.inOrder(t, "a")
		ws[0].waits(t)
		ws[0].cancelled(t)
	})
}

func TestLaterAwaitReplacesTheEarlier(t *testing.T) {
	bubble(t, "z", func(t *testing.T, s *store) {
		a1 := s.await(candidate("a"))
		b := s.await(candidate("b"))
		a2 := s.await(candidate("a"))
		if err := a1.returned(t); !errors.Is(err, ErrReplaced) || !errors.Is(err, baton.ErrConflict) {
			t.Fatalf("the earlier Await: %v", err)
		}
		s.inOrder(t, "a", "b")
		s.vacate("", 0)
		a2.called(t)
		b.waits(t)
		b.cancelled(t)
	})
}

func TestReplacementInheritsATurnThatWasNotTakenYet(t *testing.T) {
	bubble(t, "z", func(t *testing.T, s *store) {
		older, err := s.enter(t.Context(), group, candidate("a"))
		if err != nil {
			t.Fatal(err)
		}
		s.vacate("", 0)
		s.await(candidate("a")).called(t)
		if done, err := s.leave(t.Context(), older); !done || !errors.Is(err, ErrReplaced) {
			t.Fatalf("leave: %v, %v", done, err)
		}
		if c, _, ok := s.TurnOf(group); !ok || c.NodeID != "a" {
			t.Fatalf("TurnOf: %v, %v", c, ok)
		}
	})
}

func TestEndedContextTakesNoPlace(t *testing.T) {
	bubble(t, "", func(t *testing.T, s *store) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := s.Await(ctx, group, candidate("a")); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		s.forgotten(t)
	})
}
