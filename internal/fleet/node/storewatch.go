package node

import (
	"context"
	"iter"
	"time"

	"baton"
	"baton/internal/fleet"
)

// watchStore takes note of everything that the node asks of its store.
func watchStore(store baton.Store, n *Node) baton.Store {
	return withCapabilities(&storeWatch{Store: store, node: n}, store)
}

type storeWatch struct {
	baton.Store
	node *Node
}

// called takes note of a call after its end, with the lease that it is about.
func (w *storeWatch) called(call string, sent int64, lease baton.Lease, err error) {
	w.node.metrics.calls.WithLabelValues(call).Inc()
	e := fleet.Event{Type: fleet.Called, Reason: call, SentAt: sent, Nanos: fleet.Now() - sent}
	if err != nil {
		e.Cause = err.Error()
	}
	if lease.Held() {
		e.Term, e.Instance, e.Remaining = lease.Term, lease.InstanceID, int64(lease.Remaining)
	}
	w.node.events.Log(e)
}

func (w *storeWatch) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	sent := fleet.Now()
	lease, err := w.Store.Acquire(ctx, group, c, ttl)
	w.called("acquire", sent, lease, err)
	return lease, err
}

func (w *storeWatch) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	sent := fleet.Now()
	lease, err := w.Store.Renew(ctx, id, extend)
	w.called("renew", sent, lease, err)
	w.node.metrics.renewed(err)
	return lease, err
}

func (w *storeWatch) Release(ctx context.Context, id baton.LeaseID) error {
	sent := fleet.Now()
	err := w.Store.Release(ctx, id)
	w.called("release", sent, baton.Lease{Term: id.Term, NodeID: id.NodeID, InstanceID: id.InstanceID}, err)
	return err
}

func (w *storeWatch) Get(ctx context.Context, group string) (baton.Lease, error) {
	sent := fleet.Now()
	lease, err := w.Store.Get(ctx, group)
	w.called("get", sent, baton.Lease{}, err) // it may be anybody's
	return lease, err
}

// Watch counts once, however much it yields.
func (w *storeWatch) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	w.called("watch", fleet.Now(), baton.Lease{}, nil)
	return w.Store.Watch(ctx, group, after)
}

// lineWatch does the same for the line of a store.
type lineWatch struct {
	line  baton.Line
	watch *storeWatch
}

func (w lineWatch) Await(ctx context.Context, group string, c baton.Candidate) error {
	sent := fleet.Now()
	err := w.line.Await(ctx, group, c)
	w.watch.called("await", sent, baton.Lease{}, err)
	return err
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
	if watch, ok := wrapper.(*storeWatch); ok && hasLine {
		line = lineWatch{line, watch}
	}
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
