package raftstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"baton/internal/freeze"
	"baton/internal/raftnode"
)

// simNet carries everything between simulated servers, and loses, delays and
// cuts. Names are addresses.
type simNet struct {
	mu    sync.Mutex
	rng   *rand.Rand
	cut   map[[2]string]bool // from, to
	nodes map[string]*simNode
	held  map[[3]string]chan struct{} // from, to, kind: stays on its way until this is closed
	calm  bool

	rpcTimeout time.Duration // when raft gives a request up
}

var errLost = errors.New("lost on the way")

func (n *simNet) setCut(from, to string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[[2]string{from, to}] = cut
}

func (n *simNet) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
}

// delay is how long one message takes: a little, and now and then long.
func (n *simNet) delay() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := time.Duration(n.rng.Int64N(int64(2 * time.Millisecond)))
	if !n.calm && n.rng.IntN(50) == 0 {
		d += time.Duration(n.rng.Int64N(int64(400 * time.Millisecond)))
	}
	return d
}

// travel takes one message from here to there, or loses it and takes until ctx ends.
func (n *simNet) travel(ctx context.Context, from, to, kind string) error {
	if err := sleep(ctx, n.delay()); err != nil {
		return err
	}
	n.mu.Lock()
	cut, held := n.cut[[2]string{from, to}], n.held[[3]string{from, to, kind}]
	n.mu.Unlock()
	if cut {
		<-ctx.Done()
		return errLost
	}
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return errLost
		}
	}
	return nil
}

// hold keeps what is sent from here to there on its way until release is called.
func (n *simNet) hold(from, to, kind string) (release func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	held := make(chan struct{})
	link := [3]string{from, to, kind}
	n.held[link] = held
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.held, link)
		close(held)
	}
}

// The kinds of messages.
const (
	heartbeat = "heartbeat"
	entries   = "entries"
	others    = "others"
)

func kindOf(command any) string {
	q, ok := command.(*raft.AppendEntriesRequest)
	switch {
	case !ok:
		return others
	case q.PrevLogEntry == 0 && q.LeaderCommitIndex == 0 && len(q.Entries) == 0:
		return heartbeat
	}
	return entries
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// process is one life of a server.
type process struct {
	name     string
	store    *Store
	disk     *simDisk
	gate     *freeze.Gate
	diskGate *freeze.Gate
	consumer chan raft.RPC
	dead     context.Context
	kill     context.CancelFunc
}

func (p *process) freeze(d time.Duration) {
	p.gate.Freeze(d)
	p.diskGate.Freeze(d)
}

func (p *process) thaw() {
	p.gate.Open()
	p.diskGate.Open()
}

func (n *simNet) process(name string) *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	if node := n.nodes[name]; node != nil {
		return node.process()
	}
	return nil
}

// exchange takes a request from p to another server and the answer back. Both
// may be frozen meanwhile, each for itself.
func exchange[T any](ctx context.Context, n *simNet, p *process, to, kind string, handle func(ctx context.Context, q *process) (T, error)) (none T, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.dead, cancel)()
	p.gate.Pass()
	if err := n.travel(ctx, p.name, to, kind); err != nil {
		return none, err
	}
	q := n.process(to)
	if q == nil || q.dead.Err() != nil {
		p.gate.Pass()
		return none, errRefused
	}
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		there, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(q.dead, stop)()
		q.gate.Pass()
		if q.dead.Err() != nil {
			return
		}
		value, err := handle(there, q)
		q.gate.Pass()
		if q.dead.Err() == nil {
			answered <- answer{value, err}
		}
	}()
	select {
	case a := <-answered:
		if err := n.travel(ctx, to, p.name, kind); err != nil {
			return none, err
		}
		p.gate.Pass()
		return a.value, a.err
	case <-ctx.Done():
		p.gate.Pass()
		return none, ctx.Err()
	}
}

var errRefused = errors.New("nobody listens there")

