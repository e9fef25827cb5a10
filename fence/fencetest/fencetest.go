// Package fencetest is the conformance suite for fencing ledgers.
//
// A ledger's test gives it a small log beside the ledger, see [Subject], and
// calls [Run]. To show that the suite can see a bug, build a ledger that has
// it and call [MustFail].
package fencetest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"baton"
	"baton/fence"
)

// T is the part of testing.TB that the cases use, small enough to record what a
// ledger with a bug does to it.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// Subject is a ledger under test with an append-only log per resource beside
// it: the simplest data a ledger can protect.
type Subject interface {
	fence.Ledger

	// Append writes value to the resource's log under c: check and effect in
	// one atomic step, through the ledger's own way of writing.
	//
	// between, unless it is nil, is called once: between check and effect
	// where these are two steps that the ledger joins, before all of it where
	// they are one. It may take a while.
	Append(ctx context.Context, resource string, c fence.Claim, value string, between func()) error

	// Log returns what was appended, in the order in which it took effect.
	Log(ctx context.Context, resource string) ([]Entry, error)
}

// Entry is one accepted write.
type Entry struct {
	Claim fence.Claim
	Value string
}

// Options says what of the contract a ledger cannot do, and how much to try.
type Options struct {
	// OneWriter: writes under one term wait for each other, as they do where
	// the database has a single writer.
	OneWriter bool
	// Writes is how many writes the interleaving cases try; 4000 if zero.
	Writes int
}

// Case is one property.
type Case struct {
	Name string
	Run  func(ctx context.Context, t T, s Subject, o Options)
}

// Cases returns the suite.
func Cases() []Case {
	return []Case{
		{"BadInput", badInput},
		{"AdoptRaises", adoptRaises},
		{"InstanceOfSameTerm", instanceOfSameTerm},
		{"OtherGroup", otherGroup},
		{"NotAdopted", notAdopted},
		{"SeqRises", seqRises},
		{"StaleEndsLeadership", staleEndsLeadership},
		{"PausedBeforeWrite", pausedBeforeWrite},
		{"PausedBetweenCheckAndEffect", pausedBetweenCheckAndEffect},
		{"OldWriteAfterRead", oldWriteAfterRead},
		{"SameTermTogether", sameTermTogether},
		{"AdoptRace", adoptRace},
		{"AdoptThroughCrowd", adoptThroughCrowd},
		{"TwoLeaders", twoLeaders},
		{"TwoLeadersUnordered", twoLeadersUnordered},
		{"UnknownOutcome", unknownOutcome},
		{"DelayedWrite", delayedWrite},
		{"RepeatedInside", repeatedInside},
		{"RepeatedInsideThePast", repeatedInsideThePast},
	}
}

// limit bounds a case. It is far beyond what any of them takes.
const limit = 2 * time.Minute

// Run runs the suite. open returns a subject whose resources are not adopted
// yet; it may be called many times, and cleans up after itself.
func Run(t *testing.T, o Options, open func(t *testing.T) Subject) {
	t.Helper()
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			c.Run(ctx, t, open(t), o)
		})
	}
}

// MustFail runs the named cases, and fails t for each that a ledger with a
// known bug passes, thrice: where the machine stands still, one may not come to the bug.
func MustFail(t *testing.T, o Options, open func(t *testing.T) Subject, names ...string) {
	t.Helper()
	for _, name := range names {
		i := slices.IndexFunc(Cases(), func(c Case) bool { return c.Name == name })
		if i < 0 {
			t.Errorf("there is no case %q", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			for try := range 3 {
				if found := record(ctx, Cases()[i], open(t), o); len(found) > 0 {
					t.Logf("seen the %d. time: %s", try+1, found[0])
					return
				}
			}
			t.Errorf("the suite does not see the bug")
		})
	}
}

// recorder collects what a case finds. Like testing.T, Fatalf ends the
// goroutine that calls it.
type recorder struct {
	mu    sync.Mutex
	found []string
}

func (r *recorder) Helper()             {}
func (r *recorder) Logf(string, ...any) {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = append(r.found, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func record(ctx context.Context, c Case, s Subject, o Options) []string {
	r := new(recorder)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx, r, s, o)
	}()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found
}

const (
	group    = "fencetest"
	resource = "log"
)

func token(term baton.Term, instance string) baton.Token {
	return baton.Token{Group: group, Term: term, InstanceID: instance}
}

// lead returns a leadership for t, and what ends it.
func lead(t baton.Token) (*baton.Leadership, func()) {
	clock := baton.SystemClock()
	l, tenure := baton.NewLeadership(baton.LeadershipConfig{Token: t, Clock: clock, Until: clock.Now() + time.Hour})
	return l, func() { tenure.End(baton.ErrResigned) }
}

func mustAdopt(ctx context.Context, t T, s Subject, tok baton.Token) fence.Record {
	t.Helper()
	r, err := s.Adopt(ctx, resource, tok)
	if err != nil {
		t.Fatalf("adopt %v: %v", tok, err)
	}
	return r
}

func mustAppend(ctx context.Context, t T, s Subject, c fence.Claim, value string) {
	t.Helper()
	if err := s.Append(ctx, resource, c, value, nil); err != nil {
		t.Fatalf("append under %v: %v", c, err)
	}
}

func mustRead(ctx context.Context, t T, s Subject) fence.Record {
	t.Helper()
	r, err := s.Read(ctx, resource)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return r
}

func mustLog(ctx context.Context, t T, s Subject) []Entry {
	t.Helper()
	log, err := s.Log(ctx, resource)
	if err != nil {
		t.Fatalf("read the log: %v", err)
	}
	return log
}
