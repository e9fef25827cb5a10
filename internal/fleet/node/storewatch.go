package node

import (
	"context"
	"time"

	"baton"
)

// watchRenewals counts renewals.
func watchRenewals(store baton.Store, m *metrics) baton.Store {
	return withCapabilities(&renewalWatch{Store: store, metrics: m}, store)
}

type renewalWatch struct {
	baton.Store
	metrics *metrics
}

func (w *renewalWatch) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	lease, err := w.Store.Renew(ctx, id, extend)
	w.metrics.renewed(err)
	return lease, err
}

// trustReceipt is a way to trust leases that is wrong.
const trustReceipt = "receipt"

// trustFromReceipt makes an elector trust each answer from when it came, and
// without its margins: a leader of such an elector goes on after the store has let
// the next one in, by as long as the answer was under way. It is there so
// that checks can be shown to catch it.
func trustFromReceipt(store baton.Store, clock baton.Clock, margins time.Duration) baton.Store {
	return withCapabilities(&receiptTrust{Store: store, clock: clock, margins: margins}, store)
}

type receiptTrust struct {
	baton.Store
	clock   baton.Clock
	margins time.Duration
}

func (w *receiptTrust) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	sent := w.clock.Now()
	lease, err := w.Store.Acquire(ctx, group, c, ttl)
	lease.Remaining += w.clock.Now() - sent + w.margins
	return lease, err
}

func (w *receiptTrust) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	sent := w.clock.Now()
	lease, err := w.Store.Renew(ctx, id, extend)
	lease.Remaining += w.clock.Now() - sent + w.margins
	return lease, err
}

// withCapabilities gives a wrapper those optional parts of the store below it
// that electors use.
func withCapabilities(wrapper, store baton.Store) baton.Store {
	line, hasLine := store.(baton.Line)
	ender, hasEnder := store.(baton.Ender)
	switch {
	case hasLine && hasEnder:
		return struct {
			baton.Store
			baton.Line
			baton.Ender
		}{wrapper, line, ender}
	case hasLine:
		return struct {
			baton.Store
			baton.Line
		}{wrapper, line}
	case hasEnder:
		return struct {
			baton.Store
			baton.Ender
		}{wrapper, ender}
	}
	return wrapper
}
