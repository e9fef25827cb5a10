package fencetest

import (
	"context"
	"errors"
	"strings"

	"baton"
	"baton/fence"
)

// refused does what try does, and checks that it is refused as want, with the
// record and the log left as they were.
func refused(ctx context.Context, t T, s Subject, want error, what string, try func() error) error {
	t.Helper()
	before, logBefore := mustRead(ctx, t, s), mustLog(ctx, t, s)
	err := try()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
	if after := mustRead(ctx, t, s); after != before {
		t.Errorf("%s: changed the record from %v to %v", what, before, after)
	}
	if logAfter := mustLog(ctx, t, s); len(logAfter) != len(logBefore) {
		t.Errorf("%s: the log grew from %d to %d entries", what, len(logBefore), len(logAfter))
	}
	return err
}

func badInput(ctx context.Context, t T, s Subject, _ Options) {
	good := token(5, "a")
	mustAdopt(ctx, t, s, good)
	tokens := map[string]baton.Token{
		"token 0":                  {Group: group, InstanceID: "a"},
		"term above the highest":   {Group: group, Term: baton.MaxTerm + 1, InstanceID: "a"},
		"term that is negative":    {Group: group, Term: ^baton.Term(0), InstanceID: "a"},
		"empty token":              {},
		"no group":                 {Term: 5, InstanceID: "a"},
		"no instance":              {Group: group, Term: 5},
		"instance with a quote":    {Group: group, Term: 5, InstanceID: "a'b"},
		"group that is too long":   {Group: strings.Repeat("g", 129), Term: 5, InstanceID: "a"},
		"instance with a new line": {Group: group, Term: 5, InstanceID: "a\nb"},
	}
	for what, bad := range tokens {
		refused(ctx, t, s, baton.ErrInvalidArgument, "adopt, "+what, func() error {
			_, err := s.Adopt(ctx, resource, bad)
			return err
		})
		refused(ctx, t, s, baton.ErrInvalidArgument, "append, "+what, func() error {
			return s.Append(ctx, resource, fence.Unordered(bad), "bad", nil)
		})
		refused(ctx, t, s, baton.ErrInvalidArgument, "advance, "+what, func() error {
			return s.Advance(ctx, resource, fence.Ordered(bad, 1))
		})
	}
	for _, seq := range []int64{0, -1, -1 << 63, fence.MaxSeq + 1, 1<<63 - 1} {
		refused(ctx, t, s, baton.ErrInvalidArgument, "append, bad seq", func() error {
			return s.Append(ctx, resource, fence.Ordered(good, seq), "bad", nil)
		})
		refused(ctx, t, s, baton.ErrInvalidArgument, "advance, bad seq", func() error {
			return s.Advance(ctx, resource, fence.Ordered(good, seq))
		})
	}
	refused(ctx, t, s, baton.ErrInvalidArgument, "advance, no seq", func() error {
		return s.Advance(ctx, resource, fence.Unordered(good))
	})
	for _, name := range []string{"", "..", "a b", "a'; drop table x; --", strings.Repeat("r", 129)} {
		refused(ctx, t, s, baton.ErrInvalidArgument, "adopt, bad resource", func() error {
			_, err := s.Adopt(ctx, name, good)
			return err
		})
		refused(ctx, t, s, baton.ErrInvalidArgument, "append, bad resource", func() error {
			return s.Append(ctx, name, fence.Unordered(good), "bad", nil)
		})
		refused(ctx, t, s, baton.ErrInvalidArgument, "read, bad resource", func() error {
			_, err := s.Read(ctx, name)
			return err
		})
	}
	// The bounds themselves are good.
	top := token(baton.MaxTerm, "a")
	mustAdopt(ctx, t, s, top)
	mustAppend(ctx, t, s, fence.Ordered(top, fence.MaxSeq), "top")
}

