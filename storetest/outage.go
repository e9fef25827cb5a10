package storetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"baton"
)

// Outage is a client that holds a lease, watches and waits when its server fails.
type Outage struct {
	t        T
	store    baton.Store
	lease    baton.Lease
	group    string
	patience time.Duration
	watching chan error // what the watch ended with
	waiting  chan error // what the wait ended with; nil if the store has no line
}

// BeforeOutage takes a lease, long enough to outlast the outage, a watch and a
// place in line.
func BeforeOutage(t T, s baton.Store) *Outage {
	t.Helper()
	o := &Outage{t: t, store: s, group: freshGroup(), patience: time.Minute, watching: make(chan error, 1)}
	c := candidate("node-a")
	// The timeout of a store that is to fail is short: a busy machine may take longer.
	eventually(t, o.patience, "a lease before the outage", func() bool {
		var err error
		o.lease, err = s.Acquire(t.Context(), o.group, c, s.Guarantees().MaxTTL)
		if err != nil && !errors.Is(err, baton.ErrUnavailable) {
			t.Fatalf("acquire before the outage: %v", err)
		}
		return err == nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	began := make(chan struct{}, 1)
	running.Go(func() {
		var last error
		for _, err := range s.Watch(ctx, o.group, "") {
			last = err
			select {
			case began <- struct{}{}:
			default:
			}
		}
		o.watching <- last
	})
	<-began
	if line, ok := s.(baton.Line); ok {
		o.waiting = make(chan error, 1)
		running.Go(func() { o.waiting <- line.Await(ctx, o.group, candidate("node-b")) })
	}
	return o
}

// During wants every call, and what was under way, to say baton.ErrUnavailable
// in bounded time.
func (o *Outage) During() {
	o.t.Helper()
	ctx, s := o.t.Context(), o.store
	id := o.lease.ID()
	id.Group = freshGroup()
	calls := map[string]func() error{
		"acquire":   func() error { _, err := s.Acquire(ctx, o.group, candidate("node-c"), o.lease.TTL); return err },
		"renew":     func() error { _, err := s.Renew(ctx, o.lease.ID(), o.lease.TTL); return err },
		"release":   func() error { return s.Release(ctx, id) },
		"get":       func() error { _, err := s.Get(ctx, o.group); return err },
		"the watch": func() error { return <-o.watching },
	}
	if o.waiting != nil {
		calls["the wait"] = func() error { return <-o.waiting }
	}
	if e, ok := s.(baton.Ender); ok {
		calls["end"] = func() error { return e.End(ctx, id.Group, 1, baton.Ending{Reason: baton.SteppedDown}) }
	}
	if h, ok := s.(baton.Historian); ok {
		calls["history"] = func() error { _, err := h.History(ctx, o.group); return err }
	}
	if r, ok := s.(baton.Registry); ok {
		calls["group"] = func() error { _, err := r.Group(ctx, o.group); return err }
		calls["groups"] = func() error { _, err := r.Groups(ctx); return err }
		calls["put group"] = func() error { _, err := r.PutGroup(ctx, baton.Group{ID: id.Group}); return err }
		calls["delete group"] = func() error { return r.DeleteGroup(ctx, id.Group) }
	}
	answers := map[string]chan error{}
	for what, call := range calls {
		answer := make(chan error, 1)
		answers[what] = answer
		go func() { answer <- call() }()
	}
	late := time.After(o.patience)
	for what, answer := range answers {
		select {
		case err := <-answer:
			if !errors.Is(err, baton.ErrUnavailable) {
				o.t.Errorf("%s while the server is away: got %v, want ErrUnavailable", what, err)
			}
		case <-late:
			o.t.Fatalf("%s while the server is away: still not back after %v", what, o.patience)
		}
	}
}

// After wants the same handle to go on with the same lease.
func (o *Outage) After() {
	o.t.Helper()
	eventually(o.t, o.patience, "the same store to go on with the same lease", func() bool {
		l, err := o.store.Renew(o.t.Context(), o.lease.ID(), o.lease.TTL)
		if errors.Is(err, baton.ErrNotLeader) {
			o.t.Fatalf("renew after the outage: %v", err)
		}
		return err == nil && l.Remaining > 0
	})
}