// simTransport is raft's transport between processes.
type simTransport struct {
	net *simNet
	p   *process
}

func (t *simTransport) rpc(to raft.ServerAddress, command any, data []byte, take func(any)) error {
	ctx, cancel := context.WithTimeout(context.Background(), t.net.rpcTimeout)
	defer cancel()
	response, err := exchange(ctx, t.net, t.p, string(to), kindOf(command), func(ctx context.Context, q *process) (any, error) {
		answers := make(chan raft.RPCResponse, 1)
		rpc := raft.RPC{Command: command, RespChan: answers}
		if data != nil {
			rpc.Reader = bytes.NewReader(data)
		}
		select {
		case q.consumer <- rpc:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		select {
		case a := <-answers:
			return a.Response, a.Error
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	if err == nil {
		take(response)
	}
	return err
}

func (t *simTransport) Consumer() <-chan raft.RPC     { return t.p.consumer }
func (t *simTransport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.p.name) }

func (t *simTransport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (t *simTransport) AppendEntries(_ raft.ServerID, to raft.ServerAddress, q *raft.AppendEntriesRequest, a *raft.AppendEntriesResponse) error {
	return t.rpc(to, q, nil, func(r any) { *a = *r.(*raft.AppendEntriesResponse) })
}

func (t *simTransport) RequestVote(_ raft.ServerID, to raft.ServerAddress, q *raft.RequestVoteRequest, a *raft.RequestVoteResponse) error {
	return t.rpc(to, q, nil, func(r any) { *a = *r.(*raft.RequestVoteResponse) })
}

func (t *simTransport) RequestPreVote(_ raft.ServerID, to raft.ServerAddress, q *raft.RequestPreVoteRequest, a *raft.RequestPreVoteResponse) error {
	return t.rpc(to, q, nil, func(r any) { *a = *r.(*raft.RequestPreVoteResponse) })
}

func (t *simTransport) InstallSnapshot(_ raft.ServerID, to raft.ServerAddress, q *raft.InstallSnapshotRequest, a *raft.InstallSnapshotResponse, data io.Reader) error {
	b, err := io.ReadAll(data)
	if err != nil {
		return err
	}
	return t.rpc(to, q, b, func(r any) { *a = *r.(*raft.InstallSnapshotResponse) })
}

func (t *simTransport) TimeoutNow(_ raft.ServerID, to raft.ServerAddress, q *raft.TimeoutNowRequest, a *raft.TimeoutNowResponse) error {
	return t.rpc(to, q, nil, func(r any) { *a = *r.(*raft.TimeoutNowResponse) })
}

func (t *simTransport) EncodePeer(_ raft.ServerID, a raft.ServerAddress) []byte { return []byte(a) }
func (t *simTransport) DecodePeer(b []byte) raft.ServerAddress                  { return raft.ServerAddress(b) }
func (t *simTransport) SetHeartbeatHandler(func(raft.RPC))                      {}

// simPeers is what servers ask each other beside raft.
type simPeers struct {
	net *simNet
	p   *process
}

func (s *simPeers) term(ctx context.Context, to raftnode.Addressee) (uint64, error) {
	return exchange(ctx, s.net, s.p, to.Address, others, func(_ context.Context, q *process) (uint64, error) {
		return q.store.raft.CurrentTerm(), nil
	})
}

func (s *simPeers) call(ctx context.Context, to raftnode.Addressee, q request) (response, error) {
	b, err := exchange(ctx, s.net, s.p, to.Address, others, func(ctx context.Context, p *process) ([]byte, error) {
		a, err := p.store.serve(ctx, q)
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
	case errors.Is(err, errRefused):
		return response{}, &notServing{unavailable(q.Op, err)}
	case err != nil:
		return response{}, unavailable(q.Op, fmt.Errorf("ask %s: %w", to.ID, err))
	case a.Error != nil:
		return response{}, a.Error.err(q.Op)
	}
	return a, nil
}
