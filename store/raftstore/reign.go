package raftstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"baton"
	"baton/internal/leasefsm"
	"baton/internal/line"
)

var errReignOver = errors.New("this server no longer leads the cluster")

// reign is what a raft leader knows in one raft term and forgets with it: until
// when leases last, who waits in line, what is being ended. A server that
// leads again, in a later term, begins anew.
type reign struct {
	s         *Store
	term      uint64
	line      *line.Line
	rounds    *rounds
	life      context.Context
	end       context.CancelFunc
	proposals proposals
	owned     sync.WaitGroup

	// Guarded by s.mu.
	deadlines *leasefsm.Deadlines
	// endings are the leaderships whose end has been proposed: closed to
	// renewal, and nobody knows yet. The channel is closed when the fate is known.
	endings map[string]chan struct{}
	// marking counts the gentle endings of a group that are being committed.
	marking map[string]int
	// asked is when the latest Acquire of a candidate came whose grant is under way. Terms are 0.
	asked map[baton.LeaseID]time.Duration
	// outdated: the record has moved on in another raft term, without the deadlines.
	outdated  bool
	stopAlarm func() bool
	alarmAt   time.Duration
	alarmSet  bool
}

// watchRaft begins and ends reigns as raft's leadership comes and goes.
//
// Raft's channel keeps only the latest news, so that a leadership lost and
// won again may go unnoticed there. The raft term tells: it is compared at every
// look, and nothing is acknowledged in between, because rounds and commits
// compare it too.
func (s *Store) watchRaft() {
	tick := time.NewTicker(s.cfg.ElectionTimeout / 4)
	defer tick.Stop()
	for {
		s.lookAtRaft()
		select {
		case <-s.raft.LeaderCh():
		case <-s.kicks:
		case <-tick.C:
		case <-s.closing.Done():
			s.mu.Lock()
			r := s.reign
			s.mu.Unlock()
			if r != nil {
				r.over()
			}
			return
		}
	}
}

// kick makes watchRaft look.
func (s *Store) kick() {
	select {
	case s.kicks <- struct{}{}:
	default:
	}
}

func (s *Store) lookAtRaft() {
	s.mu.Lock()
	r := s.reign
	s.mu.Unlock()
	if r != nil && !s.leads(r.term) {
		r.over()
		r = nil
	}
	_, leader := s.raft.LeaderWithID()
	s.follow(leader)
	if leader != "" && leader != s.id() {
		s.attends.Forget()
	}
	if r == nil && s.raft.State() == raft.Leader {
		s.beginReign(s.raft.CurrentTerm())
	}
}

// beginReign commits the first entry of a raft term, which makes everything
// that was acknowledged before part of the state here, and then arms
// every live lease with its full TTL from now on.
func (s *Store) beginReign(term uint64) {
	t := s.cfg.trial
	if t != nil && t.armsFirst {
		s.reignIn(term)
	}
	e := entry{term: term, cluster: rand.Text()}
	future := s.raft.Apply(e.encode(), s.cfg.ElectionTimeout)
	if _, err := resultsOf(future); err != nil {
		s.log.Debug("could not begin a reign", "raft_term", term, "err", err)
		return
	}
	t.holdUp()
	if t == nil || !t.armsFirst {
		s.reignIn(term)
	}
}

// reignIn arms and serves.
func (s *Store) reignIn(term uint64) {
	r := &reign{
		s: s, term: term,
		deadlines: leasefsm.NewDeadlines(),
		endings:   map[string]chan struct{}{},
		marking:   map[string]int{},
		asked:     map[baton.LeaseID]time.Duration{},
	}
	r.life, r.end = context.WithCancel(s.closing)
	r.line = line.New(s.clock, r.vacant)
	r.rounds = &rounds{cluster: s, term: term, timeout: s.cfg.ElectionTimeout, life: r.life, count: s.metrics.round}
	if t := s.cfg.trial; t != nil && t.verifiesLeader {
		r.rounds.instead = func() error { return s.raft.VerifyLeader().Error() }
	}

	s.mu.Lock()
	now := s.clock.Now()
	leases := 0
	for lease := range s.record.Leases() {
		r.deadlines.Arm(lease.Group, lease.Term, lease.TTL, now)
		leases++
	}
	for group, successor := range s.record.Successors() {
		r.line.Open(group, successor, line.SuccessorKept)
	}
	s.reign = r
	r.setAlarm(now)
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()

	s.log.Info("leads the cluster", "raft_term", term, "leases", leases)
}

