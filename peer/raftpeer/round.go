package raftpeer

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// ask asks a peer how it is.
func (e *Elector) ask(ctx context.Context, to raft.Server, q question) (peerState, error) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.ElectionTimeout)
	defer cancel()
	e.traffic.questions.Add(1)
	return e.peers.state(ctx, to, q)
}

// round asks all other peers the same, and returns nil once so many of them have given an answer that
// counts that they and this one are a majority. One that says that this reign is over ends it.
func (r *reign) round(q question, counts func(peerState) error) error {
	e := r.e
	others, err := e.others()
	if err != nil {
		return err
	}
	need := (len(others) + 1) / 2 // beside itself
	type answer struct {
		from  raft.ServerID
		state peerState
		err   error
	}
	answers := make(chan answer, len(others))
	for _, other := range others {
		r.owned.Go(func() {
			s, err := e.ask(r.life, other, q)
			answers <- answer{other.ID, s, err}
		})
	}
	var failures []error
	for range others {
		if need <= 0 {
			break
		}
		a := <-answers
		if a.err == nil {
			a.err = counts(a.state)
		}
		switch {
		case a.err == nil:
			need--
		case errors.Is(a.err, errDeposed):
			return a.err
		default:
			failures = append(failures, fmt.Errorf("peer %s: %w", a.from, a.err))
		}
	}
	if need > 0 {
		return fmt.Errorf("no majority of the peers answered: %w", errors.Join(failures...))
	}
	return nil
}

// confirm returns nil if after this call began there was a moment at which no
// successor of this reign had been elected: a majority of all peers was in its raft term. The
// reign's own state is looked at last.
func (r *reign) confirm() error {
	e := r.e
	if instead := e.cfg.trial.confirmation(e.raft); instead != nil {
		return instead()
	}
	vouch := question{VouchFor: r.term}
	// This peer is one of the majority. It has to remember that before its state is looked at.
	if !e.cfg.trial.forgetsItself() && e.answer(vouch).RaftTerm != r.term {
		return errDeposed
	}
	err := r.round(vouch, func(s peerState) error {
		switch {
		case s.RaftTerm > r.term:
			return errDeposed
		case s.RaftTerm < r.term:
			return fmt.Errorf("still in raft term %d", s.RaftTerm)
		}
		return nil
	})
	if err == nil && !e.leads(r.term) {
		return errDeposed
	}
	return err
}

// recall asks when a raft leader before this one can have been confirmed last.
//
// A peer that is in this reign's raft term, or in a later one, will never again vouch for an
// earlier. So of a majority of such peers, this one included, at least one was in the
// majority of the last confirmation, and recalls a moment after its questions were sent.
func (r *reign) recall() {
	e := r.e
	own := e.answer(question{})
	last := e.clock.Now() - own.Vouched
	if !e.cfg.trial.asksNobody() {
		err := r.round(question{}, func(s peerState) error {
			if s.RaftTerm < r.term {
				return fmt.Errorf("still in raft term %d", s.RaftTerm)
			}
			// The answer is from before now. How long it was under way does not matter.
			last = max(last, e.clock.Now()-s.Vouched)
			return nil
		})
		if err != nil {
			e.log.Debug("not known when the leader before was confirmed last", "raft_term", r.term, "err", err)
			return
		}
	}
	r.since, r.recalled = min(r.since, last), true
}
