package history

import (
	"strings"
	"testing"
	"time"

	"baton/internal/leak"

	"baton"
)

func TestMain(m *testing.M) { leak.Main(m) }

// script builds a history by hand. Each request takes from one whole second to
// another; its place in the order is given by those times.
type script struct{ ops []Op }

func (s *script) add(from, to int, op Op, err error) *script {
	op.Group, op.Err = "g", err
	op.Client = op.Instance
	op.Call, op.Return = time.Duration(from)*time.Second, time.Duration(to)*time.Second
	op.Began, op.Ended = int64(from)*10, int64(to)*10-1
	s.ops = append(s.ops, op)
	return s
}

func held(instance string, term baton.Term, left int) baton.Lease {
	return baton.Lease{Group: "g", NodeID: "node-" + instance, InstanceID: instance, Term: term, TTL: 10 * time.Second, Remaining: time.Duration(left) * time.Second}
}

func empty(term baton.Term) baton.Lease { return baton.Lease{Group: "g", Term: term} }

const ttl = 10 * time.Second

func (s *script) granted(from, to int, who string, term baton.Term) *script {
	return s.add(from, to, Op{Kind: Acquire, Instance: who, TTL: ttl, Lease: held(who, term, 10)}, nil)
}

func (s *script) refused(from, to int, who string, by baton.Lease) *script {
	return s.add(from, to, Op{Kind: Acquire, Instance: who, TTL: ttl}, &baton.HeldError{Lease: by})
}

func (s *script) renewed(from, to int, who string, term baton.Term) *script {
	return s.add(from, to, Op{Kind: Renew, Instance: who, Term: term, TTL: ttl, Lease: held(who, term, 10)}, nil)
}

func (s *script) deposed(from, to int, who string, term baton.Term) *script {
	return s.add(from, to, Op{Kind: Renew, Instance: who, Term: term, TTL: ttl}, &baton.NotLeaderError{})
}

func (s *script) released(from, to int, who string, term baton.Term) *script {
	return s.add(from, to, Op{Kind: Release, Instance: who, Term: term}, nil)
}

// releasedBefore is a release that is told it came too late.
func (s *script) releasedBefore(from, to int, who string, term baton.Term) *script {
	return s.add(from, to, Op{Kind: Release, Instance: who, Term: term}, &baton.NotLeaderError{})
}

func (s *script) cut(from, to int, term baton.Term) *script {
	return s.add(from, to, Op{Kind: End, Term: term, Immediate: true}, nil)
}

func (s *script) read(from, to int, l baton.Lease) *script {
	return s.add(from, to, Op{Kind: Get, Lease: l}, nil)
}

// lost is a request without an answer.
func (s *script) lost(from, to int, kind Kind, who string, term baton.Term) *script {
	return s.add(from, to, Op{Kind: kind, Instance: who, Term: term, TTL: ttl, Immediate: true}, baton.ErrUnavailable)
}

func ops() *script { return &script{} }