// over ends the reign. Whoever waits for something of it gets ErrUnavailable.
func (r *reign) over() {
	s := r.s
	s.mu.Lock()
	if s.reign == r {
		s.reign = nil
		close(s.changed)
		s.changed = make(chan struct{})
	}
	if r.stopAlarm != nil {
		r.stopAlarm()
	}
	for group, fate := range r.endings {
		close(fate)
		delete(r.endings, group)
	}
	s.mu.Unlock()
	r.end()
	r.line.Close()
	r.refuseRest()
	r.owned.Wait()
	r.rounds.close()
	s.log.Info("no longer leads the cluster", "raft_term", r.term)
}

// vacant tells the line about a group it knows nothing of.
func (r *reign) vacant(_ context.Context, group string) (bool, error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.s.reign != r {
		return false, unavailable("await", errReignOver)
	}
	return !r.s.record.Get(group).Held(), nil
}

// closed begins the end of a leadership that is open: from here on nobody
// renews it. The caller proposes, and calls the returned function when the
// fate is known. Called under s.mu.
func (r *reign) closed(group string, term baton.Term) (settle func(err error)) {
	r.deadlines.Close(group, term)
	return r.fate(group, term)
}

func (r *reign) fate(group string, term baton.Term) func(err error) {
	known := make(chan struct{})
	r.endings[group] = known
	return func(err error) {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		if r.endings[group] != known {
			return // its event was faster, or the reign is over, and with it all deadlines
		}
		delete(r.endings, group)
		close(known)
		if err == nil {
			return
		}
		r.line.Shut(group)
		if baton.IsAnswer(err) || neverAppended(err) {
			r.deadlines.Reopen(group, term)
			r.setAlarm(r.s.clock.Now())
		}
		// Otherwise the entry may still be committed, by a later leader. It
		// stays closed for as long as this reign lasts.
	}
}

// foretell calls the next in line while the end of a leadership is still being
// committed, so that its Acquire is on its way meanwhile: one that comes too early
// waits for the commit. Not if a successor is named, or may be by an ending that goes before: that one
// goes first, and is not known before the commit. Called under s.mu.
func (r *reign) foretell(group string) {
	if r.marking[group] == 0 && r.s.record.Get(group).Ending == nil {
		r.line.Foretell(group)
	}
}

// setAlarm makes sure that expired looks at the earliest deadline in time. Called under s.mu.
func (r *reign) setAlarm(now time.Duration) {
	next, ok := r.deadlines.Next()
	if !ok || r.alarmSet && r.alarmAt <= next {
		return
	}
	if r.stopAlarm != nil {
		r.stopAlarm()
	}
	r.alarmSet, r.alarmAt = true, next
	r.stopAlarm = r.s.clock.AfterFunc(next-now, r.ring)
}

func (r *reign) ring() {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reign != r {
		return
	}
	r.alarmSet = false
	now := s.clock.Now()
	r.lapse(now)
	r.setAlarm(now)
}

// lapse proposes the end of everything that is over by now. Called under s.mu.
func (r *reign) lapse(now time.Duration) {
	due := r.deadlines.Due(now)
	if len(due) == 0 {
		return
	}
	settles := make([]func(error), len(due))
	for i, over := range due {
		settles[i] = r.fate(over.Group, over.Term)
	}
	// Not here: the way to raft may be blocked by one who waits for this lock.
	r.owned.Go(func() {
		for i, over := range due {
			r.expire(over, settles[i])
		}
	})
}

// expire proposes the end of one that has lapsed, until raft takes it: while
// leadership of the cluster is being handed on, it does not.
func (r *reign) expire(over leasefsm.Lapsed, settle func(error)) {
	r.propose(leasefsm.Expire{Group: over.Group, Term: over.Term, Stamp: stamp()}, func(err error) {
		if !neverAppended(err) || r.life.Err() != nil {
			settle(err)
			return
		}
		r.owned.Go(func() {
			select {
			case <-time.After(r.s.cfg.ElectionTimeout / 20):
				r.expire(over, settle)
			case <-r.life.Done():
			}
		})
	})
}

// stamp is the wall clock, for the history and for people.
func stamp() int64 { return time.Now().UnixMilli() }

// unavailableNow is the answer of a server that does not reign.
func (s *Store) unavailableNow(op string) error {
	leader, id := s.raft.LeaderWithID()
	if leader == "" {
		return &baton.UnavailableError{Op: op, RetryAfter: s.cfg.ElectionTimeout, Err: errors.New("the cluster has no leader: a majority of its servers does not answer, or they are electing one")}
	}
	return &baton.UnavailableError{Op: op, RetryAfter: s.cfg.ElectionTimeout, Err: fmt.Errorf("server %s is taking over the cluster", id)}
}
