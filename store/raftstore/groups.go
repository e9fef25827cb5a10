package raftstore

import (
	"context"
	"fmt"
	"time"

	"baton"
)

// Group returns what is registered of a group.
func (s *Store) Group(ctx context.Context, id string) (baton.Group, error) {
	if err := baton.ValidateID("group_id", id); err != nil {
		return baton.Group{}, err
	}
	asked := s.clock.Now()
	a, err := s.do(ctx, request{Op: "group", Group: id})
	if err != nil {
		return baton.Group{}, err
	}
	s.mu.Lock()
	s.recency.note(told{asked, a.Index}, s.applied)
	s.mu.Unlock()
	if a.Group == nil {
		return baton.Group{}, fmt.Errorf("group %q: %w", id, baton.ErrNotFound)
	}
	return *a.Group, nil
}

// told is what the leader of the cluster once said: a copy of the state that has
// this entry has all that was acknowledged before the clock said so.
type told struct {
	at    time.Duration
	index uint64 // 0: nothing
}

// recency is how recent this server's copy of the state is.
type recency struct {
	now told
	// next is not reached yet. Until it is, what is told later is not waited for: the copy of a busy
	// cluster is always a little behind.
	next told
}

func (r *recency) note(t told, applied uint64) {
	r.reach(applied)
	if r.next.index == 0 {
		r.next = t
		r.reach(applied)
	}
}

func (r *recency) reach(applied uint64) {
	if r.next.index == 0 || applied < r.next.index {
		return
	}
	if r.now.index == 0 || r.now.at < r.next.at {
		r.now = r.next
	}
	r.next = told{}
}

// RecentGroup returns what is registered of a group by this server's own copy
// of the state; its version is 0 if it is not. known is false if the copy may
// be older than age, as it is if Group has not been called for that long: to hear of the
// leader is not enough, because raft's heartbeats say nothing of what was committed.
func (s *Store) RecentGroup(id string, age time.Duration) (g baton.Group, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recency.reach(s.applied)
	if s.recency.now.index == 0 || s.clock.Now()-s.recency.now.at > age || s.applied < s.written {
		return baton.Group{}, false
	}
	if g, known = s.record.Group(id); !known {
		g = baton.Group{ID: id}
	}
	return g, true
}

// PutGroup registers a group if its version is the current one.
func (s *Store) PutGroup(ctx context.Context, g baton.Group) (baton.Group, error) {
	if err := g.Validate(); err != nil {
		return baton.Group{}, err
	}
	a, err := s.wrote(s.do(ctx, request{Op: "put group", Put: &g}))
	if err != nil {
		return baton.Group{}, err
	}
	return *a.Group, nil
}

// DeleteGroup forgets a vacant group, and nothing of its terms.
func (s *Store) DeleteGroup(ctx context.Context, id string) error {
	if err := baton.ValidateID("group_id", id); err != nil {
		return err
	}
	_, err := s.wrote(s.do(ctx, request{Op: "delete group", Group: id}))
	return err
}

// wrote remembers how far this server's copy must be for what was just written to be in it.
func (s *Store) wrote(a response, err error) (response, error) {
	if err == nil {
		s.mu.Lock()
		s.written = max(s.written, a.Index)
		s.mu.Unlock()
	}
	return a, err
}

// Groups lists all groups, ordered by id.
func (s *Store) Groups(ctx context.Context) ([]baton.Group, error) {
	a, err := s.do(ctx, request{Op: "groups"})
	return a.Groups, err
}
