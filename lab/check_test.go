package lab

import (
	"slices"
	"testing"
	"time"

	"baton"
	"baton/fenced/fencedclient"
	"baton/internal/fleet"
)

const ms = int64(time.Millisecond)

// goodRecord is a kill and a failover without any fault: n1 leads with term 1
// until it is killed at 100 ms, n2 with term 2 from 200 ms on.
func goodRecord() *Record {
	r := &Record{
		Arm: Arm{TTL: 100 * time.Millisecond}, Began: 1, Ended: 300 * ms,
		Events: []fleet.Event{
			{At: 10 * ms, Node: "n1", Type: fleet.Elected, Term: 1, Instance: "i1"},
			{At: 10 * ms, Node: "n1", Type: fleet.ActingBegan, Term: 1, Instance: "i1"},
			{At: 21 * ms, Node: "n1", Type: fleet.WriteAccepted, Term: 1, Instance: "i1", Resource: "sequence", Seq: 3, Count: 3},
			{At: 200 * ms, Node: "n2", Type: fleet.Elected, Term: 2, Instance: "i2"},
			{At: 200 * ms, Node: "n2", Type: fleet.ActingBegan, Term: 2, Instance: "i2"},
			{At: 290 * ms, Node: "n2", Type: fleet.ActingEnded, Term: 2, Instance: "i2"},
		},
		Exits:  []Exit{{Node: "n1", At: 101 * ms, Killed: true}},
		Faults: []Fault{{Kind: KindKill, Node: "n1", Term: 1, Began: 100 * ms, LeaseEnd: 190 * ms}},
		Writes: []Write{
			{ID: 1, Resource: "ticks", Term: 1, Instance: "i1", Seq: 1, Count: 1, At: 15 * ms},
			{ID: 2, Resource: "sequence", Term: 1, Instance: "i1", Seq: 3, Count: 3, At: 20 * ms},
			{ID: 3, Resource: "ticks", Term: 2, Instance: "i2", Seq: 2, Count: 1, At: 210 * ms},
			{ID: 4, Resource: "sequence", Term: 2, Instance: "i2", Seq: 5, Count: 2, At: 220 * ms},
		},
		Audit:   fencedclient.Audit{OK: true, Writes: 4},
		Skew:    map[string]time.Duration{"n1": -200 * time.Millisecond, "n2": 200 * time.Millisecond},
		Answers: []Answer{{Sent: 19 * ms, Received: 22 * ms, Token: 1, Seq: 2}, {Sent: 210 * ms, Received: 221 * ms, Token: 2, Seq: 4}},
	}
	for i, e := range r.Events {
		r.Events[i].WallMS = (e.At + int64(r.Skew[e.Node])) / ms
	}
	return r
}

// late is a write of term 1 after those of term 2.
var late = Write{ID: 5, Resource: "sequence", Term: 1, Instance: "i1", Seq: 4, Count: 1, At: 230 * ms}

// A leader that lingers without fencing writes among those who follow: they followed all the same.
func TestFailedOverPastLingeringLeaders(t *testing.T) {
	r := goodRecord()
	r.Faults = append(r.Faults, Fault{Kind: KindCut, Node: "n2", Term: 2, Began: 225 * ms})
	r.Writes = append(r.Writes, late)
	if ok, saw := FailedOver.Judge(r); ok {
		t.Errorf("passes although nobody followed the second: %s", saw)
	}
	r.Writes = append(r.Writes, Write{ID: 6, Resource: "sequence", Term: 3, Instance: "i3", Seq: 6, Count: 1, At: 240 * ms})
	if ok, saw := FailedOver.Judge(r); !ok {
		t.Errorf("fails although each was followed: %s", saw)
	}
}

