package line

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/internal/boottime"
)

func TestCloseEndsAllWaits(t *testing.T) {
	bubble(t, "z", func(t *testing.T, s *store) {
		ws := s.awaits("a", "b")
		ws = append(ws, s.await(candidate("c")))
		ws[2].cancelled(t) // leaves a timer behind
		s.Close()
		for _, w := range ws[:2] {
			if err := w.returned(t); !errors.Is(err, baton.ErrUnavailable) {
				t.Errorf("Await of %s: %v", w.node, err)
			}
		}
		if err := s.await(candidate("d")).returned(t); !errors.Is(err, baton.ErrUnavailable) {
			t.Errorf("Await after Close: %v", err)
		}
		s.vacate("a", SuccessorKept)
		s.forgotten(t)
		s.Close()
	})
}

// The group opens after the owner was asked and before its answer, "held", is
// heard: the answer is older than what was told.
func TestVacancyWhileTheOwnerAnswersIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *Line
		l = New(boottime.Monotonic(), func(context.Context, string) (bool, error) {
			l.Open(group, "", 0)
			return false, nil
		})
		defer l.Close()
		if err := l.Await(t.Context(), group, candidate("a")); err != nil {
			t.Fatal(err)
		}
	})
}

// The owner's answer takes so long that the place, the only one, is forgotten
// meanwhile, and with it whatever the owner told. The answer is worthless then.
func TestAnswerThatTookTooLongIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		l := New(boottime.Monotonic(), func(context.Context, string) (bool, error) {
			if asked++; asked == 1 {
				time.Sleep(PlaceKept + 1)
				return false, nil
			}
			return true, nil
		})
		defer l.Close()
		if err := l.Await(t.Context(), group, candidate("a")); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOwnerThatCannotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(boottime.Monotonic(), func(context.Context, string) (bool, error) {
			return false, baton.ErrUnavailable
		})
		defer l.Close()
		if err := l.Await(t.Context(), group, candidate("a")); !errors.Is(err, baton.ErrUnavailable) {
			t.Fatal(err)
		}
		if !l.InLine(group, "a") {
			t.Fatal("the place is lost")
		}
		time.Sleep(PlaceKept)
		if l.InLine(group, "a") {
			t.Fatal("the place is kept for good")
		}
	})
}

// stoppedTimers is a clock whose timers are late without end.
type stoppedTimers struct{ baton.Clock }

func (stoppedTimers) AfterFunc(time.Duration, func()) func() bool { return func() bool { return true } }

func TestNothingDependsOnTimersBeingInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(stoppedTimers{boottime.Monotonic()}, func(context.Context, string) (bool, error) { return true, nil })
		defer l.Close()
		if err := l.Await(t.Context(), group, candidate("a")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(TurnKept)
		if err := l.Await(t.Context(), group, candidate("b")); err != nil {
			t.Fatal(err)
		}
		if c, left, ok := l.TurnOf(group); !ok || c.NodeID != "b" || left != TurnKept {
			t.Fatalf("TurnOf: %v, %v, %v", c, left, ok)
		}
	})
}

func TestQueries(t *testing.T) {
	bubble(t, "z", func(t *testing.T, s *store) {
		meta := map[string]string{"zone": "eu"}
		a := s.await(baton.Candidate{NodeID: "a", InstanceID: "1", Metadata: meta})
		meta["zone"] = "changed by the caller"
		time.Sleep(time.Second)
		b := s.await(candidate("b"))
		time.Sleep(time.Second)
		b.cancelled(t)
		time.Sleep(time.Second)
		s.vacate("", 0)
		a.called(t)
		time.Sleep(time.Second / 4)

		ms := s.Members(group)
		if len(ms) != 2 || s.Len(group) != 2 {
			t.Fatalf("members: %+v", ms)
		}
		if m := ms[0]; m.NodeID != "a" || m.Waited != 3250*time.Millisecond || m.Unseen != time.Second/4 || !m.Turn || m.Metadata["zone"] != "eu" {
			t.Errorf("first: %+v", m)
		}
		if m := ms[1]; m.NodeID != "b" || m.Waited != 2250*time.Millisecond || m.Unseen != 1250*time.Millisecond || m.Turn {
			t.Errorf("second: %+v", m)
		}
		if c, left, ok := s.TurnOf(group); !ok || c.NodeID != "a" || left != 750*time.Millisecond {
			t.Errorf("TurnOf: %v, %v, %v", c, left, ok)
		}
		if !s.InLine(group, "b") || s.InLine(group, "z") || s.InLine("other", "a") {
			t.Error("InLine is wrong")
		}
		if _, _, ok := s.TurnOf("other"); ok || s.Len("other") != 0 || s.Members("other") != nil {
			t.Error("a group that nobody waits for has a line")
		}
	})
}
