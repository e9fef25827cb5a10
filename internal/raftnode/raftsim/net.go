package raftsim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"baton/internal/freeze"
	"baton/internal/raftnode"
)

// Net carries everything between simulated servers, and loses, delays and
// cuts. Names are addresses.
type Net struct {
	// RPCTimeout is when raft gives a request up.
	RPCTimeout time.Duration
	// Distance is what a message takes at most, but now and then.
	Distance time.Duration

	mu    sync.Mutex
	rng   *rand.Rand
	cut   map[[2]string]bool // from, to
	procs map[string]*Process
	held  map[[3]string]chan struct{} // from, to, kind: stays on its way until this is closed
	calm  bool
}

// NewNet returns one that does the same for the same seed.
func NewNet(seed uint64) *Net {
	return &Net{
		RPCTimeout: 600 * time.Millisecond, Distance: 2 * time.Millisecond, rng: rand.New(rand.NewPCG(seed, 1)),
		cut: map[[2]string]bool{}, held: map[[3]string]chan struct{}{}, procs: map[string]*Process{},
	}
}

// Calm ends long delays.
func (n *Net) Calm() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calm = true
}

// ErrLost: it never arrived, as far as one can tell.
var ErrLost = errors.New("lost on the way")

// SetCut cuts one direction, or joins it again.
func (n *Net) SetCut(from, to string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[[2]string{from, to}] = cut
}

// Heal joins everything again.
func (n *Net) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
}

// Delay is how long one message takes: a little, and now and then long.
func (n *Net) Delay() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := time.Duration(n.rng.Int64N(int64(n.Distance)))
	if !n.calm && n.rng.IntN(50) == 0 {
		d += time.Duration(n.rng.Int64N(int64(400 * time.Millisecond)))
	}
	return d
}

// travel takes one message from here to there, or loses it and takes until ctx ends.
func (n *Net) travel(ctx context.Context, from, to, kind string) error {
	if err := Sleep(ctx, n.Delay()); err != nil {
		return err
	}
	n.mu.Lock()
	cut, held := n.cut[[2]string{from, to}], n.held[[3]string{from, to, kind}]
	n.mu.Unlock()
	if cut {
		<-ctx.Done()
		return ErrLost
	}
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return ErrLost
		}
	}
	return nil
}

// Hold keeps what is sent from here to there on its way until release is called.
func (n *Net) Hold(from, to, kind string) (release func()) {
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
	Heartbeat = "heartbeat"
	Entries   = "entries"
	Others    = "others"
)

func kindOf(command any) string {
	q, ok := command.(*raft.AppendEntriesRequest)
	switch {
	case !ok:
		return Others
	case q.PrevLogEntry == 0 && q.LeaderCommitIndex == 0 && len(q.Entries) == 0:
		return Heartbeat
	}
	return Entries
}

// Sleep returns when d has passed, or ctx has ended.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Process is one life of a server.
type Process struct {
	Name string
	// Gate is passed by all that it does, DiskGate by what it writes.
	Gate, DiskGate *freeze.Gate
	Disk           *Disk
	// Dead ends with it.
	Dead context.Context
	// Host is the server itself, for what others ask it beside raft.
	Host any

	net      *Net
	kill     context.CancelFunc
	consumer chan raft.RPC
}

// Start begins a life on a disk, the one before is left on; nil for a new one.
// It is reached by nobody until Join.
func (n *Net) Start(name string, disk *Disk) *Process {
	p := &Process{Name: name, Gate: &freeze.Gate{}, DiskGate: &freeze.Gate{}, net: n, consumer: make(chan raft.RPC)}
	p.Dead, p.kill = context.WithCancel(context.Background())
	if disk == nil {
		p.Disk = NewDisk(p.DiskGate)
	} else {
		p.Disk = disk.Image(p.DiskGate)
	}
	return p
}

// Join lets the others reach it, as host.
func (p *Process) Join(host any) {
	p.net.mu.Lock()
	defer p.net.mu.Unlock()
	p.Host = host
	p.net.procs[p.Name] = p
}

// Kill ends a life and returns the disk that it leaves. What the process does after it, nobody sees.
func (p *Process) Kill() *Disk {
	p.net.mu.Lock()
	if p.net.procs[p.Name] == p {
		delete(p.net.procs, p.Name)
	}
	p.net.mu.Unlock()
	left := p.Disk.Image(nil)
	p.kill()
	p.Thaw()
	return left
}