// Every check passes a good record, and fails one that is bad in its way.
func TestChecksCanFail(t *testing.T) {
	tests := []struct {
		name  string
		check Check
		spoil func(r *Record)
	}{
		{"the audit finds a number twice", Audited, func(r *Record) { r.Audit.Duplicates = 1 }},
		{"the audit finds a step down", Audited, func(r *Record) { r.Audit.SeqsFell = 1 }},
		{"the audit is not OK", Audited, func(r *Record) { r.Audit.OK = false }},
		{"a late write of the past", Recounted, func(r *Record) { r.Writes = append(r.Writes, late) }},
		{"a number twice", Recounted, func(r *Record) { r.Writes[3].Seq = 4 }},
		{"a term held by two", Recounted, func(r *Record) { r.Writes[3].Instance = "i3" }},
		{"two write by turns", OneByEffect, func(r *Record) { r.Writes = append(r.Writes, late) }},
		{"acts while the next does", OneByBelief, func(r *Record) { r.Exits[0].At = 201 * ms }},
		{"no end is known", OneByBelief, func(r *Record) { r.Exits = nil }},
		{"killed while the next acts", OneByBelief, func(r *Record) { r.Exits[0].At, r.Faults[0].Done = 300*ms, 201*ms }},
		{"writes on although it knows that its lease is over", OneByBelief, func(r *Record) {
			r.Exits = nil
			r.Events = append(r.Events,
				fleet.Event{At: 190 * ms, Node: "n1", Type: fleet.Overrun, Term: 1, Instance: "i1"},
				fleet.Event{At: 250 * ms, Node: "n1", Type: fleet.ActingEnded, Term: 1, Instance: "i1", SentAt: 201 * ms})
		}},
		{"trusts its lease for too long, and overruns that", OneByBelief, func(r *Record) {
			r.Exits = nil
			r.Events = append(r.Events,
				fleet.Event{At: 240 * ms, Node: "n1", Type: fleet.Overrun, Term: 1, Instance: "i1", Nanos: 35 * ms},
				fleet.Event{At: 250 * ms, Node: "n1", Type: fleet.ActingEnded, Term: 1, Instance: "i1", SentAt: 90 * ms})
		}},
		{"overruns its lease, and never says that its work has ended", OneByBelief, func(r *Record) {
			r.Exits[0] = Exit{Node: "n1", At: 250 * ms}
			r.Events = append(r.Events, fleet.Event{At: 190 * ms, Node: "n1", Type: fleet.Overrun, Term: 1, Instance: "i1"})
		}},
		{"a stale write got in", AllStaleRefused, func(r *Record) { r.Writes = append(r.Writes, late) }},
		{"a refusal that the resource has not logged", AllStaleRefused, func(r *Record) {
			r.Events = append(r.Events, fleet.Event{Type: fleet.WriteRefused, Reason: "stale", Term: 1, Instance: "i1", Resource: "ticks"})
		}},
		{"one refusal of two that the resource has not logged", AllStaleRefused, func(r *Record) {
			refused := fleet.Event{Type: fleet.WriteRefused, Reason: "stale", Term: 1, Instance: "i1", Resource: "ticks"}
			r.Events = append(r.Events, refused, refused)
			r.Refused = append(r.Refused, Refusal{Reason: "stale", Term: 1, Token: "g/1/i1", HeldBy: "g/2/i2", Resource: "ticks"})
		}},
		{"refusals of writes that nobody sent", AllStaleRefused, func(r *Record) {
			for range 2 { // one may be of a node that was killed before it heard of it
				r.Refused = append(r.Refused, Refusal{Reason: "stale", Term: 1, Token: "g/1/i1", HeldBy: "g/2/i2", Resource: "ticks"})
			}
		}},
		{"a refusal without its token", AllStaleRefused, func(r *Record) {
			r.Refused = append(r.Refused, Refusal{Reason: "stale", Term: 1, Resource: "ticks"})
		}},
		{"a clock that is right", Skewed, func(r *Record) {
			for i, e := range r.Events[:3] {
				r.Events[i].WallMS = e.At / ms
			}
		}},
		{"all clocks are off by the same", Skewed, func(r *Record) { delete(r.Skew, "n2") }},
		{"a stale write was sent", NoneStale, func(r *Record) { r.Refused = append(r.Refused, Refusal{Reason: "stale"}) }},
		{"a stale write was sent after the lease", NoneStale, func(r *Record) { sendStale(r, 191*ms, 240*ms) }},
		{"a write was stale while its lease had time left", NoneStale, func(r *Record) { sendStale(r, 100*ms, 110*ms) }},
		{"two arrived stale, one was sent in time", NoneStale, func(r *Record) {
			sendStale(r, 189*ms, 240*ms)
			r.Refused = append(r.Refused, r.Refused[0])
		}},
		{"one is sent in time and fails, one after the lease is stale", NoneStale, func(r *Record) {
			sendStale(r, 191*ms, 240*ms)
			r.Events = append(r.Events, fleet.Event{At: 100 * ms, Node: "n1", Type: fleet.WriteFailed, Term: 1, Instance: "i1", Resource: "ticks", SentAt: 90 * ms})
		}},
		{"two clients got one number", NumbersOnce, func(r *Record) { r.Answers[1].Seq = 2 }},
		{"a number lower than one before", NumbersOnce, func(r *Record) { r.Answers[1].Seq = 1 }},
		{"an accepted write is gone", NothingLost, func(r *Record) { r.Writes = slices.Delete(r.Writes, 1, 2) }},
		{"a number under another token", NothingLost, func(r *Record) { r.Answers[1].Token = 1 }},
		{"nobody took over", FailedOver, func(r *Record) { r.Writes = r.Writes[:2] }},
		{"nothing was done", FailedOver, func(r *Record) { r.Faults = nil }},
		{"the next one leads before the lease has ended", NotEarly, func(r *Record) { r.Faults[0].LeaseEnd = 300 * ms }},
		{"no lease is known to have run out", Expired, func(r *Record) { r.Faults[0].LeaseEnd = 0 }},
		{"a node crashed", OnlyKilled, func(r *Record) { r.Exits[0].Killed = false }},
		{"late", Beyond(50 * time.Millisecond), func(r *Record) { r.Writes[2].At += 60 * ms }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := goodRecord()
			if ok, saw := tt.check.Judge(r); !ok {
				t.Fatalf("a good record fails: %s", saw)
			}
			tt.spoil(r)
			if ok, saw := tt.check.Judge(r); ok {
				t.Errorf("a bad record passes: %s", saw)
			}
		})
	}
}

