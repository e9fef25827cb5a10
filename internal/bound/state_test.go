package bound

import (
	"errors"
	"testing"
	"time"

	"baton"
)

var ann, bob = baton.Candidate{NodeID: "ann", InstanceID: "1"}, baton.Candidate{NodeID: "bob", InstanceID: "1"}

// led is a group that ann leads in term 7.
func led() *State {
	return &State{
		Group: "g", Bound: true, Counter: 7,
		Record: Record{Holder: &Holder{Term: 7, Node: "ann", Instance: "1", Seconds: 10, Elected: stamp()}},
	}
}

// after is the group once a record was written and what it was bound to is gone.
func (st *State) after(r Record) *State {
	next := *st
	next.Record, next.Bound = r, false
	return &next
}

func TestWhatTheServerTookAwayIsOver(t *testing.T) {
	st := led()
	if !st.HeldBy(ann) || !st.Leads(baton.LeaseID{Group: "g", Term: 7, NodeID: "ann", InstanceID: "1"}) || st.Lapsed() {
		t.Errorf("a leadership that stands: %+v", st)
	}
	st.Bound = false
	if st.Held() || st.HeldIn(7) || !st.Lapsed() || st.Lease().Held() {
		t.Errorf("a lease that ran out: %+v", st)
	}
	if ev := st.Event(); ev.Type != baton.LeaderLost || ev.Reason != baton.Expired || ev.PreviousNodeID != "ann" || ev.Term != 7 {
		t.Errorf("it is told as %+v", ev)
	}
	st = st.after(st.Expired())
	if ev := st.Event(); st.Lapsed() || ev.Type != baton.LeaderLost || ev.Reason != baton.Expired || ev.PreviousNodeID != "ann" || ev.Term != 7 {
		t.Errorf("written down it is told as %+v", ev)
	}
}

func TestTermsRise(t *testing.T) {
	for name, c := range map[string]struct {
		st         State
		last, next baton.Term
	}{
		"a new group":                       {State{}, 0, 1},
		"a new group above the floor":       {State{Floor: 5}, 5, 6},
		"led before":                        {State{Counter: 3}, 3, 4},
		"led before, and a floor was added": {State{Counter: 3, Floor: 5}, 3, 6},
		"the counter is gone":               {State{Record: Record{Last: &Past{Term: 4}}}, 4, 5},
		"the record is ahead":               {State{Counter: 3, Record: Record{Holder: &Holder{Term: 4}}}, 4, 5},
	} {
		if got := c.st.Last(); got != c.last {
			t.Errorf("%s: the last term is %d, want %d", name, got, c.last)
		}
		if got := c.st.Granted(ann, 10).Holder.Term; got != c.next {
			t.Errorf("%s: the next term is %d, want %d", name, got, c.next)
		}
	}
}

func TestRefusals(t *testing.T) {
	left := func() (baton.Lease, error) {
		return baton.Lease{Group: "g", NodeID: "ann", Remaining: time.Second}, nil
	}
	conflict := func(st *State, c baton.Candidate) string {
		var e *baton.ConflictError
		if !errors.As(st.Refusal(c, left), &e) {
			return ""
		}
		return e.Reason
	}
	var held *baton.HeldError
	if err := led().Refusal(bob, left); !errors.As(err, &held) || held.RetryAfter != time.Second || held.Lease.NodeID != "ann" {
		t.Errorf("while another leads: %v", err)
	}
	broken := errors.New("no answer")
	if err := led().Refusal(bob, func() (baton.Lease, error) { return baton.Lease{}, broken }); !errors.Is(err, broken) {
		t.Errorf("while another leads, and what is left is not known: %v", err)
	}
	st := led()
	st = st.after(st.Released())
	if got := conflict(st, ann); got != baton.ConflictInstanceEnded {
		t.Errorf("the one whose leadership ended: %q", got)
	}
	if err := st.Refusal(bob, left); err != nil {
		t.Errorf("a vacant group: %v", err)
	}
	st.Line = []Place{{"first", "1"}}
	if err := st.Refusal(bob, left); !errors.As(err, &held) || held.Lease.Held() || held.RetryAfter <= 0 || held.RetryAfter > TurnKept {
		t.Errorf("while another has the turn: %v", err)
	}
	if got := conflict(&State{Group: "g", Counter: baton.MaxTerm}, ann); got != baton.ConflictTermsExhausted {
		t.Errorf("a group without terms: %q", got)
	}
}

func TestEndings(t *testing.T) {
	st := led()
	var conflict *baton.ConflictError
	if _, err := st.Ended(baton.Ending{Reason: baton.Transferred, Successor: "bob"}); !errors.As(err, &conflict) || conflict.Reason != baton.ConflictNotInLine {
		t.Errorf("a successor that does not wait: %v", err)
	}
	st.Line = []Place{{"first", "1"}, {"bob", "1"}}
	next, err := st.Ended(baton.Ending{Reason: baton.Transferred, Note: "over to you", Successor: "bob"})
	if err != nil || next.Holder == nil || next.Holder.Ending == nil || next.Ended != 0 {
		t.Fatalf("asked to go: %+v, %v", next, err)
	}
	if st.Record.Holder.Ending != nil {
		t.Error("the state that was read has changed")
	}
	asked := *st
	asked.Record = next
	for name, c := range map[string]struct {
		r    Record
		want baton.Reason
	}{
		"it goes":       {asked.Released(), baton.Transferred},
		"it was slower": {asked.Expired(), baton.Expired},
	} {
		if l := c.r.Last; c.r.Holder != nil || l.Reason != c.want || l.Note != "over to you" || c.r.Successor != "bob" || c.r.Ended != 1 {
			t.Errorf("%s: %+v, last %+v", name, c.r, c.r.Last)
		}
		if got := asked.after(c.r).ahead(bob); got != 0 {
			t.Errorf("%s: %d go before the successor", name, got)
		}
	}
	if now, err := st.Ended(baton.Ending{Reason: baton.SteppedDown, Immediate: true}); err != nil || now.Holder != nil || now.Last.Reason != baton.SteppedDown {
		t.Errorf("ended at once: %+v, %v", now, err)
	}
}

func TestUndeletable(t *testing.T) {
	var conflict *baton.ConflictError
	if err := led().Undeletable(true); !errors.As(err, &conflict) || conflict.Reason != baton.ConflictHeld {
		t.Errorf("a group that is led: %v", err)
	}
	if err := (&State{Group: "g"}).Undeletable(false); !errors.Is(err, baton.ErrNotFound) {
		t.Errorf("a group that nobody knows: %v", err)
	}
	if err := (&State{Group: "g"}).Undeletable(true); err != nil {
		t.Errorf("a vacant group: %v", err)
	}
}

func TestHistoryIsInOrder(t *testing.T) {
	history := led().Record.History([]Past{{Term: 6}, {Term: 4}, {Term: 5}})
	for i, p := range history {
		if p.Term != baton.Term(4+i) {
			t.Errorf("term %d is at %d", p.Term, i)
		}
	}
	if len(history) != 4 || !history[3].EndedAt.IsZero() {
		t.Errorf("got %+v: want three that ended and the present one", history)
	}
}
