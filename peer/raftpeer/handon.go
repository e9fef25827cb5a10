package raftpeer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// offer is when, and in which raft term, a peer did not take raft's leadership.
type offer struct {
	term uint64
	at   time.Duration
}

var errDeclined = errors.New("it did not take raft's leadership a moment ago")

// order puts the preferred one first, and then those behind this one in the order of names, so that
// all have their turn.
func (e *Elector) order(others []raft.Server, preferred string) {
	rank := func(s raft.Server) int {
		switch {
		case string(s.ID) == preferred:
			return 0
		case s.ID > e.id():
			return 1
		}
		return 2
	}
	slices.SortFunc(others, func(a, b raft.Server) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.ID, b.ID))
	})
}

// handOn gives raft's leadership to another peer that campaigns, if there is
// one, and reports whether it was given. That ends the reign.
func (r *reign) handOn(rec record) bool {
	others, err := r.e.others()
	if err != nil {
		return false
	}
	r.e.order(others, r.e.successorOf(rec))
	for _, other := range others {
		if s, err := r.e.ask(r.life, other, question{}); err != nil || !s.Campaigning {
			continue
		}
		if err := r.e.offer(other); err != nil {
			r.e.log.Debug("raft's leadership not handed on", "to", other.ID, "err", err)
			continue
		}
		r.end()
		r.e.kick()
		return true
	}
	return false
}

// handOnAny gives raft's leadership to any peer, better to one that campaigns.
func (e *Elector) handOnAny() error {
	ctx, cancel := context.WithTimeout(context.Background(), e.cfg.ElectionTimeout)
	defer cancel()
	r := &reign{e: e, life: ctx, end: cancel}
	if r.handOn(record{}) {
		return nil
	}
	others, err := e.others()
	for _, other := range others {
		if _, err = e.ask(ctx, other, question{}); err != nil {
			continue
		}
		if err = e.offer(other); err == nil {
			break
		}
	}
	return err
}

// offer gives raft's leadership to a peer, if that takes it.
//
// A peer that did not is left alone for a while: raft 1.8 hands a second transfer to a
// follower that is slow to answer over to a goroutine that may be gone by then, if the
// leadership ends meanwhile, and waits for it forever. Such a peer could be
// elected and would commit nothing any more.
func (e *Elector) offer(to raft.Server) error {
	term := e.raft.CurrentTerm()
	if last, ok := e.offers[to.ID]; ok && last.term == term && e.clock.Now()-last.at < 2*e.cfg.rpcTimeout() {
		return errDeclined
	}
	e.traffic.transfers.Add(1)
	err := e.raft.LeadershipTransferToServer(to.ID, to.Address).Error()
	if err != nil {
		e.offers[to.ID] = offer{term, e.clock.Now()}
	}
	return err
}
