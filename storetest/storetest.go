// Package storetest is the suite that every Baton store passes, and the tools
// to test what stands on a store: a wrapper that injects faults, and in package
// history a recorder and a checker of what clients saw.
//
// A store's own test is one call:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, storetest.Harness{Start: func(t storetest.T) storetest.Backing {
//			return storetest.Backing{Open: func() baton.Store { return dial(t) }}
//		}})
//	}
//
// What a store cannot do, it declares: in its Guarantees, and by not
// implementing an optional interface. The suite checks that the two agree and
// writes a log line for what it therefore does not ask.
//
// Nothing in it measures speed. It waits for what must happen with generous
// limits, and checks of what must not happen yet compare with the promise that
// a holder was given.
package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"baton"
)

// T is what a check needs of a *testing.T.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
	Context() context.Context
}

// Harness provides the store under test.
type Harness struct {
	// Start makes a store available to one check and cleans up after it with
	// t.Cleanup. A server that takes long to start may be shared by all checks:
	// each uses groups of its own, with random names.
	Start func(t T) Backing
	// Patience is how long the suite waits for what a healthy store does at
	// once. 30 seconds if zero.
	Patience time.Duration
	// Parallel is how many checks run at a time. 16 if zero.
	Parallel int
}

// Backing is one store, as its clients reach it.
type Backing struct {
	// Open returns another handle on the store, as another process would have it.
	// The suite closes what it opens. A store without handles may
	// return itself each time; Close must then bear to be called again.
	Open func() baton.Store
	// Restart stops the store and starts it again with what it keeps durably.
	// Handles that are open may break. Without it, DurableTerms is not checked.
	Restart func()
}

// Case is one rule that a store must keep.
type Case struct {
	// Name is "Concern/Rule".
	Name string
	// Check fails t if the store breaks the rule. It may run in a
	// testing/synctest bubble if the store of h may.
	Check func(t T, h Harness)

	alone bool // disturbs others that share a server
}

// Cases returns every rule, in a fixed order.
func Cases() []Case {
	var all []Case
	for _, concern := range [][]Case{
		declaredCases, acquireCases, renewCases, releaseCases, exactCases, repeatCases,
		termCases, expiryCases, readCases, watchCases, lineCases, endingCases, pastCases,
		registryCases, validationCases, contextCases, closeCases, concurrencyCases,
	} {
		all = append(all, concern...)
	}
	return all
}

// Run checks every rule on the stores of h, many at a time, so that the suite
// lasts little longer than its longest wait for an expiry.
func Run(t *testing.T, h Harness) {
	var together []Case
	for _, c := range Cases() {
		if c.alone {
			t.Run(c.Name, func(t *testing.T) { c.Check(t, h) })
		} else {
			together = append(together, c)
		}
	}
	runTogether(t, h, together)
}

// runTogether does not use t.Parallel, which runs as many as there are
// processors: these mostly wait.
func runTogether(t *testing.T, h Harness, cases []Case) {
	width := h.Parallel
	if width <= 0 {
		width = 16
	}
	free := make(chan struct{}, width)
	var running sync.WaitGroup
	defer running.Wait()
	for _, c := range cases {
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			t.Run(c.Name, func(t *testing.T) { c.Check(t, h) })
		})
	}
}