// What experiments are to show is not there by itself.
func TestShownNeedsShowing(t *testing.T) {
	tests := []struct {
		name  string
		check Check
		show  func(r *Record)
	}{
		{"two act", TwoByBelief, func(r *Record) { r.Exits[0].At = 250 * ms }},
		{"a stale write is refused", StaleSent(1), func(r *Record) {
			r.Refused = []Refusal{{Reason: "stale", Token: "g/1/i1", Term: 1, Resource: "ticks"}}
		}},
		{"damage", Damaged, func(r *Record) { r.Writes = append(r.Writes, late) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := goodRecord()
			if ok, saw := tt.check.Judge(r); ok {
				t.Fatalf("shown by nothing: %s", saw)
			}
			tt.show(r)
			if ok, saw := tt.check.Judge(r); !ok {
				t.Errorf("not seen: %s", saw)
			}
		})
	}
}

// A refusal for another reason is no stale write.
func TestStaleIsByReason(t *testing.T) {
	r := goodRecord()
	r.Refused = []Refusal{{Reason: "repeat"}, {Reason: "stale"}}
	if got := len(r.Stale()); got != 1 {
		t.Errorf("%d stale writes, want 1", got)
	}
}

// sendStale has n1, whose lease ends at 190 ms, send a write that is refused as stale.
func sendStale(r *Record, sent, refused int64) {
	r.Events = append(r.Events,
		fleet.Event{At: 92 * ms, Node: "n1", Type: fleet.Called, Term: 1, Instance: "i1", SentAt: 90 * ms, Remaining: 100 * ms},
		fleet.Event{At: refused + ms, Node: "n1", Type: fleet.WriteRefused, Reason: "stale", Term: 1, Instance: "i1", Resource: "ticks", SentAt: sent})
	r.Refused = append(r.Refused, Refusal{At: refused, Reason: "stale", Term: 1, Token: "g/1/i1", HeldBy: "g/2/i2", Resource: "ticks"})
}

