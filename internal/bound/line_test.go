package bound

import (
	"testing"
	"time"

	"baton"
)

func TestWhoGoesFirst(t *testing.T) {
	line := []Place{{"a", "1"}, {"b", "1"}, {"b", "2"}, {"c", "1"}}
	for _, c := range []struct {
		successor, node, instance string
		ahead                     int
	}{
		{"", "a", "1", 0},
		{"", "b", "2", 2},
		{"", "x", "1", 4}, // not in line
		{"c", "c", "1", 0},
		{"c", "a", "1", 1},
		{"b", "b", "1", 0},
		{"b", "c", "1", 3},
		{"gone", "a", "1", 0},
	} {
		st := &State{Line: line, Record: Record{Successor: c.successor}}
		if got := st.ahead(baton.Candidate{NodeID: c.node, InstanceID: c.instance}); got != c.ahead {
			t.Errorf("successor %q: %d go before %s/%s, want %d", c.successor, got, c.node, c.instance, c.ahead)
		}
	}
	ending := &State{Line: line, Record: Record{Holder: &Holder{Ending: &Ending{Successor: "c"}}}}
	if got := ending.ahead(baton.Candidate{NodeID: "c", InstanceID: "1"}); got != 0 {
		t.Errorf("%d go before the successor that an ending named which nobody has written down", got)
	}
}

func TestTurns(t *testing.T) {
	now := time.Now()
	w := Waiter{Candidate: bob}
	st := led()
	st.Line = []Place{{"first", "1"}, {"bob", "1"}}
	look := func(when time.Duration, wantCalled bool, wantLater time.Duration) {
		t.Helper()
		if called, later := w.Turn(st, now.Add(when)); called != wantCalled || !called && later != wantLater {
			t.Errorf("after %v: called %t, or %v later; want %t, %v", when, called, later, wantCalled, wantLater)
		}
	}
	if called, later := w.Turn(st, now); called || later < time.Hour {
		t.Errorf("while the group is held: called %t, or %v later", called, later)
	}
	if w.WritesDown(st) {
		t.Error("there is nothing to write down")
	}
	st.Bound = false
	if !w.WritesDown(st) {
		t.Error("the second does not write down that the lease ran out")
	}
	look(0, false, TurnKept)
	look(TurnKept/4, false, TurnKept*3/4)
	st.Record.Last, st.Record.Holder = &Past{Term: 9}, nil // others were there meanwhile
	look(TurnKept/2, false, TurnKept)
	look(TurnKept*3/2, true, 0)
	st.Line = nil
	fresh := Waiter{Candidate: bob}
	if called, _ := fresh.Turn(st, now); !called {
		t.Error("nobody is ahead, and it is not called")
	}
	holder := Waiter{Candidate: ann}
	if called, _ := holder.Turn(led(), now); !called {
		t.Error("for the holder it is not its turn")
	}
}

func TestOnlyTheSecondWritesDownAtFirst(t *testing.T) {
	st := led()
	st.Bound, st.Line = false, []Place{{"a", "1"}, {"b", "1"}, {"c", "1"}}
	for i, p := range st.Line {
		w := Waiter{Candidate: baton.Candidate{NodeID: p.Node, InstanceID: p.Instance}}
		if got := w.WritesDown(st); got != (i == 1) {
			t.Errorf("number %d writes it down: %t", i+1, got)
		}
		w.Turn(st, time.Now())
		if !w.WritesDown(st) {
			t.Errorf("number %d does not write down what it still finds", i+1)
		}
	}
}
