package raftpeer

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// offer is in which raft term a peer did not take raft's leadership, and how often it had been abreast by then.
type offer struct {
	term    uint64
	abreast int
}

// abreast counts how often each peer has said that it has all of this raft leader's log. Heartbeats
// do not tell.
type abreast struct {
	mu    sync.Mutex
	times map[raft.ServerID]int
}

func (a *abreast) heard(id raft.ServerID, q *raft.AppendEntriesRequest, answer *raft.AppendEntriesResponse) {
	if !answer.Success || len(q.Entries) > 0 || q.PrevLogEntry == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.times[id]++
}

func (a *abreast) of(id raft.ServerID) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.times[id]
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
// A peer that did not is left alone until it has told raft again that it has everything. Raft 1.8
// leaves a note for the goroutine that replicates to that peer, and with a second one it waits, for ever if
// need be, until the first has been read. That goroutine may be waiting for an answer, or
// sleep for ten seconds after failures; and it is gone if the leadership ends meanwhile. As long as that
// lasts, this peer commits nothing, in whichever raft term it is elected.
func (e *Elector) offer(to raft.Server) error {
	const enough = 3 // the first may have been under way, and the second is for one that reads other news first
	term := e.raft.CurrentTerm()
	e.mu.Lock()
	last, declined := e.offers[to.ID]
	e.mu.Unlock()
	if declined && last.term == term && e.abreast.of(to.ID) < last.abreast+enough {
		return errDeclined
	}
	e.traffic.transfers.Add(1)
	err := e.raft.LeadershipTransferToServer(to.ID, to.Address).Error()
	if err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.offers[to.ID] = offer{term, e.abreast.of(to.ID)}
	}
	return err
}
