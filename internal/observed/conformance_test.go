package observed

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/internal/boottime"
	"baton/internal/leak"
	"baton/storetest"
)

func TestMain(m *testing.M) { leak.Main(m) }

// plain is the least that makes a store of leases.
type plain struct{ *Leases }

var plainGuarantees = baton.Guarantees{
	Store: "plain", MinTTL: 100 * time.Millisecond, MaxTTL: baton.MaxTTL, ExpiryLag: 100 * time.Millisecond,
	Time: baton.TimeObserved, Extends: true, Waiting: baton.WaitWatch, Transfers: true,
}

func (p plain) Guarantees() baton.Guarantees { return plainGuarantees }

func (p plain) Close() error { p.Leases.Close(); return nil }

func (p plain) End(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	return p.Leases.End(ctx, group, term, e, nil)
}

func harness(clock baton.Clock) storetest.Harness {
	return storetest.Harness{Start: func(storetest.T) storetest.Backing {
		register := newMemory()
		return storetest.Backing{Open: func() baton.Store {
			return plain{New(Config{Register: register, Guarantees: plainGuarantees, Clock: clock})}
		}}
	}}
}

func TestConformance(t *testing.T) {
	for _, c := range storetest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Check(t, harness(boottime.Monotonic())) })
		})
	}
}

func TestConformanceUnderFaults(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				storetest.CheckFaulty(t, harness(boottime.Monotonic()), seed)
			})
		})
	}
}