// Freeze stops it for d.
func (p *Process) Freeze(d time.Duration) {
	p.Gate.Freeze(d)
	p.DiskGate.Freeze(d)
}

// Thaw lets it go on before its time.
func (p *Process) Thaw() {
	p.Gate.Open()
	p.DiskGate.Open()
}

func (n *Net) process(name string) *Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.procs[name]
}

// Exchange takes a request from p to another server and the answer back. Both
// may be frozen meanwhile, each for itself.
func Exchange[T any](ctx context.Context, p *Process, to, kind string, handle func(ctx context.Context, q *Process) (T, error)) (none T, err error) {
	n := p.net
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.Dead, cancel)()
	p.Gate.Pass()
	if err := n.travel(ctx, p.Name, to, kind); err != nil {
		return none, err
	}
	q := n.process(to)
	if q == nil || q.Dead.Err() != nil {
		p.Gate.Pass()
		return none, ErrRefused
	}
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	go func() {
		there, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(q.Dead, stop)()
		q.Gate.Pass()
		if q.Dead.Err() != nil {
			return
		}
		value, err := handle(there, q)
		q.Gate.Pass()
		if q.Dead.Err() == nil {
			answered <- answer{value, err}
		}
	}()
	select {
	case a := <-answered:
		if err := n.travel(ctx, to, p.Name, kind); err != nil {
			return none, err
		}
		p.Gate.Pass()
		return a.value, a.err
	case <-ctx.Done():
		p.Gate.Pass()
		return none, ctx.Err()
	}
}

// ErrRefused: there is no process of that name.
var ErrRefused = errors.New("nobody listens there")

// Transport is raft's, of this process.
func (p *Process) Transport() raftnode.Transport { return &transport{p} }

// transport is raft's transport between processes.
type transport struct {
	p *Process
}

func (t *transport) rpc(to raft.ServerAddress, command any, data []byte, take func(any)) error {
	ctx, cancel := context.WithTimeout(context.Background(), t.p.net.RPCTimeout)
	defer cancel()
	response, err := Exchange(ctx, t.p, string(to), kindOf(command), func(ctx context.Context, q *Process) (any, error) {
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

func (t *transport) Consumer() <-chan raft.RPC     { return t.p.consumer }
func (t *transport) LocalAddr() raft.ServerAddress { return raft.ServerAddress(t.p.Name) }

func (t *transport) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (t *transport) AppendEntries(_ raft.ServerID, to raft.ServerAddress, q *raft.AppendEntriesRequest, a *raft.AppendEntriesResponse) error {
	return t.rpc(to, q, nil, func(r any) { *a = *r.(*raft.AppendEntriesResponse) })
}

func (t *transport) RequestVote(_ raft.ServerID, to raft.ServerAddress, q *raft.RequestVoteRequest, a *raft.RequestVoteResponse) error {
	return t.rpc(to, q, nil, func(r any) { *a = *r.(*raft.RequestVoteResponse) })
}

func (t *transport) RequestPreVote(_ raft.ServerID, to raft.ServerAddress, q *raft.RequestPreVoteRequest, a *raft.RequestPreVoteResponse) error {
	return t.rpc(to, q, nil, func(r any) { *a = *r.(*raft.RequestPreVoteResponse) })
}

func (t *transport) InstallSnapshot(_ raft.ServerID, to raft.ServerAddress, q *raft.InstallSnapshotRequest, a *raft.InstallSnapshotResponse, data io.Reader) error {
	b, err := io.ReadAll(data)
	if err != nil {
		return err
	}
	return t.rpc(to, q, b, func(r any) { *a = *r.(*raft.InstallSnapshotResponse) })
}

func (t *transport) TimeoutNow(_ raft.ServerID, to raft.ServerAddress, q *raft.TimeoutNowRequest, a *raft.TimeoutNowResponse) error {
	return t.rpc(to, q, nil, func(r any) { *a = *r.(*raft.TimeoutNowResponse) })
}

func (t *transport) EncodePeer(_ raft.ServerID, a raft.ServerAddress) []byte { return []byte(a) }
func (t *transport) DecodePeer(b []byte) raft.ServerAddress                  { return raft.ServerAddress(b) }
func (t *transport) SetHeartbeatHandler(func(raft.RPC))                      {}
