package lab

import (
	"slices"
	"testing"
	"time"

	"baton/fenced/fencedclient"
	"baton/internal/fleet"
)

// handedOver is a record of a leader that resigned: n1 at 100 ms, followed by n2.
func handedOver() *Record {
	r := goodRecord()
	r.Exits = nil
	r.Faults = []Fault{{Kind: KindResign, Node: "n1", Term: 1, Began: 100 * ms}}
	r.Events = slices.Insert(r.Events, 3,
		fleet.Event{At: 110 * ms, Node: "n1", Type: fleet.WriteAccepted, Term: 1, SentAt: 101 * ms},
		fleet.Event{At: 120 * ms, Node: "n1", Type: fleet.ActingEnded, Term: 1},
		fleet.Event{At: 125 * ms, Node: "n1", Type: fleet.Called, Reason: "release", Term: 1, SentAt: 121 * ms},
	)
	r.Events = append(r.Events, fleet.Event{At: 230 * ms, Node: "n2", Type: fleet.WriteAccepted, Term: 2, SentAt: 220 * ms})
	return r
}

func TestHandover(t *testing.T) {
	got := handedOver().Handovers()
	want := []Handover{{Kind: KindResign, From: 1, FromNode: "n1", ToNode: "n2", StoppedMS: 20, LastWriteMS: 1, GapMS: 80, WriteGapMS: 110, Wrote: true}}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestOpened(t *testing.T) {
	all := []Election{{Opened: "deadline"}, {Opened: "fault"}, {Opened: "fault"}}
	if got := Opened(all); got != "fault or deadline" {
		t.Errorf("got %s", got)
	}
}

// Checks of handovers and of work pass what is good and see what is not.
func TestMoreChecksCanFail(t *testing.T) {
	worked := func() *Record {
		r := goodRecord()
		r.Audit.Units = 10
		r.Work = &WorkRecord{Kinds: []WorkKind{{Resource: "jobs", Units: 10, Done: 10, Sum: 7, Expected: 7, Handoffs: []Handoff{{Term: 2, At: 4, Recorded: 4}}}}}
		return r
	}
	tests := []struct {
		name  string
		good  func() *Record
		check Check
		spoil func(r *Record)
	}{
		{"the next one begins too soon", handedOver, GapPositive, func(r *Record) { r.Events[4].At = 201 * ms }},
		{"the next one writes too soon", handedOver, GapPositive, func(r *Record) { r.Events[3].At = 221 * ms }},
		{"the next one begins too soon, and never writes", handedOver, GapPositive, func(r *Record) {
			r.Events[4].At = 201 * ms
			r.Events = r.Events[:len(r.Events)-1]
		}},
		{"the next one never writes", handedOver, HandedOver, func(r *Record) { r.Events = r.Events[:len(r.Events)-1] }},
		{"nobody was asked", handedOver, HandedOver, func(r *Record) { r.Faults = nil }},
		{"it stops late", handedOver, StoppedWithin(30 * time.Millisecond), func(r *Record) { r.Events[4].At = 140 * ms }},
		{"it leads again", handedOver, HandedOver, func(r *Record) { r.Events[6].Node = "n1" }},
		{"nobody follows", handedOver, HandedOver, func(r *Record) { r.Events = slices.Delete(r.Events, 6, 7) }},
		{"redone on record", worked, WorkOnce, func(r *Record) { r.Audit.Redone = 1 }},
		{"skipped on record", worked, WorkOnce, func(r *Record) { r.Audit.Skipped = 1 }},
		{"not all on record", worked, WorkOnce, func(r *Record) { r.Audit.Units = 9 }},
		{"a sum that is wrong", worked, WorkAddsUp, func(r *Record) { r.Work.Kinds[0].Sum = 8 }},
		{"work left", worked, WorkAddsUp, func(r *Record) { r.Work.Kinds[0].Done = 9 }},
		{"resumed elsewhere", worked, ResumedThere, func(r *Record) { r.Work.Kinds[0].Handoffs[0].At = 3 }},
		{"never resumed", worked, ResumedThere, func(r *Record) { r.Work.Kinds[0].Handoffs = nil }},
		{"slow", goodRecord, Within(200 * time.Millisecond), func(r *Record) { r.Writes[2].At += 20 * ms }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := tt.good()
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

// An election's time counts from when the group was open: from the release, or else from
// the end of the lease, or else, where there is none, from the fault.
func TestElectionCountsFromTheOpening(t *testing.T) {
	lease := fleet.Event{At: 60 * ms, Node: "n1", Type: fleet.Called, Reason: "renew", Term: 1, SentAt: 55 * ms, Remaining: 95 * ms}
	call := fleet.Event{At: 190 * ms, Node: "n2", Type: fleet.Called, Reason: "acquire", SentAt: 160 * ms}
	early := fleet.Event{At: 125 * ms, Node: "n2", Type: fleet.Called, Reason: "acquire", SentAt: 120 * ms}
	for _, tt := range []struct {
		name   string
		record *Record
		more   []fleet.Event
		want   Election
	}{
		{"trusted deadline", goodRecord(), []fleet.Event{{At: 90 * ms, Node: "n1", Type: fleet.WriteAccepted, Term: 1, Remaining: 70 * ms}},
			Election{Opened: "deadline", At: 160 * ms, LatencyMS: 40}},
		{"a deadline that nobody waited for", goodRecord(), []fleet.Event{{At: 90 * ms, Node: "n1", Type: fleet.WriteAccepted, Term: 1, Remaining: 170 * ms}},
			Election{Opened: "fault", At: 100 * ms, LatencyMS: 100}},
		{"fault", goodRecord(), nil, Election{Opened: "fault", At: 100 * ms, LatencyMS: 100}},
		{"deadline", goodRecord(), []fleet.Event{lease, call}, Election{Opened: "deadline", At: 150 * ms, LatencyMS: 50, CampaignMS: 40, Calls: 1}},
		{"asked before and again", goodRecord(), []fleet.Event{lease, early, call}, Election{Opened: "deadline", At: 150 * ms, LatencyMS: 50, CampaignMS: 40, Calls: 2}},
		{"asked before only", goodRecord(), []fleet.Event{lease, early}, Election{Opened: "deadline", At: 150 * ms, LatencyMS: 50, CampaignMS: 80, Calls: 1}},
		{"release", handedOver(), []fleet.Event{lease, call}, Election{Opened: "release", At: 121 * ms, LatencyMS: 79, CampaignMS: 40, Calls: 2}},
	} {
		tt.record.Events = append(tt.record.Events, tt.more...)
		slices.SortStableFunc(tt.record.Events, func(a, b fleet.Event) int { return int(a.At - b.At) })
		tt.want.Term, tt.want.Node = 2, "n2"
		if got := tt.record.Elections(); !slices.Equal(got, []Election{tt.want}) {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestTurns(t *testing.T) {
	r := &Record{Skew: map[string]time.Duration{"n1": 0, "n2": 0, "n3": 0}}
	for i, node := range []string{"n1", "n2", "n2", "n1"} {
		r.Events = append(r.Events, fleet.Event{At: int64(i), Node: node, Type: fleet.Elected})
	}
	led, drought := r.Turns()
	if led["n1"] != 2 || led["n2"] != 2 || led["n3"] != 0 || drought["n1"] != 2 || drought["n2"] != 1 || drought["n3"] != 4 {
		t.Errorf("led %v, without a turn for %v", led, drought)
	}
}

// What a leader had done beyond the last checkpoint is done again, and no more.
func TestHandoffOfWork(t *testing.T) {
	r := &Record{
		Writes: []Write{
			{Resource: "jobs", Term: 1, Covers: &fencedclient.Units{First: 1, Last: 5}},
			{Resource: "jobs", Term: 1, Covers: &fencedclient.Units{First: 6, Last: 8}},
			{Resource: "segments", Term: 1, Covers: &fencedclient.Units{First: 1, Last: 99}},
		},
		Events: []fleet.Event{
			{Type: fleet.Resumed, Node: "n1", Resource: "jobs", Term: 1, Units: &fencedclient.Units{First: 1}},
			{Type: fleet.Worked, Node: "n1", Resource: "jobs", Term: 1, Units: &fencedclient.Units{First: 9, Last: 11}},
			{Type: fleet.Resumed, Node: "n2", Resource: "jobs", Term: 2, Units: &fencedclient.Units{First: 1, Last: 8}, Nanos: 2 * ms},
		},
	}
	want := []Handoff{{Term: 1, Node: "n1"}, {Term: 2, Node: "n2", At: 8, Recorded: 8, Redone: 3, TookMS: 2}}
	if got := r.handoffs("jobs"); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The knee is where a month is darkest for the shortest time.
func TestKnee(t *testing.T) {
	arm := func(ttl, failover int64, unseated bool) ArmResult {
		return ArmResult{
			TTLMS: ttl,
			Faults: []Fault{
				{Kind: KindFreeze, Ended: 300 * ms}, {Kind: KindFreeze, Ended: 700 * ms, Unseated: unseated}, {Kind: KindKill, Unseated: true},
			},
			Failovers: []Failover{{Fault: KindFreeze, GapMS: 500}, {Fault: KindKill, GapMS: float64(failover)}},
		}
	}
	points := SweepPoints(Result{Arms: []ArmResult{arm(1000, 900, true), arm(3000, 2800, false), arm(10000, 9500, false)}})
	want := SweepPoint{TTL: time.Second, Failover: 900 * time.Millisecond, Stumbles: 2, False: 1, FalseGap: 500 * time.Millisecond, Longest: 300 * time.Millisecond}
	if points[0] != want {
		t.Errorf("got %+v, want %+v", points[0], want)
	}
	if knee, ok := Knee(points); !ok || knee.TTL != 3*time.Second || knee.Dark() != 11200*time.Millisecond {
		t.Errorf("the knee is %+v", knee)
	}
	if _, ok := Knee(points[:1]); ok {
		t.Error("one point has a knee")
	}
}

func TestRates(t *testing.T) {
	r := &Record{}
	for i := range int64(25) { // 10 in each of two seconds, and the begin of a third
		r.Answers = append(r.Answers, Answer{Sent: i * 100 * ms, Received: i*100*ms + 2*ms})
	}
	got := r.Rates()
	if !slices.Equal(got.Seconds, []int{10, 10}) || got.Mean != 10 || got.Median != 10 || got.Least != 10 || got.P99MS != 2 {
		t.Errorf("got %+v", got)
	}
	if empty := (&Record{}).Rates(); empty.Seconds != nil {
		t.Errorf("of nothing: %+v", empty)
	}
}

func TestTrafficTally(t *testing.T) {
	s := int64(time.Second)
	got := tallyTraffic([]Traffic{{0, 0}, {s, 10}, {2 * s, 110}, {4 * s, 120}})
	if got.Messages != 120 || got.PerSecond != 30 || got.Peak != 100 {
		t.Errorf("got %+v", got)
	}
}

func TestPercentile(t *testing.T) {
	all := []float64{5, 1, 4, 2, 3}
	for percent, want := range map[float64]float64{1: 1, 50: 3, 80: 4, 99: 5, 100: 5} {
		if got := Percentile(all, percent); got != want {
			t.Errorf("p%v is %v, want %v", percent, got, want)
		}
	}
}
