package raftnode

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Ballot is a transport on which candidates do not split the vote.
//
// Before it stands for election, a raft server asks the others whether they would vote for it, and
// they say yes to everybody who asks. Of two that ask at about the same time both are told so,
// both stand, and if neither gets a majority, another election timeout passes. The more servers, the more
// often that happens. Here a server lets one candidate at a time ask: the question of another waits for
// a moment, and finds a leader then; or none, if the first did not make it. A server that
// wants to stand is a candidate among others: it waits as well if it has let one ask before. Where
// candidates have let each other wait, the one whose name comes first waits the shorter time.
//
// A question that waits is a question on a slow network: nothing that raft promises rests on when
// it arrives.
type Ballot struct {
	Transport
	self raft.ServerID
	// turn is how long a candidate has to be elected before one that goes before it may ask.
	turn time.Duration
	in   chan raft.RPC

	life context.Context
	end  context.CancelFunc
	all  sync.WaitGroup

	mu      sync.Mutex
	current *promise
	changed chan struct{} // closed when current is taken back
}

// promise is to let nobody else ask for a while.
type promise struct {
	to   raft.ServerID
	made time.Time
}

// last is how many turns a promise lasts against those that do not go before the one it was made to. By
// then that one has been elected, which takes three rounds of messages, or it will not be.
const last = 3

// yields is when the promise no longer stands in a candidate's way.
func (p *promise) yields(to raft.ServerID, turn time.Duration) time.Time {
	if to < p.to {
		return p.made.Add(turn)
	}
	return p.made.Add(last * turn)
}

// NewBallot wraps the transport of a server whose election timeout is that long.
func NewBallot(t Transport, self raft.ServerID, electionTimeout time.Duration) *Ballot {
	b := &Ballot{Transport: t, self: self, turn: electionTimeout / 8, in: make(chan raft.RPC), changed: make(chan struct{})}
	b.life, b.end = context.WithCancel(context.Background())
	b.all.Go(b.receive)
	return b
}

// End is for when raft has been shut down: what has arrived stays without an answer.
func (b *Ballot) End() {
	b.end()
	b.all.Wait()
}

// Consumer is what raft receives requests from.
func (b *Ballot) Consumer() <-chan raft.RPC { return b.in }

func (b *Ballot) receive() {
	for {
		select {
		case rpc := <-b.Transport.Consumer():
			if q, ok := rpc.Command.(*raft.RequestPreVoteRequest); ok {
				b.all.Go(func() { b.hear(rpc, raft.ServerID(q.ID)) })
				continue
			}
			b.pass(rpc)
		case <-b.life.Done():
			return
		}
	}
}

func (b *Ballot) pass(rpc raft.RPC) {
	select {
	case b.in <- rpc:
	case <-b.life.Done():
	}
}

// hear lets a candidate ask raft. One that raft would not vote for stands in nobody's way.
func (b *Ballot) hear(rpc raft.RPC, candidate raft.ServerID) {
	p := b.await(candidate)
	if p == nil {
		return
	}
	answers := make(chan raft.RPCResponse, 1)
	b.pass(raft.RPC{Command: rpc.Command, Reader: rpc.Reader, RespChan: answers})
	select {
	case a := <-answers:
		if said, ok := a.Response.(*raft.RequestPreVoteResponse); !ok || a.Error != nil || !said.Granted {
			b.takeBack(p)
		}
		rpc.RespChan <- a
	case <-b.life.Done():
	}
}

// RequestPreVote asks a server whether it would vote for this one.
func (b *Ballot) RequestPreVote(id raft.ServerID, to raft.ServerAddress, q *raft.RequestPreVoteRequest, a *raft.RequestPreVoteResponse) error {
	if b.await(b.self) == nil {
		return raft.ErrRaftShutdown
	}
	return b.Transport.RequestPreVote(id, to, q, a)
}

// await returns when a candidate may ask, with the promise to it; nil if this is the end.
func (b *Ballot) await(candidate raft.ServerID) *promise {
	for {
		p, changed := b.promise(candidate)
		if p.to == candidate {
			return p
		}
		select {
		case <-time.After(time.Until(p.yields(candidate, b.turn))):
		case <-changed:
		case <-b.life.Done():
			return nil
		}
	}
}

// promise returns the promise that stands: a new one to this candidate if there is none in its way.
func (b *Ballot) promise(candidate raft.ServerID) (*promise, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current == nil || time.Until(b.current.yields(candidate, b.turn)) <= 0 {
		b.current = &promise{to: candidate, made: time.Now()}
	}
	return b.current, b.changed
}

func (b *Ballot) takeBack(p *promise) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current == p {
		b.current = nil
		close(b.changed)
		b.changed = make(chan struct{})
	}
}
