// Package memstore keeps leases in the memory of one process. It is the
// reference for every other store: the lease machine behind a mutex, with all
// optional capabilities.
//
// It decides on its own clock, so leases never overlap while it lives. It
// forgets everything when it ends: a program that starts another one must
// choose [Config.FirstTerm] above every term that was granted before, and
// bear that a holder from before may still be working.
package memstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"baton"
	"baton/internal/feed"
	"baton/internal/leasefsm"
	"baton/internal/line"
)

// Config has a default for every field.
type Config struct {
	// Clock judges the leases; baton.SystemClock if nil.
	Clock baton.Clock
	// FirstTerm is the lowest term that is granted; 1 if 0.
	FirstTerm baton.Term
	// RetainPerGroup is how many events of a group a watch can still be given
	// by their cursor, and RetainTotal how many of all groups together.
	// Both have generous defaults if 0.
	RetainPerGroup int
	RetainTotal    int
}

func (c Config) validate() error {
	if c.FirstTerm > baton.MaxTerm {
		return &baton.InvalidArgumentError{Field: "FirstTerm", Value: c.FirstTerm, Want: fmt.Sprintf("at most %d", baton.MaxTerm)}
	}
	if c.RetainPerGroup < 0 {
		return &baton.InvalidArgumentError{Field: "RetainPerGroup", Value: c.RetainPerGroup, Want: "0 or more"}
	}
	if c.RetainTotal < 0 {
		return &baton.InvalidArgumentError{Field: "RetainTotal", Value: c.RetainTotal, Want: "0 or more"}
	}
	return nil
}

var guarantees = baton.Guarantees{
	Store:         "memory",
	MinTTL:        10 * time.Millisecond,
	MaxTTL:        baton.MaxTTL,
	TTLStep:       time.Nanosecond,
	Time:          baton.TimeMonotonic,
	DeletionTerms: true,
	Extends:       true,
	Waiting:       baton.WaitLine,
	Transfers:     true,
	Caveats: []string{
		"leases and terms are kept in the memory of one process and are lost when it ends",
		"across a restart leaderships may overlap, and terms rise only if the first one is chosen above all before",
	},
}

// Store implements baton.Store, Line, Ender, Historian and Registry.
type Store struct {
	clock baton.Clock
	feed  *feed.Feed
	line  *line.Line

	mu        sync.Mutex
	closed    bool
	record    *leasefsm.Record
	deadlines *leasefsm.Deadlines
	events    uint64 // published so far

	// The alarm is set for the earliest deadline, or earlier: it is not moved
	// when a renewal moves that one, but sets itself again when it rings.
	stopAlarm func() bool // nil while none is set
	alarmAt   time.Duration
	alarms    uint64 // set so far
	ringing   sync.WaitGroup
}

var (
	_ baton.Store     = (*Store)(nil)
	_ baton.Line      = (*Store)(nil)
	_ baton.Ender     = (*Store)(nil)
	_ baton.Historian = (*Store)(nil)
	_ baton.Registry  = (*Store)(nil)
)

var errClosed = errors.New("the store is closed")

// New returns an empty store.
func New(cfg Config) (*Store, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("new memory store: %w", err)
	}
	if cfg.Clock == nil {
		cfg.Clock = baton.SystemClock()
	}
	s := &Store{
		clock: cfg.Clock,
		feed: feed.New(feed.Config{
			Store:    "memory-" + rand.Text(),
			PerGroup: cfg.RetainPerGroup,
			Total:    cfg.RetainTotal,
		}),
		record:    leasefsm.NewRecord(),
		deadlines: leasefsm.NewDeadlines(),
	}
	s.line = line.New(cfg.Clock, s.vacant)
	if cfg.FirstTerm > 0 {
		s.record.Apply(leasefsm.RaiseFloor{Term: cfg.FirstTerm - 1})
	}
	return s, nil
}

// Guarantees says what memory can promise.
func (s *Store) Guarantees() baton.Guarantees {
	g := guarantees
	g.Caveats = slices.Clone(g.Caveats)
	return g
}

// Close ends watches and waits. What comes later is baton.ErrUnavailable.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.silence()
	s.mu.Unlock()
	s.line.Close()
	s.feed.Close()
	s.ringing.Wait()
	return nil
}

// do runs f under the lock, at this reading of the clock, after everything
// that was over by then has been recorded as ended. So nobody ever sees a lease
// that is past its deadline, however late the alarm rings.
func (s *Store) do(ctx context.Context, op string, f func(now time.Duration) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return &baton.UnavailableError{Op: op, Err: errClosed}
	}
	now := s.clock.Now()
	s.lapse(now)
	defer s.setAlarm(now)
	return f(now)
}

// apply carries out a command and tells everyone who needs to know.
func (s *Store) apply(c leasefsm.Command, now time.Duration) leasefsm.Result {
	result := s.record.Apply(c)
	for _, e := range result.Events {
		s.events++
		s.feed.Publish(feed.Position{Index: s.events}, e)
		switch e.Type {
		case baton.LeaderChanged:
			s.deadlines.Arm(e.Group, e.Term, result.Lease.TTL, now)
			s.line.Granted(e.Group, baton.Candidate{NodeID: e.NodeID, InstanceID: e.InstanceID})
		case baton.LeaderLost:
			s.deadlines.Drop(e.Group, e.Term)
			// This line is never lost, so a successor that is not in it is not waited for.
			s.line.Open(e.Group, s.record.Successor(e.Group), 0)
		}
	}
	return result
}

// lapse records what is over by now.
func (s *Store) lapse(now time.Duration) {
	for _, over := range s.deadlines.Due(now) {
		s.apply(leasefsm.Expire{Group: over.Group, Term: over.Term, Stamp: stamp()}, now)
	}
}

// setAlarm makes sure that it rings no later than the earliest deadline.
func (s *Store) setAlarm(now time.Duration) {
	next, ok := s.deadlines.Next()
	if !ok || s.stopAlarm != nil && s.alarmAt <= next {
		return
	}
	s.silence()
	s.alarms++
	n := s.alarms
	s.alarmAt = next
	s.ringing.Add(1)
	s.stopAlarm = s.clock.AfterFunc(next-now, func() { s.ring(n) })
}

func (s *Store) silence() {
	if s.stopAlarm != nil && s.stopAlarm() {
		s.ringing.Done()
	}
	s.stopAlarm = nil
}

// ring is alarm n. Another one may have been set while this one was on its way.
func (s *Store) ring(n uint64) {
	defer s.ringing.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if n == s.alarms {
		s.stopAlarm = nil
	}
	now := s.clock.Now()
	s.lapse(now)
	s.setAlarm(now)
}

// stamp is the wall clock, for the history and for people.
func stamp() int64 { return time.Now().UnixMilli() }
