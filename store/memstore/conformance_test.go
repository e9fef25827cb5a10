package memstore_test

import (
	"testing"
	"testing/synctest"

	"baton"
	"baton/internal/boottime"
	"baton/store/memstore"
	"baton/storetest"
)

// harness gives each check a store of its own, which is its only handle.
func harness(clock baton.Clock, wrap func(baton.Store) baton.Store) storetest.Harness {
	return storetest.Harness{Start: func(t storetest.T) storetest.Backing {
		s, err := memstore.New(memstore.Config{Clock: clock})
		if err != nil {
			t.Fatalf("new store: %v", err)
		}
		return storetest.Backing{Open: func() baton.Store { return wrap(s) }}
	}}
}

func bare(s baton.Store) baton.Store { return s }

func TestConformance(t *testing.T) {
	storetest.Run(t, harness(baton.SystemClock(), bare))
}

// TestConformanceInABubble runs the suite on fake time: whoever tests with
// this store in a bubble of their own relies on that.
func TestConformanceInABubble(t *testing.T) {
	inBubble(t, harness(boottime.Monotonic(), bare))
}

func inBubble(t *testing.T, h storetest.Harness) {
	for _, c := range storetest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Check(t, h) })
		})
	}
}