// What the machine is late with is not held against the nodes.
func TestHeldUpIsNoFault(t *testing.T) {
	for name, tt := range map[string]struct {
		check  Check
		happen func(r *Record)
	}{
		"a process is killed in time and gone late": {OneByBelief, func(r *Record) {
			r.Faults[0].Done, r.Exits[0].At = 102*ms, 250*ms
		}},
		"work stands still when it is to stop": {OneByBelief, func(r *Record) {
			r.Exits = nil
			r.Events = append(r.Events,
				fleet.Event{At: 240 * ms, Node: "n1", Type: fleet.Overrun, Term: 1, Instance: "i1", Nanos: 50 * ms},
				fleet.Event{At: 250 * ms, Node: "n1", Type: fleet.ActingEnded, Term: 1, Instance: "i1", SentAt: 180 * ms})
		}},
		"a write is sent in time and arrives late": {NoneStale, func(r *Record) { sendStale(r, 189*ms, 240*ms) }},
	} {
		t.Run(name, func(t *testing.T) {
			r := goodRecord()
			tt.happen(r)
			if ok, saw := tt.check.Judge(r); !ok {
				t.Error(saw)
			}
		})
	}
}

func TestBeliefLeavesOutPauses(t *testing.T) {
	r := goodRecord()
	r.Exits = nil
	r.Faults = []Fault{{Kind: KindFreeze, Node: "n1", Term: 1, Began: 100 * ms, Ended: 205 * ms}}
	r.Events = append(r.Events, fleet.Event{At: 208 * ms, Node: "n1", Type: fleet.ActingEnded, Term: 1, Instance: "i1"})
	want := []Interval{{"n1", 1, 10 * ms, 100 * ms}, {"n2", 2, 200 * ms, 290 * ms}, {"n1", 1, 205 * ms, 208 * ms}}
	if got := r.Belief(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := total(overlaps(r.Belief())); got != 3*time.Millisecond {
		t.Errorf("they overlap for %v, want the 3 ms after the pause", got)
	}
}

func TestFailoverIsByEffect(t *testing.T) {
	got := goodRecord().Failovers()
	want := []Failover{{From: 1, To: 2, FromNode: "n1", ToNode: "n2", Fault: KindKill, TTLMS: 100, GapMS: 190, AfterFaultMS: 110, BeyondLeaseMS: 20}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A fault belongs to the failover from the leader that it struck, also if that one
// never wrote, and never to one that ended with the struck leader's first write.
func TestFaultOfAFailover(t *testing.T) {
	r := goodRecord()
	r.Faults = append(r.Faults, Fault{Kind: KindFreeze, Term: 2, Began: 205 * ms, LeaseEnd: 999 * ms})
	if got := r.Failovers()[0]; got.Fault != KindKill || got.BeyondLeaseMS != 20 {
		t.Errorf("got %+v", got)
	}
	r.Faults = []Fault{{Kind: KindKill, Term: 9, Began: 150 * ms}}
	if got := r.Failovers()[0]; got.Fault != KindKill || got.AfterFaultMS != 60 {
		t.Errorf("struck before it wrote: %+v", got)
	}
	r.Faults = []Fault{{Kind: KindKill, Term: 2, Began: 209 * ms}}
	if got := r.Failovers()[0]; got.Fault != "" {
		t.Errorf("struck at its first write: %+v", got)
	}
}

func TestStepsCount(t *testing.T) {
	got := steps([]Interval{{From: 1, To: 5}, {From: 3, To: 8}})
	want := []Step{{1, 1}, {3, 2}, {5, 1}, {8, 0}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTermOfToken(t *testing.T) {
	token := baton.Token{Group: "g", Term: 1 << 50, InstanceID: "i"}
	if got, err := termOf(token.String()); err != nil || got != token.Term {
		t.Errorf("got %d, %v", got, err)
	}
	for _, bad := range []string{"", "g/1", "g/x/i"} {
		if _, err := termOf(bad); err == nil {
			t.Errorf("%q is taken for a token", bad)
		}
	}
}
