package raftstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/hashicorp/raft"

	"baton"
	"baton/internal/feed"
	"baton/internal/leasefsm"
)

// Any server takes any request. The one that leads the cluster answers it; the
// others pass it on over the peer port.

// request is a store call on its way to the leader. One field beside Op is set for each kind.
type request struct {
	Op        string
	Group     string           `json:",omitempty"`
	Candidate *baton.Candidate `json:",omitempty"`
	ID        *baton.LeaseID   `json:",omitempty"`
	TTL       time.Duration    `json:",omitempty"`
	Term      baton.Term       `json:",omitempty"`
	Ending    *baton.Ending    `json:",omitempty"`
	Put       *baton.Group     `json:",omitempty"`
	Server    string           `json:",omitempty"`
	Address   string           `json:",omitempty"`
}

// response is what came of it.
type response struct {
	Lease   *baton.Lease     `json:",omitempty"`
	Group   *baton.Group     `json:",omitempty"`
	Groups  []baton.Group    `json:",omitempty"`
	History []baton.PastTerm `json:",omitempty"`
	Index   uint64           `json:",omitempty"`
	Error   *wireError       `json:",omitempty"`
}

// serve answers a request if this server leads the cluster. It ends with ctx, and
// with the reign, which ends when the store is closed.
func (s *Store) serve(ctx context.Context, q request) (response, error) {
	a, err := s.answer(ctx, q)
	s.cfg.trial.answer(q, a, err)
	return a, err
}

func (s *Store) answer(ctx context.Context, q request) (response, error) {
	s.mu.Lock()
	r := s.reign
	s.mu.Unlock()
	if r == nil {
		return response{}, &notServing{s.unavailableNow(q.Op)}
	}
	s.metrics.served.Add(1)
	switch q.Op {
	case "acquire":
		lease, err := r.acquire(ctx, q.Group, *q.Candidate, q.TTL)
		return response{Lease: &lease}, err
	case "renew":
		lease, err := r.renew(ctx, *q.ID, q.TTL)
		return response{Lease: &lease}, err
	case "release":
		return response{}, r.release(ctx, *q.ID)
	case "get":
		lease, err := r.get(ctx, q.Group)
		return response{Lease: &lease}, err
	case "await":
		return response{}, r.await(ctx, q.Group, *q.Candidate)
	case "end":
		return response{}, r.endLeadership(ctx, q.Group, q.Term, *q.Ending)
	case "put group":
		result := r.commit(ctx, q.Op, leasefsm.PutGroup{Group: *q.Put}, nil)
		return response{Group: &result.Group, Index: s.appliedNow()}, result.Err
	case "delete group":
		err := r.commit(ctx, q.Op, leasefsm.DeleteGroup{ID: q.Group}, nil).Err
		return response{Index: s.appliedNow()}, err
	case "group", "groups", "history", "index":
		return r.read(ctx, q)
	case "add server", "remove server":
		ctx, cancel := context.WithTimeout(ctx, changeTime)
		defer cancel()
		if q.Op == "add server" {
			return response{}, s.Add(ctx, q.Server, q.Address)
		}
		return response{}, s.Remove(ctx, q.Server)
	}
	return response{}, &baton.InvalidArgumentError{Field: "operation", Value: q.Op, Want: "one that this version knows"}
}

// read answers from the record after a round.
func (r *reign) read(ctx context.Context, q request) (a response, err error) {
	if err := r.confirmed(ctx, q.Op); err != nil {
		return response{}, err
	}
	err = r.under(q.Op, func(time.Duration) error {
		switch q.Op {
		case "index":
			a.Index = r.s.applied
		case "groups":
			a.Groups = r.s.record.Groups()
		case "history":
			a.History = r.s.record.History(q.Group)
		default:
			a.Index = r.s.applied
			if g, ok := r.s.record.Group(q.Group); ok {
				a.Group = &g
			}
		}
		return nil
	})
	return a, err
}

// notServing: whoever was asked does not lead the cluster, or no longer. The
// request can be taken to whoever does: nothing was done, or nothing that the same request
// would not find there and be answered by.
type notServing struct{ error }

func (e *notServing) Unwrap() error { return e.error }

// do takes a request to whoever leads the cluster. While nobody does, it waits
// for as long as an election takes, and then says so.
func (s *Store) do(ctx context.Context, q request) (response, error) {
	if err := ctx.Err(); err != nil {
		return response{}, fmt.Errorf("%s: %w", q.Op, err)
	}
	if s.closing.Err() != nil {
		return response{}, unavailable(q.Op, errClosed)
	}
	var patience context.Context // of whoever has to wait, which hardly anybody has
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		a, err := s.try(ctx, q)
		if err != nil && s.closing.Err() != nil && ctx.Err() == nil && !baton.IsAnswer(err) {
			return response{}, unavailable(q.Op, errClosed)
		}
		var elsewhere *notServing
		if err == nil || !errors.As(err, &elsewhere) {
			return a, err
		}
		if patience == nil {
			var cancel context.CancelFunc
			patience, cancel = context.WithTimeout(ctx, 3*s.cfg.ElectionTimeout)
			defer cancel()
		}
		select {
		case <-changed:
		case <-time.After(s.cfg.ElectionTimeout / 20):
		case <-s.closing.Done():
			return response{}, unavailable(q.Op, errClosed)
		case <-patience.Done():
			if ctx.Err() != nil {
				return response{}, fmt.Errorf("%s: %w", q.Op, ctx.Err())
			}
			return response{}, elsewhere.error
		}
	}
}

