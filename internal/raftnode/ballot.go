package raftnode

import (
	"context"
	"fmt"
	"hash/fnv"
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
// candidates have let each other wait, one waits for less than the other: whose turn it is, lots decide, which
// are drawn anew in every term.
//
// A question that waits is a question on a slow network: nothing that raft promises rests on when
// it arrives.
//
// And a server that is asked looks at once whether it misses the leader, too. Raft by itself looks when a
// timer of one to two election timeouts runs out, which begins anew whether or not it has heard of the leader meanwhile,
// and says no until then: who is first to miss a leader would be refused until a majority has looked.
type Ballot struct {
	Transport
	self    raft.ServerID
	timeout time.Duration
	// turn is how long a candidate has to be elected before one that goes before it may ask.
	turn time.Duration
	in   chan raft.RPC

	life context.Context
	end  context.CancelFunc
	all  sync.WaitGroup

	reload sync.Mutex // held while raft's timeouts are not what they should be

	mu      sync.Mutex
	raft    *raft.Raft
	current *promise
	changed chan struct{} // closed when current is taken back
}

// promise is to let nobody else ask for a while.
type promise struct {
	to   candidate
	made time.Time
}

// candidate is one that asks, or stands.
type candidate struct {
	id  raft.ServerID
	lot uint64
}

// drawn is a candidate with the lot that everybody sees it draw.
func drawn(id raft.ServerID, term uint64) candidate {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, term, id) // a hash takes everything
	return candidate{id, h.Sum64()}
}

// turns is how many turns a promise lasts against those that do not go before the one it was made to.
const turns = 3

// yields is when the promise no longer stands in a candidate's way.
func (p *promise) yields(to candidate, turn time.Duration) time.Time {
	if to.lot < p.to.lot {
		return p.made.Add(turn)
	}
	return p.made.Add(turns * turn)
}

// NewBallot wraps the transport of a server whose election timeout is that long.
func NewBallot(t Transport, self raft.ServerID, electionTimeout time.Duration) *Ballot {
	b := &Ballot{Transport: t, self: self, timeout: electionTimeout, turn: electionTimeout / 8, in: make(chan raft.RPC), changed: make(chan struct{})}
	b.life, b.end = context.WithCancel(context.Background())
	b.all.Go(b.receive)
	return b
}

// Serve tells whose transport it is: it is needed before there is a raft.
func (b *Ballot) Serve(r *raft.Raft) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.raft = r
}

// End is for when raft is being shut down: what has arrived stays without an answer, and
// what waits to be asked is not.
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
			switch q := rpc.Command.(type) {
			case *raft.RequestPreVoteRequest:
				b.all.Go(func() { b.hear(rpc, drawn(raft.ServerID(q.ID), q.Term)) })
				continue
			case *raft.RequestVoteRequest:
				b.stands(drawn(raft.ServerID(q.ID), q.Term))
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
func (b *Ballot) hear(rpc raft.RPC, c candidate) {
	p := b.await(c)
	if p == nil {
		return
	}
	b.look()
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

// look has raft find out that its leader has been silent for too long.
func (b *Ballot) look() {
	b.mu.Lock()
	r := b.raft
	b.mu.Unlock()
	if r == nil || !b.misses(r) {
		return
	}
	if b.nudge(r) != nil {
		return // it looks later, as it would by itself
	}
	for began := time.Now(); b.misses(r) && time.Since(began) < b.turn; {
		select {
		case <-time.After(b.turn / 32):
		case <-b.life.Done():
			return
		}
	}
}

// nudge is Nudge, one at a time.
func (b *Ballot) nudge(r *raft.Raft) error {
	b.reload.Lock()
	defer b.reload.Unlock()
	return Nudge(r)
}

// Nudge has raft look at once whether it misses its leader, and stand for election if so: a timeout that has become
// shorter is the one reason for it to look early. One that leads goes on. Two at once would undo each other.
func Nudge(r *raft.Raft) error {
	usual := r.ReloadableConfig()
	longer := usual
	longer.HeartbeatTimeout++
	longer.ElectionTimeout++
	if err := r.ReloadConfig(longer); err != nil {
		return err
	}
	return r.ReloadConfig(usual)
}

// misses reports whether raft follows a leader that has been silent for too long.
func (b *Ballot) misses(r *raft.Raft) bool {
	_, leader := r.LeaderWithID()
	return leader != "" && r.State() == raft.Follower && time.Since(r.LastContact()) >= b.timeout
}

// RequestPreVote asks a server whether it would vote for this one.
func (b *Ballot) RequestPreVote(id raft.ServerID, to raft.ServerAddress, q *raft.RequestPreVoteRequest, a *raft.RequestPreVoteResponse) error {
	if b.await(drawn(b.self, q.Term)) == nil {
		return raft.ErrRaftShutdown
	}
	return b.Transport.RequestPreVote(id, to, q, a)
}

// RequestVote asks a server for its vote.
func (b *Ballot) RequestVote(id raft.ServerID, to raft.ServerAddress, q *raft.RequestVoteRequest, a *raft.RequestVoteResponse) error {
	b.stands(drawn(b.self, q.Term))
	return b.Transport.RequestVote(id, to, q, a)
}

// stands: one that was told that it would be elected is about to be. The promise begins anew.
func (b *Ballot) stands(c candidate) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current = &promise{to: c, made: time.Now()}
}

// await returns when a candidate may ask, with the promise to it; nil if this is the end.
func (b *Ballot) await(c candidate) *promise {
	for {
		p, changed := b.promise(c)
		if p.to == c {
			return p
		}
		select {
		case <-time.After(time.Until(p.yields(c, b.turn))):
		case <-changed:
		case <-b.life.Done():
			return nil
		}
	}
}

// promise returns the promise that stands: a new one to this candidate if there is none in its way.
func (b *Ballot) promise(c candidate) (*promise, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.current == nil || time.Until(b.current.yields(c, b.turn)) <= 0 {
		b.current = &promise{to: c, made: time.Now()}
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
