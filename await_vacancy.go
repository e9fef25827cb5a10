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
	term    Term // that is led, or was the last
	healthy bool
	changed chan struct{} // closed and replaced at every change
}

func (e *LeaseElector) watchState(lease Lease) *groupState {
	ctx, cancel := context.WithCancel(e.closing)
	s := &groupState{e: e, cancel: cancel, done: make(chan struct{}), changed: make(chan struct{}), vacant: !lease.Held(), term: lease.Term}
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
				s.lostSight()
				break
			}
			pause.reset()
			s.set(ev.Type == LeaderLost, ev.Term)
		}
		if pause.wait(ctx) != nil {
			return
		}
	}
}

func (s *groupState) set(vacant bool, term Term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vacant != vacant || s.term != term || !s.healthy {
		s.vacant, s.term, s.healthy = vacant, term, true
		s.announce()
	}
}

func (s *groupState) lostSight() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.healthy {
		s.healthy = false
		s.announce()
	}
}

func (s *groupState) announce() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// look tells whether the group was seen to be vacant after the lease known, or seen to be led.
// It is neither while the watch fails, or lags behind.
func (s *groupState) look(known Lease) (vacant, led bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	current := s.healthy && (s.term >= known.Term || !known.Held())
	return current && s.vacant, current && !s.vacant, s.changed
}

// awaitVacancy returns when it makes sense to ask again: a random while after
// the group was seen to be vacant, so that not all ask at once and most see
// that another one was faster; or long enough after the lease's end that the watch must have failed us.
func (s *groupState) awaitVacancy(ctx context.Context, held *HeldError, pause *backoff) error {
	e := s.e
	overdue := min(max(held.Lease.Remaining, e.cfg.RetryMin), MaxTTL) + e.store.Guarantees().ExpiryLag + e.jitter(e.cfg.TTL)
	late, stop := after(e.cfg.Clock, overdue)
	defer stop()
	for {
		vacant, _, changed := s.look(held.Lease)
		if !vacant {
			select {
			case <-changed:
				continue
			case <-late:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		due, stop := after(e.cfg.Clock, max(pause.next(), min(held.turnLeft(), e.cfg.RetryMax)))
		select {
		case <-changed:
			stop()
		case <-due:
			return nil
		case <-ctx.Done():
			stop()
			return ctx.Err()
		}
	}
}

// awaitLeader returns when the group is seen to have a leader, or when long has passed.
func (s *groupState) awaitLeader(ctx context.Context, long time.Duration) error {
	late, stop := after(s.e.cfg.Clock, long)
	defer stop()
	for {
		_, led, changed := s.look(Lease{})
		if led {
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
