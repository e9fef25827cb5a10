package httpfence

import (
	"context"
	"fmt"
	"sync"

	"baton"
	"baton/fence"
)

// gate is the way into one resource.
type gate struct {
	resource string
	backing  fence.Ledger // nil if the record is kept in memory alone

	mu sync.Mutex
	// record is the highest leadership seen, announced or adopted.
	record fence.Record
	// adopted says that nothing of an earlier leadership is inside.
	adopted bool
	inside  map[*visit]struct{}
	ordered *visit        // the one of those inside that is ordered, if any
	changed chan struct{} // closed and replaced whenever someone may go on who waits
}

// visit is one write that is let in, until it leaves.
type visit struct {
	claim fence.Claim
	// pass tells it that its leadership is past. It must not block.
	pass func(cause error)
}

func newGate(resource string, backing fence.Ledger, r fence.Record) *gate {
	return &gate{
		resource: resource, backing: backing,
		record: r, adopted: r.Adopted(), // whatever was inside ended with the process before
		inside: make(map[*visit]struct{}), changed: make(chan struct{}),
	}
}

func (g *gate) read() fence.Record {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.record
}

func (g *gate) broadcast() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// await gives up the lock until something changed.
func (g *gate) await(ctx context.Context) error {
	changed := g.changed
	g.mu.Unlock()
	defer g.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enter lets v in or says why not. Whoever is let in must leave.
func (g *gate) enter(ctx context.Context, v *visit) error {
	if err := g.admit(ctx, v); err != nil {
		return err
	}
	if _, ordered := v.claim.Seq(); !ordered || g.backing == nil {
		return nil
	}
	// The number has to be spent for good before anything comes of it.
	if err := g.backing.Advance(ctx, g.resource, v.claim); err != nil {
		g.leave(v)
		return g.learn(ctx, err)
	}
	return nil
}

func (g *gate) admit(ctx context.Context, v *visit) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		if in, err := g.letIn(v); in || err != nil {
			return err
		}
		hasCopy := g.ordered.claim == v.claim
		if err := g.await(ctx); err != nil {
			err = fmt.Errorf("wait for the ordered write before %v: %w", v.claim, err)
			if hasCopy {
				return err // that one may land: it is not for its copy to say that it did not
			}
			return &fence.AbortedError{Err: err}
		}
	}
}

// letIn lets v in, refuses it, or leaves it to wait for the ordered one inside.
func (g *gate) letIn(v *visit) (in bool, err error) {
	if g.undecided(v.claim) {
		return false, nil
	}
	r, err := g.record.Admit(g.resource, v.claim)
	if err != nil {
		return false, err
	}
	if !g.adopted {
		return false, &fence.NotAdoptedError{Resource: g.resource, Offered: v.claim, Held: g.record}
	}
	if _, ordered := v.claim.Seq(); ordered {
		if g.ordered != nil {
			return false, nil
		}
		g.ordered = v
	}
	g.record = r
	g.inside[v] = struct{}{}
	return true, nil
}

// undecided: a copy of the write, or one before it that its sender may ask
// about by sending this one, is still inside. A refusal would be taken to say
// that what has not landed by now never will.
func (g *gate) undecided(c fence.Claim) bool {
	seq, ordered := c.Seq()
	if !ordered || g.ordered == nil {
		return false
	}
	inside, _ := g.ordered.claim.Seq()
	return g.ordered.claim.Token() == c.Token() && inside <= seq
}

func (g *gate) leave(v *visit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inside, v)
	if g.ordered == v {
		g.ordered = nil
	}
	g.broadcast()
}

// adopt announces t, then waits for the past to leave.
func (g *gate) adopt(ctx context.Context, t baton.Token) (fence.Record, error) {
	if err := g.announce(t); err != nil {
		return fence.Record{}, err
	}
	if g.backing != nil {
		if _, err := g.backing.Adopt(ctx, g.resource, t); err != nil {
			return fence.Record{}, g.learn(ctx, err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		// A later leadership may have come while this one waited.
		r, err := g.record.Adopt(g.resource, t)
		if err != nil {
			return fence.Record{}, err
		}
		past := g.past()
		if past == 0 {
			g.adopted = true
			return r, nil
		}
		if err := g.await(ctx); err != nil {
			return fence.Record{}, fmt.Errorf("adopt resource %q: wait for %d writes of the past to end: %w", g.resource, past, err)
		}
	}
}

func (g *gate) announce(t baton.Token) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	r, err := g.record.Adopt(g.resource, t)
	if err == nil && r != g.record {
		g.raise(r)
	}
	return err
}

// raise makes r the highest leadership seen.
func (g *gate) raise(r fence.Record) {
	g.record, g.adopted = r, false
	for v := range g.inside {
		if v.claim.Token() != r.Token() {
			v.pass(&fence.StaleError{Resource: g.resource, Offered: v.claim, Held: r})
		}
	}
	g.broadcast()
}

// past counts those inside that are not of the record's leadership.
func (g *gate) past() int {
	n := 0
	for v := range g.inside {
		if v.claim.Token() != g.record.Token() {
			n++
		}
	}
	return n
}

// learn takes over what the backing ledger refused with, and passes err on.
// That ledger is the authority: what it holds replaces what was announced here.
func (g *gate) learn(ctx context.Context, err error) error {
	if !fence.Refused(err) {
		return err
	}
	held, e := g.backing.Read(ctx, g.resource)
	if e != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case held.Group != g.record.Group, held.Term > g.record.Term:
		g.raise(held)
	default:
		g.record.LastSeq = max(held.LastSeq, g.record.LastSeq)
	}
	return err
}