func (s *Store) try(ctx context.Context, q request) (response, error) {
	leader, id := s.raft.LeaderWithID()
	if id == s.id() || leader == "" {
		return s.serve(ctx, q)
	}
	s.metrics.forwarded.Add(1)
	lost := s.follow(id)
	passed, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(lost, cancel)()
	if q.Op != "await" {
		// Far above what a leader takes that still is one.
		passed, cancel = context.WithTimeout(passed, 10*s.cfg.ElectionTimeout)
		defer cancel()
	}
	a, err := s.peers.call(passed, s.addressee(raft.Server{ID: id, Address: leader}), q)
	if err != nil && lost.Err() != nil && ctx.Err() == nil && !baton.IsAnswer(err) {
		return response{}, unavailable(q.Op, fmt.Errorf("server %s was asked, and no longer leads the cluster", id))
	}
	return a, err
}

// followed is the raft leader that requests are passed on to.
type followed struct {
	id   raft.ServerID
	lost context.Context // ends when this server hears no more of it
	lose context.CancelFunc
}

// follow returns a context that ends when this server no longer takes id for
// the leader of the cluster. A request that was passed on to a server that is frozen, or
// gone, ends with it.
func (s *Store) follow(id raft.ServerID) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := &s.follows; f.lost == nil || f.id != id {
		if f.lose != nil {
			f.lose()
		}
		f.id = id
		f.lost, f.lose = context.WithCancel(s.closing)
	}
	return s.follows.lost
}

// Acquire grants a vacant group.
func (s *Store) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return baton.Lease{}, err
	}
	if err := c.Validate(); err != nil {
		return baton.Lease{}, err
	}
	if err := guarantees.ValidateTTL(ttl); err != nil {
		return baton.Lease{}, err
	}
	return lease(s.do(ctx, request{Op: "acquire", Group: group, Candidate: &c, TTL: ttl}))
}

// Renew lets exactly this leadership last for extend from now.
func (s *Store) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	if err := id.Validate(); err != nil {
		return baton.Lease{}, err
	}
	if err := guarantees.ValidateExtend(extend); err != nil {
		return baton.Lease{}, err
	}
	return lease(s.do(ctx, request{Op: "renew", ID: &id, TTL: extend}))
}

// Release ends exactly this leadership.
func (s *Store) Release(ctx context.Context, id baton.LeaseID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	_, err := s.do(ctx, request{Op: "release", ID: &id})
	return err
}

// Get reads the group.
func (s *Store) Get(ctx context.Context, group string) (baton.Lease, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return baton.Lease{}, err
	}
	return lease(s.do(ctx, request{Op: "get", Group: group}))
}

func lease(a response, err error) (baton.Lease, error) {
	if err != nil {
		return baton.Lease{}, err
	}
	return *a.Lease, nil
}

// Await waits in the line that the leader of the cluster keeps. It is lost with it.
func (s *Store) Await(ctx context.Context, group string, c baton.Candidate) error {
	if err := baton.ValidateID("group", group); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	_, err := s.do(ctx, request{Op: "await", Group: group, Candidate: &c})
	return err
}

// End ends the leadership of exactly this term, or begins to.
func (s *Store) End(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	if err := baton.ValidateID("group", group); err != nil {
		return err
	}
	if err := e.Validate(); err != nil {
		return err
	}
	_, err := s.do(ctx, request{Op: "end", Group: group, Term: term, Ending: &e})
	return err
}

// History returns the last terms of a group, oldest first.
func (s *Store) History(ctx context.Context, group string) ([]baton.PastTerm, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return nil, err
	}
	a, err := s.do(ctx, request{Op: "history", Group: group})
	return a.History, err
}

// Watch is served from this server's own copy of the state. If it begins with
// the current state, the leader of the cluster is asked how far that is, and the copy is
// waited for. A cursor that is ahead of the copy, as after a change to another
// server, is waited for too.
func (s *Store) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	if err := baton.ValidateID("group", group); err != nil {
		return func(yield func(baton.Event, error) bool) { yield(baton.Event{}, err) }
	}
	return func(yield func(baton.Event, error) bool) {
		if err := s.awaitCursor(ctx, after); err != nil {
			yield(baton.Event{}, fmt.Errorf("watch group %q: %w", group, err))
			return
		}
		for event, err := range s.feed.Watch(ctx, group, after, func() baton.Event {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.record.State(group)
		}) {
			if !yield(event, err) {
				return
			}
		}
	}
}

// awaitCursor waits until this server knows everything up to the cursor, or, if
// it is none of this cluster's, everything up to now.
func (s *Store) awaitCursor(ctx context.Context, after baton.Cursor) error {
	s.mu.Lock()
	cluster := s.cluster
	s.mu.Unlock()
	if cluster != "" {
		if at, ok := feed.ParseCursor(cluster, after); ok {
			return s.awaitApplied(ctx, at.Index)
		}
	}
	a, err := s.do(ctx, request{Op: "index"})
	if err != nil {
		return err
	}
	return s.awaitApplied(ctx, a.Index)
}

func (s *Store) appliedNow() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applied
}

// awaitApplied waits until this server's copy has everything up to this entry.
func (s *Store) awaitApplied(ctx context.Context, index uint64) error {
	for {
		s.mu.Lock()
		applied, progress := s.applied, s.progress
		s.mu.Unlock()
		if applied >= index {
			return nil
		}
		select {
		case <-progress:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing.Done():
			return unavailable("read", errClosed)
		}
	}
}
