package raftstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// rounds confirms a reign: that at some moment after the question was asked, a
// majority of the voters was still in its raft term. All that wait
// share the next round; one that has begun helps only those it began for.
//
// raft.VerifyLeader would not do: it counts replies to requests that were sent before it was
// called, and replies of servers that have no vote.
type rounds struct {
	cluster voters
	term    uint64
	timeout time.Duration
	life    context.Context

	mu      sync.Mutex
	waiting []chan error
	running bool
	closed  bool
	askers  map[raft.ServerID]*asker
	owned   sync.WaitGroup
	instead func() error // a test's idea of a round, for each question
	count   func(took time.Duration, shared int, err error)
}

// voters is what a round needs of the cluster.
type voters interface {
	// configuration is the latest one, committed or not.
	configuration() (raft.Configuration, error)
	// leads reports whether this server is raft leader of exactly this term.
	leads(term uint64) bool
	// id is this server's own.
	id() raft.ServerID
	// termOf asks another server for its raft term. The answer is to this very question.
	termOf(ctx context.Context, server raft.Server) (uint64, error)
}

var errDeposedInRound = errors.New("a voter has moved on to another raft term")

// confirm returns nil if the reign was confirmed by a round that began after this call.
func (r *rounds) confirm(ctx context.Context) error {
	if r.instead != nil {
		return r.instead()
	}
	if alone, err := r.alone(); alone {
		return err
	}
	done := make(chan error, 1)
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return errReignOver
	}
	r.waiting = append(r.waiting, done)
	if !r.running {
		r.running = true
		r.owned.Go(r.run)
	}
	r.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// alone holds the round of a server that is the only voter, on the spot: there
// is nobody to ask. It reports false if there are others.
func (r *rounds) alone() (bool, error) {
	config, err := r.cluster.configuration()
	if err != nil || !isOnlyVoter(config, r.cluster.id()) {
		return false, nil
	}
	err = r.unchanged(config)
	r.count(0, 1, err)
	return true, err
}

func isOnlyVoter(config raft.Configuration, id raft.ServerID) bool {
	voters, found := 0, false
	for _, server := range config.Servers {
		if server.Suffrage == raft.Voter {
			voters++
			found = found || server.ID == id
		}
	}
	return voters == 1 && found
}

// close waits for the last round. There are no more after it.
func (r *rounds) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.owned.Wait()
}

// run holds rounds for as long as somebody waits for one.
func (r *rounds) run() {
	for {
		r.mu.Lock()
		waiting := r.waiting
		r.waiting = nil
		if len(waiting) == 0 {
			r.running = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		start := time.Now()
		err := r.hold()
		r.count(time.Since(start), len(waiting), err)
		for _, done := range waiting {
			done <- err
		}
	}
}

// hold is one round.
func (r *rounds) hold() error {
	config, err := r.cluster.configuration()
	if err != nil {
		return err
	}
	var others []raft.Server
	need := 0
	have := 0
	for _, server := range config.Servers {
		if server.Suffrage != raft.Voter {
			continue
		}
		need++
		if server.ID == r.cluster.id() {
			have++
		} else {
			others = append(others, server)
		}
	}
	need = need/2 + 1
	if have < need {
		if err := r.ask(others, need-have); err != nil {
			return err
		}
	}
	return r.unchanged(config)
}

// unchanged is how every round ends: a change of the configuration or of the
// term that was missed before is seen here.
func (r *rounds) unchanged(config raft.Configuration) error {
	now, err := r.cluster.configuration()
	if err != nil {
		return err
	}
	if !slices.Equal(now.Servers, config.Servers) {
		return errors.New("the cluster's members changed during a round")
	}
	if !r.cluster.leads(r.term) {
		return errDeposedInRound
	}
	return nil
}

// answer is what a voter said, or why it did not.
type answer struct {
	server raft.Server
	term   uint64
	err    error
}

// ask returns nil when need of the others are in the reign's term.
func (r *rounds) ask(others []raft.Server, need int) error {
	ctx, cancel := context.WithTimeout(r.life, r.timeout)
	defer cancel()
	answers := make(chan answer, len(others))
	for _, server := range others {
		r.askOne(server, answers)
	}
	var failures []error
	for range others {
		var a answer
		select {
		case a = <-answers:
		case <-ctx.Done():
			return fmt.Errorf("no majority of the voters answered: %w", errors.Join(append(failures, ctx.Err())...))
		}
		switch {
		case a.err != nil:
			failures = append(failures, fmt.Errorf("server %s: %w", a.server.ID, a.err))
		case a.term > r.term:
			return errDeposedInRound
		case a.term == r.term:
			if need--; need == 0 {
				return nil
			}
		default:
			failures = append(failures, fmt.Errorf("server %s is still in raft term %d", a.server.ID, a.term))
		}
	}
	return fmt.Errorf("no majority of the voters answered: %w", errors.Join(failures...))
}

// asker puts one question at a time to one voter. A voter that is slow, or
// dead, holds up one question and not one for every round: when it is done
// with, the next one is asked, for the round that waits by then.
type asker struct {
	busy    bool
	server  raft.Server
	answers chan<- answer // of the round that wants the next question; nil if none does
}

// askOne has a voter asked for this round, and for no earlier one any more.
func (r *rounds) askOne(server raft.Server, answers chan<- answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.askers[server.ID]
	if a == nil {
		a = &asker{}
		if r.askers == nil {
			r.askers = map[raft.ServerID]*asker{}
		}
		r.askers[server.ID] = a
	}
	a.server, a.answers = server, answers
	if !a.busy {
		a.busy = true
		r.owned.Go(func() { r.keepAsking(a) })
	}
}

func (r *rounds) keepAsking(a *asker) {
	for {
		r.mu.Lock()
		server, answers := a.server, a.answers
		a.answers = nil
		if answers == nil {
			a.busy = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		ctx, cancel := context.WithTimeout(r.life, r.timeout)
		term, err := r.cluster.termOf(ctx, server)
		cancel()
		answers <- answer{server, term, err} // there is room for one of each voter
	}
}
