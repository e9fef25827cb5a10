package raftstore

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// fakeVoters is a cluster as a round sees it, in raft term 5, asked by s1.
type fakeVoters struct {
	mu      sync.Mutex
	config  []raft.Server
	changed []raft.Server // once somebody was asked; if nobody is, from the second look on
	looks   int
	deposed bool
	terms   map[raft.ServerID]uint64 // 0: it never answers
	asked   map[raft.ServerID]int
}

func (f *fakeVoters) configuration() (raft.Configuration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	if f.changed != nil && (len(f.asked) > 0 || f.looks > 1 && len(f.config) == 1) {
		return raft.Configuration{Servers: f.changed}, nil
	}
	return raft.Configuration{Servers: f.config}, nil
}

func (f *fakeVoters) leads(term uint64) bool { return !f.deposed && term == 5 }
func (f *fakeVoters) id() raft.ServerID      { return "s1" }

func (f *fakeVoters) termOf(ctx context.Context, s raft.Server) (uint64, error) {
	f.mu.Lock()
	f.asked[s.ID]++
	term := f.terms[s.ID]
	f.mu.Unlock()
	if term == 0 {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	time.Sleep(time.Millisecond)
	return term, nil
}

func servers(voters string, others ...raft.ServerID) []raft.Server {
	var all []raft.Server
	for _, n := range voters {
		all = append(all, raft.Server{ID: raft.ServerID("s" + string(n))})
	}
	for _, id := range others {
		all = append(all, raft.Server{ID: id, Suffrage: raft.Nonvoter})
	}
	return all
}

func TestRound(t *testing.T) {
	for _, tc := range []struct {
		name            string
		config, changed []raft.Server
		deposed         bool
		terms           map[raft.ServerID]uint64
		confirmed       bool
	}{
		{name: "alone", config: servers("1"), confirmed: true},
		{name: "alone, and deposed", config: servers("1"), deposed: true},
		{name: "alone, and another one gets a vote meanwhile", config: servers("1"), changed: servers("12")},
		{name: "one of two others answers", config: servers("123"), terms: map[raft.ServerID]uint64{"s2": 5}, confirmed: true},
		{name: "nobody answers", config: servers("123")},
		{name: "two of five", config: servers("12345"), terms: map[raft.ServerID]uint64{"s2": 5}},
		{name: "three of five", config: servers("12345"), terms: map[raft.ServerID]uint64{"s2": 5, "s5": 5}, confirmed: true},
		{name: "two of four", config: servers("1234"), terms: map[raft.ServerID]uint64{"s2": 5}},
		{name: "only those without a vote answer", config: servers("123", "s4", "s5"), terms: map[raft.ServerID]uint64{"s4": 5, "s5": 5}},
		{name: "one has moved on", config: servers("123"), terms: map[raft.ServerID]uint64{"s2": 6}},
		{name: "one has not heard of the term", config: servers("123"), terms: map[raft.ServerID]uint64{"s2": 4}},
		{name: "leader without a vote needs a majority of the others", config: servers("23", "s1"), terms: map[raft.ServerID]uint64{"s2": 5}},
		{name: "leader without a vote has one", config: servers("23", "s1"), terms: map[raft.ServerID]uint64{"s2": 5, "s3": 5}, confirmed: true},
		{name: "members change meanwhile", config: servers("123"), changed: servers("1234"), terms: map[raft.ServerID]uint64{"s2": 5, "s3": 5}},
		{name: "a vote is given meanwhile", config: servers("123", "s4"), changed: servers("1234"), terms: map[raft.ServerID]uint64{"s2": 5, "s3": 5}},
		{name: "deposed when it ends", config: servers("123"), deposed: true, terms: map[raft.ServerID]uint64{"s2": 5, "s3": 5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeVoters{config: tc.config, changed: tc.changed, deposed: tc.deposed, terms: tc.terms, asked: map[raft.ServerID]int{}}
				r, end := newRounds(f)
				defer end()
				if err := r.confirm(t.Context()); (err == nil) != tc.confirmed {
					t.Errorf("confirmed: %v", err)
				}
			})
		})
	}
}

func newRounds(f *fakeVoters) (*rounds, func()) {
	life, end := context.WithCancel(context.Background())
	r := &rounds{cluster: f, term: 5, timeout: 500 * time.Millisecond, life: life, count: func(time.Duration, int, error) {}}
	return r, func() { end(); r.close() }
}

// Whoever comes while a round is under way is not served by it, and all who come share the next one.
func TestRoundsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeVoters{config: servers("123"), terms: map[raft.ServerID]uint64{"s2": 5}, asked: map[raft.ServerID]int{}}
		r, end := newRounds(f)
		defer end()
		var all sync.WaitGroup
		ask := func() {
			all.Go(func() {
				if err := r.confirm(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		ask()
		synctest.Wait()
		for range 50 {
			ask()
		}
		all.Wait()
		if n := f.asked["s2"]; n != 2 {
			t.Errorf("s2 was asked %d times by 51 requests", n)
		}
		if n := f.asked["s3"]; n != 1 {
			t.Errorf("s3, which does not answer, was asked %d times at once", n)
		}
	})
}

func TestRoundsEndWithTheReign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeVoters{config: servers("123"), asked: map[raft.ServerID]int{}}
		r, end := newRounds(f)
		done := make(chan error)
		go func() { done <- r.confirm(context.Background()) }()
		synctest.Wait()
		end()
		if err := <-done; err == nil {
			t.Error("confirmed by nobody")
		}
		if err := r.confirm(context.Background()); !errors.Is(err, errReignOver) {
			t.Errorf("after its end: %v", err)
		}
	})
}
