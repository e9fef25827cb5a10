package raftstore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// The peer port carries two kinds of connections, told apart by their first
// byte: raft's own, and HTTP for what servers ask each other beside it. Both
// say whom they are meant for.

const raftByte = 0x00 // no HTTP method begins with it

// peerPort listens for both.
type peerPort struct {
	listener net.Listener
	address  raft.ServerAddress
	log      *slog.Logger
	// meant is an error if what is meant for this addressee is not meant for this server.
	meant func(addressee) error
	raft  *connQueue
	http  *connQueue
	owned sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // accepted and open; nil when the port is closed
}

func listen(address, advertise string, meant func(addressee) error, log *slog.Logger) (*peerPort, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("peer port: %w", err)
	}
	p := &peerPort{listener: l, address: raft.ServerAddress(advertise), log: log, meant: meant, raft: newConnQueue(l.Addr()), http: newConnQueue(l.Addr()), conns: map[net.Conn]struct{}{}}
	p.owned.Go(p.accept)
	return p, nil
}

func (p *peerPort) accept() {
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

func (p *peerPort) sort(conn net.Conn) {
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
		p.http.put(peekedConn{conn, r})
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
	p.raft.put(peekedConn{conn, r})
}

func (p *peerPort) Close() error {
	err := p.listener.Close()
	_ = p.raft.Close()
	_ = p.http.Close()
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
	p *peerPort
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

// connQueue is a net.Listener for one kind of connection.
type connQueue struct {
	address net.Addr
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func newConnQueue(address net.Addr) *connQueue {
	return &connQueue{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (q *connQueue) put(c net.Conn) {
	select {
	case q.conns <- c:
	case <-q.closed:
		_ = c.Close()
	}
}

func (q *connQueue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

func (q *connQueue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

func (q *connQueue) Addr() net.Addr { return q.address }

// raftStream is the raft half of the port, as raft's transport wants it.
type raftStream struct {
	*connQueue
	advertise net.Addr
	at        func(address string) (addressee, error)
	dial      dialer
}

func (s raftStream) Addr() net.Addr { return s.advertise }

// Dial names whom it wants to talk to before raft says anything.
func (s raftStream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	to, err := s.at(string(address))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := s.dial(ctx, "tcp", string(address))
	if err != nil {
		return nil, err
	}
	_ = conn.SetWriteDeadline(time.Now().Add(timeout))
	if _, err := conn.Write(to.header()); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	_ = conn.SetWriteDeadline(time.Time{})
	return conn, nil
}

// name is an address as it was configured.
type name string

func (name) Network() string  { return "tcp" }
func (n name) String() string { return string(n) }

// plainHeartbeats is raft's transport without its fast path for heartbeats,
// which are handled beside raft's main loop there and race with it (hashicorp/raft issue 695).
type plainHeartbeats struct{ *raft.NetworkTransport }

func (plainHeartbeats) SetHeartbeatHandler(func(raft.RPC)) {}

// httpPeers asks other servers over HTTP.
type httpPeers struct{ client *http.Client }

func newHTTPPeers(dial dialer) *httpPeers {
	return &httpPeers{&http.Client{Transport: &http.Transport{
		DialContext:           dial,
		MaxIdleConnsPerHost:   1024,
		IdleConnTimeout:       time.Minute,
		ResponseHeaderTimeout: 0, // a wait in line takes as long as it takes
		DisableCompression:    true,
	}}}
}

func (p *httpPeers) close() { p.client.CloseIdleConnections() }

func (p *httpPeers) term(ctx context.Context, to addressee) (uint64, error) {
	body, err := p.post(ctx, to, "/term", nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(body), 10, 64)
}

func (p *httpPeers) call(ctx context.Context, to addressee, q request) (response, error) {
	body, err := p.ask(ctx, to, "/call", q)
	var refused *net.OpError
	switch {
	case errors.As(err, &refused) && refused.Op == "dial", errors.Is(err, errStarting), errors.Is(err, errNotMeant):
		return response{}, &notServing{unavailable(q.Op, fmt.Errorf("the leader of the cluster does not answer: %w", err))}
	case err != nil:
		return response{}, unavailable(q.Op, err)
	}
	var a response
	if err := json.Unmarshal(body, &a); err != nil {
		return response{}, unavailable(q.Op, fmt.Errorf("answer of the cluster's leader: %w", err))
	}
	if a.Error != nil {
		return response{}, a.Error.err(q.Op)
	}
	return a, nil
}

// admit asks a server to admit this one. begun tells whether the other one has data of a cluster.
func (p *httpPeers) admit(ctx context.Context, to addressee, q admitRequest) (begun bool, err error) {
	body, err := p.ask(ctx, to, "/admit", q)
	if err != nil {
		return false, err
	}
	var a admitResponse
	if err := json.Unmarshal(body, &a); err != nil {
		return false, err
	}
	if a.Refused {
		return false, errForgotten
	}
	return a.Begun, nil
}

type admitRequest struct{ ID, Mark string }

type admitResponse struct{ Begun, Refused bool }

func (p *httpPeers) ask(ctx context.Context, to addressee, path string, question any) ([]byte, error) {
	b, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	return p.post(ctx, to, path, b)
}

var (
	errStarting = errors.New("the server is starting")
	errNotMeant = errors.New("not meant for this server")
)

func (p *httpPeers) post(ctx context.Context, to addressee, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to.address+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	to.put(req.Header)
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusServiceUnavailable:
		return nil, errStarting
	case resp.StatusCode == http.StatusMisdirectedRequest:
		return nil, fmt.Errorf("%w: %s", errNotMeant, bytes.TrimSpace(answer))
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answered %s: %s", to.address, resp.Status, bytes.TrimSpace(answer))
	}
	return answer, nil
}