func adoptRaises(ctx context.Context, t T, s Subject, _ Options) {
	if r := mustRead(ctx, t, s); r != (fence.Record{}) {
		t.Errorf("record before any adopt: got %v, want none", r)
	}
	a, b := token(5, "a"), token(7, "b")
	if r := mustAdopt(ctx, t, s, a); r.Token() != a || r.LastSeq != 0 {
		t.Errorf("first adopt: got %v, want %v with last number 0", r, a)
	}
	mustAppend(ctx, t, s, fence.Unordered(a), "one")
	mustAppend(ctx, t, s, fence.Ordered(a, 10), "two")
	if r := mustAdopt(ctx, t, s, a); r.Token() != a || r.LastSeq != 10 {
		t.Errorf("adopt again: got %v, want %v with last number 10", r, a)
	}
	if r := mustAdopt(ctx, t, s, b); r.Token() != b || r.LastSeq != 10 {
		t.Errorf("adopt by a later term: got %v, want %v with last number 10", r, b)
	}
	mustAppend(ctx, t, s, fence.Unordered(b), "three")

	err := refused(ctx, t, s, fence.ErrStale, "adopt by an earlier term", func() error {
		_, err := s.Adopt(ctx, resource, a)
		return err
	})
	checkFacts(t, err, fence.Unordered(a), b)
	err = refused(ctx, t, s, fence.ErrStale, "write of an earlier term", func() error {
		return s.Append(ctx, resource, fence.Unordered(a), "stale", nil)
	})
	checkFacts(t, err, fence.Unordered(a), b)
	refused(ctx, t, s, fence.ErrStale, "ordered write of an earlier term", func() error {
		return s.Append(ctx, resource, fence.Ordered(a, 11), "stale", nil)
	})
	refused(ctx, t, s, fence.ErrStale, "advance of an earlier term", func() error {
		return s.Advance(ctx, resource, fence.Ordered(a, 11))
	})
	checkLog(t, mustLog(ctx, t, s))
}

// checkFacts checks that a StaleError names what was offered and who holds the resource.
func checkFacts(t T, err error, offered fence.Claim, held baton.Token) {
	t.Helper()
	var stale *fence.StaleError
	if !errors.As(err, &stale) {
		t.Errorf("got %v, want a StaleError", err)
		return
	}
	if stale.Resource != resource || stale.Offered != offered || stale.Held.Token() != held {
		t.Errorf("got %v, want %v refused in favour of %v", stale, offered, held)
	}
}

func instanceOfSameTerm(ctx context.Context, t T, s Subject, _ Options) {
	a, twin := token(5, "a"), token(5, "twin")
	mustAdopt(ctx, t, s, a)
	mustAppend(ctx, t, s, fence.Unordered(a), "first")
	refused(ctx, t, s, fence.ErrStale, "adopt by another instance of the same term", func() error {
		_, err := s.Adopt(ctx, resource, twin)
		return err
	})
	err := refused(ctx, t, s, fence.ErrStale, "write of another instance of the same term", func() error {
		return s.Append(ctx, resource, fence.Unordered(twin), "twin", nil)
	})
	checkFacts(t, err, fence.Unordered(twin), a)
	refused(ctx, t, s, fence.ErrStale, "ordered write of another instance of the same term", func() error {
		return s.Append(ctx, resource, fence.Ordered(twin, 99), "twin", nil)
	})
}

func otherGroup(ctx context.Context, t T, s Subject, _ Options) {
	mustAdopt(ctx, t, s, token(5, "a"))
	foreign := baton.Token{Group: "other", Term: 9, InstanceID: "a"}
	refused(ctx, t, s, fence.ErrWrongGroup, "adopt by another group", func() error {
		_, err := s.Adopt(ctx, resource, foreign)
		return err
	})
	for _, term := range []baton.Term{4, 5, 9} {
		foreign.Term = term
		err := refused(ctx, t, s, fence.ErrWrongGroup, "write of another group", func() error {
			return s.Append(ctx, resource, fence.Unordered(foreign), "foreign", nil)
		})
		var wrong *fence.WrongGroupError
		if !errors.As(err, &wrong) || wrong.Held.Group != group {
			t.Errorf("got %v, want it to name the group %q", err, group)
		}
		refused(ctx, t, s, fence.ErrWrongGroup, "ordered write of another group", func() error {
			return s.Append(ctx, resource, fence.Ordered(foreign, 3), "foreign", nil)
		})
	}
	// A group may have many resources, and resources many groups.
	if _, err := s.Adopt(ctx, "another", foreign); err != nil {
		t.Errorf("adopt another resource: %v", err)
	}
}

