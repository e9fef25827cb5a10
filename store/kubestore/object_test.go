package kubestore

import (
	"encoding/json"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"baton"
	"baton/internal/observed"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 500e6, time.UTC)

// granted is a Lease that ours holds in term 5, after it had seen three transitions.
func granted(t *testing.T) (*coordinationv1.Lease, stored) {
	t.Helper()
	l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{LeaseTransitions: ptr[int32](3)}}
	next := observed.Record{Term: 5, Ended: 4, Holder: &observed.Holder{
		Term: 5, Node: "node", Instance: "i-1", TTL: 9500 * time.Millisecond, Beat: "first", Elected: noon.UnixMilli(),
	}}
	return l, rewrite(t, l, stored{}, next, noon)
}

func rewrite(t *testing.T, l *coordinationv1.Lease, before stored, next observed.Record, now time.Time) stored {
	t.Helper()
	if err := write(l, before, next, now); err != nil {
		t.Fatal(err)
	}
	s, ok, err := readStored(l)
	if err != nil || !ok {
		t.Fatalf("what was written reads back as %t, %v", ok, err)
	}
	return s
}

// raw is all that a candidate of client-go's looks at: it takes a Lease for
// unchanged as long as this is the same.
func raw(t *testing.T, l *coordinationv1.Lease) string {
	t.Helper()
	text, err := json.Marshal(resourcelock.LeaseSpecToLeaderElectionRecord(&l.Spec))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestOursInTheirWords(t *testing.T) {
	l, s := granted(t)
	r := resourcelock.LeaseSpecToLeaderElectionRecord(&l.Spec)
	if r.HolderIdentity != "node/i-1" || r.LeaseDurationSeconds != 10 || r.LeaderTransitions != 4 ||
		!r.AcquireTime.Time.Equal(noon) || !r.RenewTime.Time.Equal(noon) {
		t.Errorf("a grant of 9.5 s at noon reads %+v", r)
	}
	if got := s.state(l); got.Holder == nil || got.Holder.Term != 5 || got.Holder.Instance != "i-1" {
		t.Errorf("it reads back as %+v", got)
	}
	s = rewrite(t, l, s, s.Record.Expire(noon.UnixMilli()), noon)
	r = resourcelock.LeaseSpecToLeaderElectionRecord(&l.Spec)
	if r.HolderIdentity != "" || r.LeaseDurationSeconds != 1 || r.LeaderTransitions != 4 {
		t.Errorf("an end reads %+v: want nobody, with the transitions that there were", r)
	}
	if got := s.state(l); got.Holder != nil || got.Last.Term != 5 {
		t.Errorf("it reads back as %+v", got)
	}
}

// A renewal that a candidate of client-go's overlooks would be cut short, and
// of times it sees whole seconds.
func TestTheySeeEveryRenewal(t *testing.T) {
	l, s := granted(t)
	seen := map[string]bool{raw(t, l): true}
	for i, now := range []time.Time{
		noon.Add(100 * time.Millisecond), noon.Add(200 * time.Millisecond), // the same second
		noon.Add(-time.Hour), // a clock that is behind, or was set back
		noon.Add(time.Minute), noon.Add(time.Minute), noon,
	} {
		next := s.Record
		h := *next.Holder
		h.Beat = time.Duration(i).String()
		next.Holder = &h
		s = rewrite(t, l, s, next, now)
		if seen[raw(t, l)] {
			t.Errorf("renewal %d leaves the Lease as it was for them: %s", i, raw(t, l))
		}
		seen[raw(t, l)] = true
	}
	// The beginning of an ending is no renewal.
	before := raw(t, l)
	next := s.Record
	h := *next.Holder
	h.Ending = &observed.Ending{Reason: baton.SteppedDown}
	next.Holder = &h
	rewrite(t, l, s, next, noon.Add(time.Hour))
	if got := raw(t, l); got != before {
		t.Errorf("an ending that began made %s of %s", got, before)
	}
}

func TestTheirsInOurWords(t *testing.T) {
	take := func(l *coordinationv1.Lease, holder string, transitions int32) {
		l.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&resourcelock.LeaderElectionRecord{
			HolderIdentity: holder, LeaseDurationSeconds: 15, LeaderTransitions: int(transitions),
			AcquireTime: metav1.NewTime(noon.Add(time.Minute)), RenewTime: metav1.NewTime(noon.Add(time.Minute)),
		})
	}
	l, s := granted(t)
	l.ResourceVersion = "77"
	take(l, "theirs", 5)
	r := s.state(l)
	if h := r.Holder; h == nil || h.Term != 0 || h.Node != "theirs" || h.TTL != 15*time.Second || h.Beat != "77" {
		t.Errorf("a Lease that they took from us reads %+v", h)
	}
	if r.Last == nil || r.Last.Term != 5 || r.Last.Reason != baton.Expired || r.Ended != 5 || r.Term != 5 {
		t.Errorf("and ours before it %+v in %+v", r.Last, r)
	}
	take(l, "", 5)
	if r := s.state(l); r.Holder != nil || r.Last == nil || r.Last.Term != 5 {
		t.Errorf("a Lease that they took from us and gave back reads %+v", r)
	}
	// What ReleaseOnCancel does to a successor: it keeps the transitions that it finds.
	take(l, "", 4)
	if r := s.state(l); r.Holder == nil || r.Holder.Term != 5 {
		t.Errorf("a Lease of ours that they cleared without having held it reads %+v: want it still held", r)
	}
	never := &coordinationv1.Lease{}
	never.Spec.HolderIdentity = ptr("kubectl")
	if r := (stored{}).state(never); r.Holder == nil || r.Holder.TTL != time.Second {
		t.Errorf("a Lease with a holder and nothing else reads %+v", r)
	}
}

