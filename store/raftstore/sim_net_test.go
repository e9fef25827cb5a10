package raftstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"baton/internal/leasefsm"
	"baton/internal/raftnode"
	"baton/internal/raftnode/raftsim"
)

// process is one life of a server.
type process struct {
	*raftsim.Process
	store *Store

	handedOn uint64 // the raft term in which it last handed on raft's leadership
}

// handOn hands on raft's leadership, as Close does: once in a raft term at most, because raft
// 1.8 may never come back from a second time.
func (p *process) handOn() {
	if term := p.store.raft.CurrentTerm(); term != p.handedOn {
		p.handedOn = term
		_ = p.store.raft.LeadershipTransfer() // a future that nobody waits for
	}
}

// whenStored calls f with every command that is written to its disk from now on.
func (p *process) whenStored(f func(leasefsm.Command)) {
	p.Disk.WhenStored(func(l raft.Log) {
		if e, err := decodeEntry(l.Data); l.Type == raft.LogCommand && err == nil {
			for _, c := range e.commands {
				f(c)
			}
		}
	})
}

// simPeers is what servers ask each other beside raft.
type simPeers struct {
	p *process
}

func (s *simPeers) term(ctx context.Context, to raftnode.Addressee) (uint64, error) {
	return raftsim.Exchange(ctx, s.p.Process, to.Address, raftsim.Others, func(_ context.Context, q *raftsim.Process) (uint64, error) {
		return q.Host.(*Store).raft.CurrentTerm(), nil
	})
}

func (s *simPeers) call(ctx context.Context, to raftnode.Addressee, q request) (response, error) {
	b, err := raftsim.Exchange(ctx, s.p.Process, to.Address, raftsim.Others, func(ctx context.Context, p *raftsim.Process) ([]byte, error) {
		a, err := p.Host.(*Store).serve(ctx, q)
		if err != nil {
			a = response{Error: wireErrorOf(err)}
		}
		return json.Marshal(a)
	})
	var a response
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	switch {
	case errors.Is(err, raftsim.ErrRefused):
		return response{}, &notServing{unavailable(q.Op, err)}
	case err != nil:
		return response{}, unavailable(q.Op, fmt.Errorf("ask %s: %w", to.ID, err))
	case a.Error != nil:
		return response{}, a.Error.err(q.Op)
	}
	return a, nil
}
