package baton_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"baton"
)

// outage is a store that renews nothing for a while: it refuses at once, or
// swallows requests, so that they hang until they are given up.
type outage struct {
	baton.Store
	swallows bool
	down     atomic.Bool
}

func (s *outage) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	switch {
	case !s.down.Load():
		return s.Store.Renew(ctx, id, extend)
	case s.swallows:
		<-ctx.Done()
		return baton.Lease{}, ctx.Err()
	}
	return baton.Lease{}, errNoReply
}

// What Advise promises of an outage is kept, whenever it begins, however the
// store fails, and however often the leader renews.
func TestOutageAsLongAsAdvised(t *testing.T) {
	for _, every := range []time.Duration{testTTL / 3, testTTL / 5, testTTL / 10, testTTL / 40} {
		for _, swallows := range []bool{false, true} {
			for begin := time.Duration(0); begin < 2*every; begin += every / 10 {
				synctest.Test(t, func(t *testing.T) {
					advice, err := baton.Config{TTL: testTTL, RenewEvery: every}.Advise(0)
					if err != nil {
						t.Fatal(err)
					}
					clock := &jumpClock{}
					store := &outage{Store: newMem(t, clock), swallows: swallows}
					l := mustCampaign(t, newElector(t, store, "a", clock, func(c *baton.Config) { c.RenewEvery = every }))
					time.Sleep(begin)
					store.down.Store(true)
					time.Sleep(advice.SurvivesOutage)
					store.down.Store(false)
					time.Sleep(testTTL)
					if !l.Valid() {
						t.Errorf("renewing every %v, an outage of %v that began after %v and swallows requests (%v): %v",
							every, advice.SurvivesOutage, begin, swallows, l.Cause())
					}
				})
			}
		}
	}
}