func TestVerdicts(t *testing.T) {
	instanceEnded := &baton.ConflictError{Reason: baton.ConflictInstanceEnded}
	for _, c := range []struct {
		name       string
		history    *script
		duplicates bool
		want       Verdict
	}{
		{"a life", ops().read(0, 1, empty(0)).granted(1, 2, "a", 1).refused(2, 3, "b", held("a", 1, 9)).renewed(3, 4, "a", 1).
			released(5, 6, "a", 1).read(6, 7, empty(1)).granted(7, 8, "b", 2), false, OK},
		{"terms may skip", ops().granted(1, 2, "a", 1).released(2, 3, "a", 1).granted(3, 4, "b", 5), false, OK},
		{"first term above a floor that rises", ops().read(0, 1, empty(3)).read(1, 2, empty(7)).granted(2, 3, "a", 8), false, OK},
		{"a repeated acquire", ops().granted(1, 2, "a", 1).granted(3, 4, "a", 1), false, OK},

		{"a term reused after a release", ops().granted(1, 2, "a", 1).released(2, 3, "a", 1).granted(3, 4, "b", 1), false, Illegal},
		{"a term that fell", ops().granted(1, 2, "a", 5).released(2, 3, "a", 5).granted(3, 4, "b", 2), false, Illegal},
		{"one term for two", ops().granted(1, 3, "a", 1).granted(2, 4, "b", 1), false, Illegal},
		{"two holders", ops().granted(1, 2, "a", 1).granted(3, 4, "b", 2), false, Illegal},
		{"two holders by a renewal", ops().granted(1, 2, "a", 1).renewed(8, 9, "a", 1).granted(15, 16, "b", 2), false, Illegal},
		{"renewal accepted after a takeover", ops().granted(1, 2, "a", 1).granted(12, 13, "b", 2).renewed(14, 15, "a", 1), false, Illegal},
		{"renewal accepted after the release", ops().granted(1, 2, "a", 1).released(2, 3, "a", 1).renewed(3, 4, "a", 1), false, Illegal},
		{"renewal accepted after vacancy was seen", ops().granted(1, 2, "a", 1).read(12, 13, empty(1)).renewed(14, 15, "a", 1), false, Illegal},
		{"a lost release", ops().granted(1, 2, "a", 1).released(2, 3, "a", 1).read(4, 5, held("a", 1, 6)), false, Illegal},
		{"a release undone", ops().granted(1, 2, "a", 1).released(2, 3, "a", 1).read(3, 4, empty(1)).read(4, 5, held("a", 1, 6)), false, Illegal},
		{"a stale read", ops().granted(1, 2, "a", 1).read(3, 4, empty(0)), false, Illegal},
		{"a vacant read that forgot the term", ops().granted(1, 2, "a", 1).released(2, 3, "a", 1).read(3, 4, empty(0)), false, Illegal},
		{"a holder who never asked", ops().read(1, 2, held("a", 1, 5)), false, Illegal},
		{"a leader deposed before its promise ended", ops().granted(1, 2, "a", 1).deposed(3, 4, "a", 1), false, Illegal},
		{"an ended instance led again", ops().granted(1, 2, "a", 1).released(2, 3, "a", 1).granted(3, 4, "a", 2), false, Illegal},
		{"a leader refused as ended", ops().granted(1, 2, "a", 1).
			add(3, 4, Op{Kind: Acquire, Instance: "a", TTL: ttl}, instanceEnded), false, Illegal},

		{"expiry when it can be", ops().granted(1, 2, "a", 1).granted(10, 11, "b", 2), false, OK},
		{"expiry too early by what can be", ops().granted(1, 2, "a", 1).granted(9, 10, "b", 2), false, Illegal},
		{"refused after it ran out", ops().granted(1, 2, "a", 1).deposed(11, 12, "a", 1).read(12, 13, empty(1)), false, OK},
		{"refused as ended after it ran out", ops().granted(1, 2, "a", 1).
			add(11, 12, Op{Kind: Acquire, Instance: "a", TTL: ttl}, instanceEnded), false, OK},
		{"past its deadline, not recorded as ended", ops().granted(1, 2, "a", 1).read(13, 14, held("a", 1, 0)), false, OK},

		{"cut short by an ending", ops().granted(1, 2, "a", 1).cut(3, 4, 1).granted(4, 5, "b", 2).deposed(5, 6, "a", 1), false, OK},
		{"an ending that did nothing", ops().granted(1, 2, "a", 1).cut(3, 4, 1).renewed(5, 6, "a", 1), false, Illegal},
		{"an ending of a term that is over", ops().granted(1, 2, "a", 1).released(2, 3, "a", 1).granted(3, 4, "b", 2).cut(4, 5, 1), false, Illegal},

		{"a lost acquire that landed", ops().lost(1, 2, Acquire, "a", 0).read(3, 4, held("a", 1, 9)).refused(4, 5, "b", held("a", 1, 8)), false, OK},
		{"a lost acquire that landed late", ops().lost(1, 2, Acquire, "a", 0).read(3, 4, empty(0)).granted(4, 5, "b", 1).
			released(5, 6, "b", 1).refused(7, 8, "c", held("a", 2, 9)), false, OK},
		{"a lost acquire that never landed", ops().lost(1, 2, Acquire, "a", 0).granted(3, 4, "b", 1), false, OK},
		{"a lost acquire that nobody saw", ops().lost(1, 2, Acquire, "a", 0).read(13, 14, empty(1)).granted(14, 15, "b", 2), false, OK},
		{"a lost acquire, repeated", ops().lost(1, 2, Acquire, "a", 0).read(2, 3, held("a", 1, 9)).granted(4, 5, "a", 1), false, OK},
		{"a lost acquire does not excuse two holders", ops().lost(1, 2, Acquire, "a", 0).granted(3, 4, "b", 1).read(5, 6, held("a", 2, 9)), false, Illegal},
		{"a lost acquire does not excuse two terms", ops().lost(1, 2, Acquire, "a", 0).granted(3, 4, "b", 1).granted(5, 6, "c", 3), false, Illegal},
		{"the lease of a lost acquire counts", ops().lost(1, 2, Acquire, "a", 0).read(2, 3, held("a", 1, 9)).granted(4, 5, "b", 2), false, Illegal},

		{"a lost release that took effect", ops().granted(1, 2, "a", 1).lost(2, 3, Release, "a", 1).granted(4, 5, "b", 2).deposed(5, 6, "a", 1), false, OK},
		{"a lost release that did not", ops().granted(1, 2, "a", 1).lost(2, 3, Release, "a", 1).renewed(4, 5, "a", 1), false, OK},
		{"a lost release that took effect late", ops().granted(1, 2, "a", 1).lost(2, 3, Release, "a", 1).renewed(3, 4, "a", 1).read(5, 6, empty(1)), false, OK},
		{"a lost release, repeated", ops().granted(1, 2, "a", 1).lost(2, 3, Release, "a", 1).released(4, 5, "a", 1), false, OK},
		{"a lost release of another term", ops().granted(1, 2, "a", 1).released(2, 3, "a", 1).granted(3, 4, "b", 2).
			lost(4, 5, Release, "a", 1).granted(6, 7, "c", 3), false, Illegal},
		{"a lost ending that took effect", ops().granted(1, 2, "a", 1).lost(2, 3, End, "", 1).granted(4, 5, "b", 2), false, OK},
		{"a lost renewal promises nothing", ops().granted(1, 2, "a", 1).lost(8, 9, Renew, "a", 1).granted(12, 13, "b", 2), false, OK},

		{"a repeated request that won once more", ops().granted(1, 2, "a", 1).released(2, 3, "a", 1).granted(3, 4, "b", 2).
			released(4, 5, "b", 2).read(6, 7, held("a", 3, 9)), true, OK},
		{"the same where nothing is repeated", ops().granted(1, 2, "a", 1).released(2, 3, "a", 1).granted(3, 4, "b", 2).
			released(4, 5, "b", 2).read(6, 7, held("a", 3, 9)), false, Illegal},
		{"a release refused for its own first copy", ops().granted(1, 2, "a", 1).releasedBefore(3, 4, "a", 1).granted(4, 5, "b", 2), true, OK},
		{"an ending refused for its own first copy", ops().granted(1, 2, "a", 1).
			add(3, 4, Op{Kind: End, Term: 1, Immediate: true}, &baton.NotLeaderError{}).granted(4, 5, "b", 2), true, OK},
		{"a release refused where nothing is repeated",
			ops().granted(1, 2, "a", 1).releasedBefore(3, 4, "a", 1).granted(4, 5, "b", 2), false, Illegal},
		{"a refused release ends nothing before it is asked for",
			ops().granted(1, 2, "a", 1).read(3, 4, empty(1)).releasedBefore(5, 6, "a", 1), true, Illegal},
		{"a refused release ends no other term", ops().granted(1, 2, "a", 1).releasedBefore(3, 4, "a", 1).granted(4, 5, "b", 2).
			releasedBefore(5, 6, "a", 1).granted(7, 8, "c", 3), true, Illegal},
		{"a refused renewal is no ending", ops().granted(1, 2, "a", 1).deposed(3, 4, "a", 1).granted(4, 5, "b", 2), true, Illegal},
		{"a lease given back on the echo of its grant", ops().granted(1, 2, "a", 1).read(3, 4, empty(1)), true, Illegal},
		{"a lease given back on the echo of a renewal", ops().granted(1, 2, "a", 1).renewed(3, 4, "a", 1).granted(5, 6, "b", 2), true, Illegal},
		{"repetition does not excuse a release undone",
			ops().granted(1, 2, "a", 1).releasedBefore(3, 4, "a", 1).renewed(5, 6, "a", 1), true, Illegal},
		{"repetition does not excuse two holders", ops().granted(1, 2, "a", 1).granted(3, 4, "b", 2), true, Illegal},
		{"repetition does not excuse a renewal after a takeover",
			ops().granted(1, 2, "a", 1).granted(12, 13, "b", 2).renewed(14, 15, "a", 1), true, Illegal},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Check(c.history.ops, Options{Duplicates: c.duplicates})
			if r.Verdict != c.want {
				t.Fatalf("verdict %s: want %s\n%s", r.Verdict, c.want, r.Detail)
			}
			if r.Verdict != Illegal {
				return
			}
			if r.Group != "g" || !strings.Contains(r.Detail, "fits no order") {
				t.Errorf("group %q, detail %q: want them to say where and what", r.Group, r.Detail)
			}
			var page strings.Builder
			if err := r.WriteHTML(&page); err != nil || !strings.Contains(page.String(), "<html") {
				t.Errorf("draw the history: %v", err)
			}
		})
	}
}

