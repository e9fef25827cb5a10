package baton

import (
	"context"
	"sync"
	"time"
)

// groupState follows a group by a watch, for candidates of a store without a
// line. It is a hint: it says when asking makes sense, not what the answer will be.
type groupState struct {
	e      *LeaseElector
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	vacant  bool
	healthy bool
	changed chan struct{} // closed and replaced at every change
}

func (e *LeaseElector) watchState(lease Lease) *groupState {
	ctx, cancel := context.WithCancel(e.closing)
	s := &groupState{e: e, cancel: cancel, done: make(chan struct{}), changed: make(chan struct{}), vacant: !lease.Held()}
	go s.follow(ctx)
	return s
}

func (s *groupState) close() {
	s.cancel()
	<-s.done
}

func (s *groupState) follow(ctx context.Context) {
	defer close(s.done)
	pause := s.e.newBackoff()
	for {
		for ev, err := range s.e.store.Watch(ctx, s.e.cfg.Group, "") {
			if err != nil {
				s.set(s.isVacant(), false)
				break
			}
			pause.reset()
			s.set(ev.Type == LeaderLost, true)
		}
		if pause.wait(ctx) != nil {
			return
		}
	}
}

func (s *groupState) set(vacant, healthy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vacant != vacant || s.healthy != healthy {
		s.vacant, s.healthy = vacant, healthy
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

func (s *groupState) isVacant() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vacant
}

func (s *groupState) look() (vacant, healthy bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vacant, s.healthy, s.changed
}

// awaitVacancy returns when it makes sense to ask again: a random while after
// the group was seen to be vacant, so that not all ask at once and most see
// that another one was faster; or long enough after the lease's end that the watch must have failed us.
func (s *groupState) awaitVacancy(ctx context.Context, held *HeldError, pause *backoff) error {
	e := s.e
	overdue := max(held.Lease.Remaining, e.cfg.RetryMin) + e.store.Guarantees().ExpiryLag + e.jitter(e.cfg.TTL)
	timeout, cancel := context.WithCancel(ctx)
	defer cancel()
	late := after(timeout, e.cfg.Clock, overdue)
	for {
		vacant, healthy, changed := s.look()
		if !vacant || !healthy {
			select {
			case <-changed:
				continue
			case <-late:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		select {
		case <-changed:
		case <-after(timeout, e.cfg.Clock, max(pause.next(), held.turnLeft())):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitLeader returns when the group is seen to have a leader, or when long has passed.
func (s *groupState) awaitLeader(ctx context.Context, long time.Duration) error {
	timeout, cancel := context.WithCancel(ctx)
	defer cancel()
	late := after(timeout, s.e.cfg.Clock, long)
	for {
		vacant, healthy, changed := s.look()
		if healthy && !vacant {
			return nil
		}
		select {
		case <-changed:
		case <-late:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// turnLeft is how long a vacant group is kept for the one whose turn it is.
func (e *HeldError) turnLeft() time.Duration {
	if e.Lease.Held() {
		return 0
	}
	return e.RetryAfter
}

func (e *LeaseElector) jitter(d time.Duration) time.Duration {
	return time.Duration(e.cfg.Jitter() * float64(d))
}
