package memstore_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"baton"
	"baton/internal/boottime"
	"baton/store/memstore"
	"baton/storetest"
)

// harness gives each check a store of its own, which is its only handle.
func harness(clock baton.Clock) storetest.Harness {
	return storetest.Harness{Start: func(t storetest.T) storetest.Backing {
		s, err := memstore.New(memstore.Config{Clock: clock})
		if err != nil {
			t.Fatalf("new store: %v", err)
		}
		return storetest.Backing{Open: func() baton.Store { return s }}
	}}
}

func TestConformance(t *testing.T) {
	storetest.Run(t, harness(baton.SystemClock()))
}

func TestConformanceUnderFaults(t *testing.T) {
	storetest.RunFaulty(t, harness(baton.SystemClock()), 1, 2, 3, 4)
}

// TestConformanceInABubble runs the suite on fake time: whoever tests with
// this store in a bubble of their own relies on that.
func TestConformanceInABubble(t *testing.T) {
	h := harness(boottime.Monotonic())
	for _, c := range storetest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Check(t, h) })
		})
	}
}

func TestConformanceUnderFaultsInABubble(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				storetest.CheckFaulty(t, harness(boottime.Monotonic()), seed)
			})
		})
	}
}