// A request that has not been answered when the log is read may have landed.
func TestPendingIsUnknown(t *testing.T) {
	s := ops().granted(1, 2, "a", 1).granted(4, 5, "b", 2)
	pending := Op{Kind: Release, Group: "g", Instance: "a", Term: 1, Call: 3 * time.Second, Began: 30}
	if r := Check(append(s.ops, pending), Options{}); r.Verdict != OK {
		t.Errorf("with a pending release: %s\n%s", r.Verdict, r.Detail)
	}
	if r := Check(s.ops, Options{}); r.Verdict != Illegal {
		t.Errorf("without it: %s", r.Verdict)
	}
}

func TestGroupsAreJudgedApart(t *testing.T) {
	s := ops().granted(1, 2, "a", 1)
	other := ops().granted(1, 2, "b", 1)
	other.ops[0].Group = "h"
	if r := Check(append(s.ops, other.ops...), Options{}); r.Verdict != OK {
		t.Errorf("one holder in each of two groups: %s\n%s", r.Verdict, r.Detail)
	}
}

// A search that runs out of time has not found the history right.
func TestTimeoutIsUnknown(t *testing.T) {
	s := ops().granted(1, 2, "a", 1)
	for range 40 {
		s.renewed(3, 1000, "a", 1)
	}
	s.deposed(1001, 1002, "a", 1) // could be, but for the next one
	s.renewed(1003, 1004, "a", 1)
	if r := Check(s.ops, Options{Timeout: time.Millisecond}); r.Verdict != Unknown {
		t.Errorf("verdict %s: want unknown", r.Verdict)
	}
}
