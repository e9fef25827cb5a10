package fence

import (
	"context"
	"fmt"
	"sync"

	"baton"
)

// Memory is a ledger for resources that live and die with this process. It
// forgets when the process ends; a resource that survives it needs a ledger
// that does too, or a leader of the past could adopt it again.
//
// The zero Memory is ready for use.
type Memory struct {
	mu        sync.Mutex
	resources map[string]*guarded
}

// guarded is a record with the lock under which writes to the resource happen.
type guarded struct {
	hold queueLock

	mu     sync.Mutex // held for moments, by whoever has hold
	record Record
}

var _ Ledger = (*Memory)(nil)

// find returns the resource, nil if nobody has adopted it: names that come
// from outside take no memory.
func (m *Memory) find(name string) *guarded {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.resources[name]
}

func (m *Memory) findOrCreate(name string) *guarded {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.resources[name]
	if g == nil {
		g = new(guarded)
		if m.resources == nil {
			m.resources = make(map[string]*guarded)
		}
		m.resources[name] = g
	}
	return g
}

// Adopt implements Ledger. It waits for the effects that are under way.
func (m *Memory) Adopt(ctx context.Context, resource string, t baton.Token) (Record, error) {
	if err := validate(resource, Unordered(t)); err != nil {
		return Record{}, err
	}
	g := m.findOrCreate(resource)
	if err := g.hold.lock(ctx, true); err != nil {
		return Record{}, fmt.Errorf("adopt resource %q: %w", resource, err)
	}
	defer g.hold.unlock(true)
	g.mu.Lock()
	defer g.mu.Unlock()
	r, err := g.record.Adopt(resource, t)
	if err != nil {
		return Record{}, Report(ctx, err)
	}
	g.record = r
	return r, nil
}

// Write calls effect if c is let in. Until effect has returned nobody adopts
// the resource; unordered writes do not wait for each other, ordered ones do.
// The number of an ordered write is spent even if effect fails, and what effect
// returns is returned: Memory cannot undo it.
func (m *Memory) Write(ctx context.Context, resource string, c Claim, effect func(ctx context.Context) error) error {
	if err := validate(resource, c); err != nil {
		return err
	}
	g := m.find(resource)
	if g == nil {
		_, err := Record{}.Admit(resource, c)
		return err
	}
	if err := g.hold.lock(ctx, c.ordered); err != nil {
		return &AbortedError{Err: fmt.Errorf("write %v to resource %q: %w", c, resource, err)}
	}
	defer g.hold.unlock(c.ordered)
	if err := g.admit(resource, c); err != nil {
		return Report(ctx, err)
	}
	return effect(ctx)
}

func (g *guarded) admit(resource string, c Claim) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	r, err := g.record.Admit(resource, c)
	if err == nil {
		g.record = r
	}
	return err
}

// Advance implements Ledger.
func (m *Memory) Advance(ctx context.Context, resource string, c Claim) error {
	if err := RequireOrdered(c); err != nil {
		return err
	}
	return m.Write(ctx, resource, c, func(context.Context) error { return nil })
}

// Read implements Ledger.
func (m *Memory) Read(_ context.Context, resource string) (Record, error) {
	if err := ValidateResource(resource); err != nil {
		return Record{}, err
	}
	g := m.find(resource)
	if g == nil {
		return Record{}, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.record, nil
}
