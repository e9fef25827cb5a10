package raftnode

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// The peer port carries two kinds of connections, told apart by their first
// byte: raft's own, and HTTP for what servers ask each other beside it. Both
// say whom they are meant for.

// Dialer connects to the port of another server.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

const raftByte = 0x00 // no HTTP method begins with it

// Port listens for both.
type Port struct {
	listener net.Listener
	log      *slog.Logger
	// meant is an error if what is meant for this addressee is not meant for this server.
	meant func(Addressee) error
	Raft  *Queue // connections of raft
	HTTP  *Queue // all others
	owned sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // accepted and open; nil when the port is closed
}

// Listen opens a port. meant is an error if what is meant for an addressee is not meant for this server.
func Listen(address string, meant func(Addressee) error, log *slog.Logger) (*Port, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("peer port: %w", err)
	}
	p := &Port{listener: l, log: log, meant: meant, Raft: newQueue(l.Addr()), HTTP: newQueue(l.Addr()), conns: map[net.Conn]struct{}{}}
	p.owned.Go(p.accept)
	return p, nil
}

func (p *Port) accept() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			p.log.Warn("peer port", "err", err)
			time.Sleep(10 * time.Millisecond) // out of descriptors, most likely: let some go
			continue
		}
		p.owned.Go(func() { p.sort(conn) })
	}
}

func (p *Port) sort(conn net.Conn) {
	p.mu.Lock()
	if p.conns == nil {
		p.mu.Unlock()
		_ = conn.Close()
		return
	}
	conn = trackedConn{conn, p}
	p.conns[conn] = struct{}{}
	p.mu.Unlock()
	r := bufio.NewReader(conn)
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	first, err := r.Peek(1)
	if err != nil {
		_ = conn.Close()
		return
	}
	if first[0] != raftByte {
		_ = conn.SetReadDeadline(time.Time{})
		p.HTTP.put(peekedConn{conn, r})
		return
	}
	to, err := readAddressee(r)
	if err == nil {
		err = p.meant(to)
	}
	if err != nil {
		p.log.Warn("connection of another server refused", "from", conn.RemoteAddr().String(), "err", err)
		_ = conn.Close()
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	p.Raft.put(peekedConn{conn, r})
}

// Close ends all connections that were accepted.
func (p *Port) Close() error {
	err := p.listener.Close()
	_ = p.Raft.Close()
	_ = p.HTTP.Close()
	p.mu.Lock()
	open := p.conns
	p.conns = nil
	p.mu.Unlock()
	// Raft's transport never closes what it accepted.
	for conn := range open {
		_ = conn.Close()
	}
	p.owned.Wait()
	return err
}

// trackedConn is forgotten by its port when it is closed.
type trackedConn struct {
	net.Conn
	p *Port
}

func (c trackedConn) Close() error {
	c.p.mu.Lock()
	delete(c.p.conns, c)
	c.p.mu.Unlock()
	return c.Conn.Close()
}

// peekedConn reads what was read ahead first.
type peekedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c peekedConn) Read(b []byte) (int, error) { return c.r.Read(b) }

// Queue is a net.Listener for one kind of connection.
type Queue struct {
	address net.Addr
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func newQueue(address net.Addr) *Queue {
	return &Queue{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (q *Queue) put(c net.Conn) {
	select {
	case q.conns <- c:
	case <-q.closed:
		_ = c.Close()
	}
}

// Accept waits for the next connection.
func (q *Queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (q *Queue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

// Addr is that of the port.
func (q *Queue) Addr() net.Addr { return q.address }

// Stream is the raft half of the port, as raft's transport wants it.
type Stream struct {
	*Queue
	// Advertise is where other servers reach this one.
	Advertise string
	// At is whom this server expects at an address.
	At func(address string) (Addressee, error)
	// DialContext connects.
	DialContext Dialer
}

// Addr is where other servers reach this one.
func (s Stream) Addr() net.Addr { return name(s.Advertise) }

// Dial names whom it wants to talk to before raft says anything.
func (s Stream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	to, err := s.At(string(address))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := s.DialContext(ctx, "tcp", string(address))
	if err != nil {
		return nil, err
	}
	_ = conn.SetWriteDeadline(time.Now().Add(timeout))
	if _, err := conn.Write(to.Header()); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	_ = conn.SetWriteDeadline(time.Time{})
	return conn, nil
}

// name is an address as it was configured.
type name string

func (name) Network() string  { return "tcp" }
func (n name) String() string { return string(n) }

// PlainHeartbeats is raft's transport without its fast path for heartbeats,
// which are handled beside raft's main loop there and race with it (hashicorp/raft issue 695).
type PlainHeartbeats struct{ *raft.NetworkTransport }

// SetHeartbeatHandler forgets the fast path.
func (PlainHeartbeats) SetHeartbeatHandler(func(raft.RPC)) {}