func notAdopted(ctx context.Context, t T, s Subject, _ Options) {
	a, b := token(5, "a"), token(6, "b")
	err := refused(ctx, t, s, fence.ErrNotAdopted, "write before any adopt", func() error {
		return s.Append(ctx, resource, fence.Unordered(a), "early", nil)
	})
	var not *fence.NotAdoptedError
	if !errors.As(err, &not) || not.Held.Adopted() || not.Offered != fence.Unordered(a) {
		t.Errorf("got %v, want it to say that nobody has adopted the resource", err)
	}
	refused(ctx, t, s, fence.ErrNotAdopted, "ordered write before any adopt", func() error {
		return s.Append(ctx, resource, fence.Ordered(a, 1), "early", nil)
	})
	refused(ctx, t, s, fence.ErrNotAdopted, "advance before any adopt", func() error {
		return s.Advance(ctx, resource, fence.Ordered(a, 1))
	})
	mustAdopt(ctx, t, s, a)
	mustAppend(ctx, t, s, fence.Ordered(a, 1), "first")
	err = refused(ctx, t, s, fence.ErrNotAdopted, "write of a later term that did not adopt", func() error {
		return s.Append(ctx, resource, fence.Ordered(b, 2), "early", nil)
	})
	if !errors.As(err, &not) || not.Held.Token() != a {
		t.Errorf("got %v, want it to name %v", err, a)
	}
	mustAppend(ctx, t, s, fence.Ordered(a, 2), "the earlier term still has it")
}

func seqRises(ctx context.Context, t T, s Subject, _ Options) {
	a, b := token(5, "a"), token(6, "b")
	mustAdopt(ctx, t, s, a)
	mustAppend(ctx, t, s, fence.Ordered(a, 1), "1")
	mustAppend(ctx, t, s, fence.Ordered(a, 5), "5: gaps are allowed")
	for _, seq := range []int64{5, 4, 1} {
		err := refused(ctx, t, s, fence.ErrRepeat, "repeated number", func() error {
			return s.Append(ctx, resource, fence.Ordered(a, seq), "again", nil)
		})
		var repeat *fence.RepeatError
		if !errors.As(err, &repeat) || repeat.Held.LastSeq != 5 || repeat.Offered != fence.Ordered(a, seq) {
			t.Errorf("got %v, want it to name the last number 5", err)
		}
	}
	if err := s.Advance(ctx, resource, fence.Ordered(a, 8)); err != nil {
		t.Fatalf("advance: %v", err)
	}
	refused(ctx, t, s, fence.ErrRepeat, "number that was passed over", func() error {
		return s.Append(ctx, resource, fence.Ordered(a, 7), "late", nil)
	})
	if r := mustAdopt(ctx, t, s, b); r.LastSeq != 8 {
		t.Errorf("adopt: got last number %d, want 8", r.LastSeq)
	}
	refused(ctx, t, s, fence.ErrRepeat, "number used under an earlier term", func() error {
		return s.Append(ctx, resource, fence.Ordered(b, 5), "again", nil)
	})
	mustAppend(ctx, t, s, fence.Unordered(b), "without a number")
	mustAppend(ctx, t, s, fence.Ordered(b, 9), "9")
	checkLog(t, mustLog(ctx, t, s))
}

func staleEndsLeadership(ctx context.Context, t T, s Subject, _ Options) {
	a, endA := lead(token(5, "a"))
	defer endA()
	b, endB := lead(token(6, "b"))
	defer endB()
	mustAdopt(a.Context(), t, s, a.Token())
	mustAppend(a.Context(), t, s, fence.Ordered(a.Token(), 1), "1")
	refused(ctx, t, s, fence.ErrRepeat, "repeat", func() error {
		return s.Append(a.Context(), resource, fence.Ordered(a.Token(), 1), "1", nil)
	})
	refused(ctx, t, s, fence.ErrNotAdopted, "not adopted", func() error {
		return s.Append(b.Context(), resource, fence.Ordered(b.Token(), 2), "2", nil)
	})
	if !a.Valid() || !b.Valid() {
		t.Fatalf("a leadership ended over a refusal that is not stale: %v, %v", a.Cause(), b.Cause())
	}
	mustAdopt(b.Context(), t, s, b.Token())
	refused(ctx, t, s, fence.ErrStale, "stale token under another leadership's context", func() error {
		return s.Append(b.Context(), resource, fence.Unordered(a.Token()), "stale", nil)
	})
	if !b.Valid() {
		t.Errorf("a stale token ended the leadership that it was not of: %v", b.Cause())
	}
	refused(ctx, t, s, fence.ErrStale, "stale", func() error {
		return s.Append(a.Context(), resource, fence.Unordered(a.Token()), "stale", nil)
	})
	if a.Valid() || !errors.Is(a.Cause(), fence.ErrStale) {
		t.Errorf("after StaleError: valid %v, cause %v, want an end because of it", a.Valid(), a.Cause())
	}
	old, endOld := lead(token(4, "old"))
	defer endOld()
	refused(ctx, t, s, fence.ErrStale, "stale adopt", func() error {
		_, err := s.Adopt(old.Context(), resource, old.Token())
		return err
	})
	if old.Valid() {
		t.Errorf("the leadership goes on after its Adopt was refused as stale")
	}
}
