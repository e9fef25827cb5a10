package line

import (
	"testing"
	"time"

	"baton"
)

func TestNamedSuccessorInLineGoesFirst(t *testing.T) {
	bubble(t, "z", func(t *testing.T, s *store) {
		ws := s.awaits("a", "b", "c")
		s.vacate("c", SuccessorKept)
		ws[2].called(t)
		s.grant("c")
		s.vacate("", 0)
		ws[0].called(t)
		s.grant("a")
		ws[1].cancelled(t)
	})
}

func TestNamedSuccessorThatMissesItsTurn(t *testing.T) {
	bubble(t, "z", func(t *testing.T, s *store) {
		ws := s.awaits("a", "b")
		s.vacate("b", 0)
		ws[1].called(t)
		time.Sleep(TurnKept)
		ws[0].called(t)
		s.inOrder(t, "a")
	})
}

func TestOfSeveralInstancesOfTheSuccessorTheOneThatWaitsIsCalled(t *testing.T) {
	bubble(t, "z", func(t *testing.T, s *store) {
		a := s.await(candidate("a"))
		gone := s.await(baton.Candidate{NodeID: "b", InstanceID: "before-restart"})
		b := s.await(baton.Candidate{NodeID: "b", InstanceID: "after-restart"})
		gone.cancelled(t)
		s.vacate("b", 0)
		b.called(t)
		s.grant("b") // yet another instance of it
		a.waits(t)
		a.cancelled(t)
	})
}

func TestAbsentSuccessor(t *testing.T) {
	t.Run("not waited for", func(t *testing.T) {
		bubble(t, "z", func(t *testing.T, s *store) {
			a := s.await(candidate("a"))
			s.vacate("b", 0)
			a.called(t)
		})
	})
	t.Run("comes in time", func(t *testing.T) {
		bubble(t, "z", func(t *testing.T, s *store) {
			s.vacate("b", SuccessorKept) // nobody is in line at all
			a := s.await(candidate("a"))
			time.Sleep(SuccessorKept - 1)
			a.waits(t)
			if c, left, ok := s.TurnOf(group); !ok || c.NodeID != "b" || left != 1 {
				t.Fatalf("TurnOf: %v, %v, %v", c, left, ok)
			}
			s.await(candidate("b")).called(t)
			a.waits(t)
			s.grant("b")
			a.cancelled(t)
		})
	})
	t.Run("does not come", func(t *testing.T) {
		bubble(t, "z", func(t *testing.T, s *store) {
			a := s.await(candidate("a"))
			s.vacate("b", SuccessorKept)
			time.Sleep(SuccessorKept - 1)
			a.waits(t)
			time.Sleep(1)
			a.called(t)
			b := s.await(candidate("b"))
			b.waits(t)
			s.grant("a")
			b.cancelled(t)
		})
	})
	t.Run("does not come and nobody else does", func(t *testing.T) {
		bubble(t, "z", func(t *testing.T, s *store) {
			s.vacate("b", SuccessorKept)
			time.Sleep(SuccessorKept)
			s.forgotten(t)
		})
	})
	t.Run("another is granted meanwhile", func(t *testing.T) {
		bubble(t, "z", func(t *testing.T, s *store) {
			s.vacate("b", SuccessorKept)
			s.grant("y")
			b := s.await(candidate("b"))
			time.Sleep(SuccessorKept)
			b.waits(t)
			b.cancelled(t)
		})
	})
}
