package storetest

import (
	"context"
	"iter"
	"math/rand/v2"
	"time"

	"baton"
	"baton/storetest/internal/capability"
)

// Faulty puts a bad network between a client and its store. The wrapper is a
// Line, an Ender, a Historian or a Registry exactly if inner is one.
//
// Close waits for what the wrapper has in the air, and closes inner.
func Faulty(inner baton.Store, cfg FaultConfig) (baton.Store, *Faults) {
	if cfg.Clock == nil {
		cfg.Clock = baton.SystemClock()
	}
	f := &Faults{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0)), downUntil: longAgo, injected: map[string]int{}}
	f.life, f.stop = context.WithCancel(context.Background())
	can := capability.Of(inner)
	if can.Line != nil {
		can.Line = faultyLine{can.Line, f}
	}
	if can.Ender != nil {
		can.Ender = faultyEnder{can.Ender, f}
	}
	if can.Historian != nil {
		can.Historian = faultyHistorian{can.Historian, f}
	}
	if can.Registry != nil {
		can.Registry = faultyRegistry{can.Registry, f}
	}
	return capability.Join(&faulty{inner, f}, can), f
}

type faulty struct {
	inner baton.Store
	f     *Faults
}

func (s *faulty) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	return call(ctx, s.f, "acquire", func(ctx context.Context) (baton.Lease, error) {
		return s.inner.Acquire(ctx, group, c, ttl)
	})
}

func (s *faulty) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	return call(ctx, s.f, "renew", func(ctx context.Context) (baton.Lease, error) {
		return s.inner.Renew(ctx, id, extend)
	})
}

func (s *faulty) Release(ctx context.Context, id baton.LeaseID) error {
	return callFor(ctx, s.f, "release", func(ctx context.Context) error { return s.inner.Release(ctx, id) })
}

func (s *faulty) Get(ctx context.Context, group string) (baton.Lease, error) {
	return call(ctx, s.f, "get", func(ctx context.Context) (baton.Lease, error) { return s.inner.Get(ctx, group) })
}

// Watch delays events and breaks off; it never loses or repeats one, since a
// stream does not.
func (s *faulty) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	return func(yield func(baton.Event, error) bool) {
		for ev, err := range s.inner.Watch(ctx, group, after) {
			ft := s.f.draw()
			if err == nil && (ft.down || ft.lostRequest || ft.lostReply || ft.late) {
				yield(baton.Event{}, unavailable("watch", errDown))
				return
			}
			if late := s.f.wait(ctx, ft.before); late != nil && err == nil {
				yield(baton.Event{}, late)
				return
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

func (s *faulty) Guarantees() baton.Guarantees { return s.inner.Guarantees() }

func (s *faulty) Close() error {
	s.f.close()
	return s.inner.Close()
}

func callFor(ctx context.Context, f *Faults, op string, do func(context.Context) error) error {
	_, err := call(ctx, f, op, func(ctx context.Context) (struct{}, error) { return struct{}{}, do(ctx) })
	return err
}

type faultyLine struct {
	inner baton.Line
	f     *Faults
}

// Await holds a connection open: it is lost or delayed as a whole, and never goes on without its caller.
func (s faultyLine) Await(ctx context.Context, group string, c baton.Candidate) error {
	ft := s.f.draw()
	switch {
	case ft.down:
		return unavailable("await", errDown)
	case ft.lostRequest || ft.late:
		return unavailable("await", errLostRequest)
	}
	if err := s.f.wait(ctx, ft.before); err != nil {
		return err
	}
	err := s.inner.Await(ctx, group, c)
	_, err = reply(ctx, s.f, "await", ft, struct{}{}, err)
	return err
}

type faultyEnder struct {
	inner baton.Ender
	f     *Faults
}

func (s faultyEnder) End(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	return callFor(ctx, s.f, "end", func(ctx context.Context) error { return s.inner.End(ctx, group, term, e) })
}

type faultyHistorian struct {
	inner baton.Historian
	f     *Faults
}

func (s faultyHistorian) History(ctx context.Context, group string) ([]baton.PastTerm, error) {
	return call(ctx, s.f, "history", func(ctx context.Context) ([]baton.PastTerm, error) { return s.inner.History(ctx, group) })
}

type faultyRegistry struct {
	inner baton.Registry
	f     *Faults
}

func (s faultyRegistry) Group(ctx context.Context, id string) (baton.Group, error) {
	return call(ctx, s.f, "group", func(ctx context.Context) (baton.Group, error) { return s.inner.Group(ctx, id) })
}

func (s faultyRegistry) PutGroup(ctx context.Context, g baton.Group) (baton.Group, error) {
	return call(ctx, s.f, "put group", func(ctx context.Context) (baton.Group, error) { return s.inner.PutGroup(ctx, g) })
}

func (s faultyRegistry) DeleteGroup(ctx context.Context, id string) error {
	return callFor(ctx, s.f, "delete group", func(ctx context.Context) error { return s.inner.DeleteGroup(ctx, id) })
}

func (s faultyRegistry) Groups(ctx context.Context) ([]baton.Group, error) {
	return call(ctx, s.f, "groups", func(ctx context.Context) ([]baton.Group, error) { return s.inner.Groups(ctx) })
}
