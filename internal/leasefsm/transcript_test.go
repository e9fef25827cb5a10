package leasefsm

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"baton"
)

// TestTranscripts plays the files under testdata: commands to a record and
// questions to a set of deadlines, with what they answered. Stamps and
// clock readings are in ms. Every command travels through its encoding, as it would in a log.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		s := &script{record: NewRecord(), deadlines: NewDeadlines()}
		datadriven.RunTest(t, path, s.play)
	})
}

type script struct {
	record    *Record
	deadlines *Deadlines
}

func (s *script) play(t *testing.T, td *datadriven.TestData) string {
	arg := func(key string) string {
		if !td.HasArg(key) {
			return ""
		}
		var v string
		td.ScanArgs(t, key, &v)
		return v
	}
	number := func(key string) int64 {
		if !td.HasArg(key) {
			return 0
		}
		v, err := strconv.ParseInt(arg(key), 10, 64)
		if err != nil {
			td.Fatalf(t, "%s: %v", key, err)
		}
		return v
	}
	duration := func(key string) time.Duration {
		if !td.HasArg(key) {
			return 0
		}
		v, err := time.ParseDuration(arg(key))
		if err != nil {
			td.Fatalf(t, "%s: %v", key, err)
		}
		return v
	}
	term := func(key string) baton.Term {
		if arg(key) == "max" {
			return baton.MaxTerm
		}
		return baton.Term(number(key))
	}
	candidate := func() baton.Candidate {
		c := baton.Candidate{NodeID: arg("node"), InstanceID: arg("instance")}
		if zone := arg("zone"); zone != "" {
			c.Metadata = map[string]string{"zone": zone}
		}
		return c
	}
	leaseID := func() baton.LeaseID {
		return baton.LeaseID{Group: arg("group"), NodeID: arg("node"), InstanceID: arg("instance"), Term: term("term")}
	}
	ending := func(reason baton.Reason) baton.Ending {
		return baton.Ending{Reason: reason, Note: arg("note"), Successor: arg("successor"), Immediate: td.HasArg("immediate")}
	}
	now := time.Duration(number("now")) * time.Millisecond

	switch td.Cmd {
	// Commands to the record.
	case "acquire":
		return s.apply(t, Acquire{Group: arg("group"), Candidate: candidate(), TTL: duration("ttl"), Stamp: number("at")})
	case "extend":
		return s.apply(t, Extend{ID: leaseID(), TTL: duration("ttl")})
	case "release":
		return s.apply(t, Release{ID: leaseID(), Stamp: number("at")})
	case "expire":
		return s.apply(t, Expire{Group: arg("group"), Term: term("term"), Stamp: number("at")})
	case "step-down":
		return s.apply(t, End{Group: arg("group"), Term: term("term"), Ending: ending(baton.SteppedDown), Stamp: number("at")})
	case "transfer":
		return s.apply(t, End{Group: arg("group"), Term: term("term"), Ending: ending(baton.Transferred), Stamp: number("at")})
	case "put":
		g := baton.Group{ID: arg("group"), Policy: baton.Policy{MinTTL: duration("min"), MaxTTL: duration("max")}, Version: uint64(number("version"))}
		if nodes := arg("allowed"); nodes != "" {
			g.AllowedNodes = strings.Split(nodes, "+")
		}
		return s.apply(t, PutGroup{Group: g})
	case "delete":
		return s.apply(t, DeleteGroup{ID: arg("group")})
	case "raise-floor":
		return s.apply(t, RaiseFloor{Term: term("term")})

	// Questions to the record.
	case "get":
		return describeLease(s.record.Get(arg("group")))
	case "state":
		return describeEvent(s.record.State(arg("group")))
	case "successor":
		return fmt.Sprintf("%q", s.record.Successor(arg("group")))
	case "history":
		return describeHistory(s.record.History(arg("group")))
	case "groups":
		var b strings.Builder
		for _, g := range s.record.Groups() {
			fmt.Fprintln(&b, describeGroup(g))
		}
		return b.String()
	case "restart":
		restored, err := Restore(s.record.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		s.record = restored
		return "restored from a snapshot"

	// Deadlines.
	case "arm":
		s.deadlines.Arm(arg("group"), term("term"), duration("ttl"), now)
		return "ok"
	case "renew":
		left, err := s.deadlines.Renew(arg("group"), term("term"), duration("extend"), now)
		if err != nil {
			return "refused: " + err.Error()
		}
		return fmt.Sprintf("%v left", left)
	case "remaining":
		return fmt.Sprint(s.deadlines.Remaining(arg("group"), term("term"), now))
	case "close":
		return map[bool]string{true: "closed", false: "it was not open"}[s.deadlines.Close(arg("group"), term("term"))]
	case "reopen":
		s.deadlines.Reopen(arg("group"), term("term"))
		return "ok"
	case "drop":
		s.deadlines.Drop(arg("group"), term("term"))
		return "ok"
	case "due":
		var b strings.Builder
		for _, l := range s.deadlines.Due(now) {
			fmt.Fprintf(&b, "%s term %d\n", l.Group, l.Term)
		}
		if b.Len() == 0 {
			return "none"
		}
		return b.String()
	case "next":
		at, ok := s.deadlines.Next()
		if !ok {
			return "none"
		}
		return fmt.Sprintf("at %d", at.Milliseconds())
	}
	td.Fatalf(t, "no such command")
	return ""
}

func (s *script) apply(t *testing.T, c Command) string {
	t.Helper()
	decoded, err := DecodeCommand(AppendCommand(nil, c))
	if err != nil {
		t.Fatalf("%#v does not survive its encoding: %v", c, err)
	}
	before := s.record.Hash()
	result := s.record.Apply(decoded)
	if result.Err != nil {
		if s.record.Hash() != before {
			t.Fatalf("%#v was refused and changed the record", c)
		}
		return describeRefusal(result.Err)
	}
	var lines []string
	switch {
	case result.Granted:
		lines = append(lines, "granted: "+describeLease(result.Lease))
	case result.Lease.Group != "":
		lines = append(lines, describeLease(result.Lease))
	case result.Group.ID != "":
		lines = append(lines, describeGroup(result.Group))
	default:
		lines = append(lines, "ok")
	}
	for _, e := range result.Events {
		lines = append(lines, "event: "+describeEvent(e))
	}
	return strings.Join(lines, "\n")
}

func describeRefusal(err error) string {
	kind, ok := baton.KindOf(err)
	if !ok {
		return "no kind of error: " + err.Error()
	}
	return fmt.Sprintf("%s: %v", kind.Code, err)
}

func describeLease(l baton.Lease) string {
	if !l.Held() {
		return fmt.Sprintf("%s is vacant, last term %d", l.Group, l.Term)
	}
	s := fmt.Sprintf("%s term %d is held by %s (%s) for %v", l.Group, l.Term, l.NodeID, l.InstanceID, l.TTL)
	for _, k := range slices.Sorted(maps.Keys(l.Metadata)) {
		s += fmt.Sprintf(", %s=%s", k, l.Metadata[k])
	}
	if e := l.Ending; e != nil {
		s += fmt.Sprintf(", ending: %s", e.Reason)
		if e.Successor != "" {
			s += " to " + e.Successor
		}
		if e.Note != "" {
			s += fmt.Sprintf(" %q", e.Note)
		}
	}
	return s
}

func describeEvent(e baton.Event) string {
	s := fmt.Sprintf("%s %s term %d", e.Type, e.Group, e.Term)
	if e.NodeID != "" {
		s += fmt.Sprintf(" leader %s (%s)", e.NodeID, e.InstanceID)
	}
	if e.PreviousNodeID != "" {
		s += " previous " + e.PreviousNodeID
	}
	if e.Reason != "" {
		s += " " + string(e.Reason)
	}
	if e.Time.IsZero() {
		return s
	}
	return fmt.Sprintf("%s at %d", s, e.Time.UnixMilli())
}

func describeHistory(all []baton.PastTerm) string {
	if len(all) == 0 {
		return "nobody ever led"
	}
	var b strings.Builder
	for _, p := range all {
		fmt.Fprintf(&b, "term %d %s (%s) from %d", p.Term, p.NodeID, p.InstanceID, p.ElectedAt.UnixMilli())
		if p.EndedAt.IsZero() {
			b.WriteString(", leads")
		} else {
			fmt.Fprintf(&b, " to %d %s", p.EndedAt.UnixMilli(), p.Reason)
		}
		if p.Note != "" {
			fmt.Fprintf(&b, " %q", p.Note)
		}
		fmt.Fprintf(&b, ", gap %v\n", p.Gap)
	}
	return b.String()
}

func describeGroup(g baton.Group) string {
	if g.Version == 0 {
		return g.ID + " exists by use"
	}
	return fmt.Sprintf("%s version %d, ttl %v to %v, allowed %v", g.ID, g.Version, g.Policy.MinTTL, g.Policy.MaxTTL, g.AllowedNodes)
}