func TestObjectNames(t *testing.T) {
	for group, itself := range map[string]bool{
		"kube-scheduler": true, "a.b-c": true, "7": true,
		"Upper": false, "under_score": false, "co:lon": false, "-x": false, "x-": false, "x.": false, "a..b": false,
		hashPrefix + "x": false,
	} {
		name := objectName(group)
		if (name == group) != itself {
			t.Errorf("group %q is kept as %q", group, name)
		}
		if other := objectName(name); !itself && other == name {
			t.Errorf("groups %q and %q are kept as one", group, name)
		}
	}
}

func TestVersions(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"major":"1","minor":"16"}`: false, `{"major":"0","minor":"99"}`: false, `{"major":"1","minor":"16+"}`: false,
		`{"major":"1","minor":"17"}`: true, `{"major":"1","minor":"36+"}`: true, `{"major":"2","minor":"0"}`: true,
		`{"major":"","minor":""}`: true, `<html>`: false,
	} {
		if err := checkVersion([]byte(text)); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestSightings(t *testing.T) {
	for _, c := range []struct {
		seen    sighting
		version string
		want    bool
	}{
		{sighting{}, "", false}, {sighting{}, "5", false},
		{sighting{version: "5"}, "5", false}, {sighting{version: "5"}, "12", false}, {sighting{version: "12"}, "5", true},
		{sighting{version: "5"}, "", true}, {sighting{version: "5", gone: true}, "", false}, {sighting{version: "12", gone: true}, "5", true},
		{sighting{version: "x"}, "y", true}, {sighting{version: "x"}, "x", false},
	} {
		if got := c.seen.after(c.version); got != c.want {
			t.Errorf("%+v after %q: %t", c.seen, c.version, got)
		}
	}
}

func TestSuccessorsGoFirst(t *testing.T) {
	ended := func(ago time.Duration) observed.Record {
		return observed.Record{Successor: "heir", Last: &observed.Past{Ended: time.Now().Add(-ago).UnixMilli()}}
	}
	for _, c := range []struct {
		name   string
		vacant observed.Record
		node   string
		kept   bool
	}{
		{"the heir", ended(0), "heir", false},
		{"another", ended(0), "other", true},
		{"another, by a clock that is behind", ended(-time.Hour), "other", true},
		{"another, later", ended(time.Hour), "other", false},
		{"anybody without an heir", observed.Record{Last: &observed.Past{Ended: time.Now().UnixMilli()}}, "other", false},
	} {
		left, err := turn(t.Context(), "g", c.vacant, baton.Candidate{NodeID: c.node})
		if err != nil || (left > 0) != c.kept || left > turnLasts {
			t.Errorf("%s waits %v, %v", c.name, left, err)
		}
	}
}
