// Package drill is what the tests of stores on real servers have in common: the
// steps they are written in, the faults that hit a server, and the bad luck of single requests.
package drill

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"baton"
)

// Patience is far beyond what anything takes that tests wait for.
const Patience = 3 * time.Minute

// Unhurried is the timeout of a store in tests that are not about timeouts: a machine
// that stands still for a while is no fault of the server's.
const Unhurried = 20 * time.Second

// Eventually polls until ok.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(Patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("still not after %v: %s", Patience, what)
		}
	}
}

// Tries are groups to try something in that says nothing where this machine is held up
// meanwhile: a test takes the next then, and returns otherwise.
func Tries(t testing.TB) iter.Seq[string] {
	t.Helper()
	return func(yield func(group string) bool) {
		for n := range 10 {
			if !yield(fmt.Sprint("g-", n)) {
				return
			}
		}
		t.Fatal("held up ten times in a row: nothing can be said")
	}
}

// Answer asks until there is an answer. A machine that stands still for longer than a timeout has none at first.
func Answer(ask func() error) error {
	for until := time.Now().Add(Patience); ; <-time.After(20 * time.Millisecond) {
		if err := ask(); !errors.Is(err, baton.ErrUnavailable) || time.Now().After(until) {
			return err
		}
	}
}

// Opened is a store that was opened without an error. It is closed at the end of the test.
func Opened[S baton.Store](t testing.TB, s S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// Insist opens a store whose timeout is short, on a machine that may take longer. It is
// closed at the end of the test.
func Insist[S baton.Store](t testing.TB, open func() (S, error)) (s S) {
	t.Helper()
	err := Answer(func() (err error) { s, err = open(); return err })
	return Opened(t, s, err)
}

// Answered opens a store by a URL, with the usual timeout, until its server has answered in time: with a
// store, or with what it has against it.
func Answered[S baton.Store](t testing.TB, open func(context.Context, string) (S, error), url string) (s S, err error) {
	t.Helper()
	err = Answer(func() (err error) { s, err = open(t.Context(), url); return err })
	return s, err
}

// Lead has an instance of the node "node" granted a vacant group.
func Lead(t testing.TB, s baton.Store, group, instance string, ttl time.Duration) baton.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), group, baton.Candidate{NodeID: "node", InstanceID: instance}, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Release ends a leadership that stands.
func Release(t testing.TB, s baton.Store, l baton.Lease) {
	t.Helper()
	if err := s.Release(t.Context(), l.ID()); err != nil {
		t.Fatal(err)
	}
}

// HistoryKeepsAHundred wants the last hundred terms remembered, the present one
// among them, and no others. It returns the present one.
func HistoryKeepsAHundred(t testing.TB, s interface {
	baton.Store
	baton.Historian
}) baton.Term {
	t.Helper()
	const terms = 120
	for n := range terms - 1 {
		Release(t, s, Lead(t, s, "g", fmt.Sprint("i-", n), time.Minute))
	}
	Lead(t, s, "g", "present", time.Minute)
	past, err := s.History(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	if len(past) != 100 {
		t.Fatalf("%d terms are remembered: want 100", len(past))
	}
	for i, p := range past {
		if want := baton.Term(terms - 99 + i); p.Term != want || (p.Reason == "") != (p.Term == terms) {
			t.Fatalf("line %d of the history is %+v: want term %d", i, p, want)
		}
	}
	return terms
}
