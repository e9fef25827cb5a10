package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// link is one client's connection to the server through the proxy.
type link struct {
	client *net.TCPConn
	ctx    context.Context // ends when the link is reset
	cancel context.CancelFunc

	mu     sync.Mutex
	server *net.TCPConn // nil until connected
}

func newLink(client *net.TCPConn) *link {
	k := &link{client: client}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// run connects to the server and forwards in both directions until both have ended.
func (k *link) run(server string, toServer, toClient *gate) {
	defer k.reset()
	if !toServer.pass(k.ctx) {
		return
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(k.ctx, "tcp4", server)
	if err != nil {
		toClient.pass(k.ctx) // the server's refusal is held back as well
		return
	}
	k.mu.Lock()
	k.server = conn.(*net.TCPConn)
	k.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { k.forward(k.server, k.client, toServer, toClient) })
	wg.Go(func() { k.forward(k.client, k.server, toClient, toServer) })
	wg.Wait()
	// Both have said all they had to say: the ends are tidy ones.
	if k.ctx.Err() == nil {
		_ = k.client.Close()
		_ = k.server.Close()
	}
}

// forward passes on what src says through the gate. What dst says about it
// goes back through the other.
func (k *link) forward(dst, src *net.TCPConn, there, back *gate) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if !there.pass(k.ctx) {
			return
		}
		if n > 0 {
			if _, err := dst.Write(buf[:n]); err != nil {
				back.pass(k.ctx)
				k.reset()
				return
			}
		}
		if errors.Is(err, io.EOF) {
			_ = dst.CloseWrite() // if dst is gone, the other direction notices
			return
		}
		if err != nil {
			k.reset()
			return
		}
	}
}

// reset breaks the connection off on both sides.
func (k *link) reset() {
	k.cancel()
	reset(k.client)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.server != nil {
		reset(k.server)
	}
}

// reset closes a connection without a word, so that its other end sees an
// error and not an end. One that is closed already stays as it is.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}

// gate lets one direction of the traffic through, or holds it.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // closed while the gate is open
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{})}
	close(g.opened)
	return g
}

func (g *gate) isOpen() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.isOpen() {
		close(g.opened)
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isOpen() {
		g.opened = make(chan struct{})
	}
}

// pass returns true when the gate is open, false if ctx ended first.
func (g *gate) pass(ctx context.Context) bool {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-opened:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
