package main

import (
	"fmt"
	"net"
	"sync"
)

// proxy stands between a server and its clients and can be cut like a network.
//
// A cut holds bytes back, it does not drop them: TCP would send them again, and
// so a connection that outlives the cut goes on where it stood. The end of a
// connection is held back too: a server does not learn that a client behind the
// cut has gone. New connections are accepted, since the kernel does that, and
// then hear nothing.
type proxy struct {
	addr               string // where clients connect
	server             string
	toServer, toClient *gate

	mu       sync.Mutex
	listener net.Listener // nil while connections are refused
	links    map[*link]struct{}
	wg       sync.WaitGroup
}

// newProxy listens on a free port and forwards to server.
func newProxy(server string) (*proxy, error) {
	p := &proxy{server: server, toServer: newGate(), toClient: newGate(), links: map[*link]struct{}{}}
	var err error
	for range 3 {
		var port int
		if port, err = freePort(); err != nil {
			return nil, err
		}
		p.addr = fmt.Sprintf("127.0.0.1:%d", port)
		if err = p.listen(); err == nil {
			return p, nil
		}
	}
	return nil, fmt.Errorf("start the proxy: %w", err)
}

func (p *proxy) listen() error {
	l, err := net.Listen("tcp4", p.addr)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.listener = l
	p.mu.Unlock()
	p.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			p.accept(l, conn.(*net.TCPConn))
		}
	})
	return nil
}

// accept links a client to the server.
func (p *proxy) accept(from net.Listener, client *net.TCPConn) {
	k := newLink(client)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != from { // refused meanwhile
		k.reset()
		return
	}
	p.links[k] = struct{}{}
	p.wg.Go(func() {
		k.run(p.server, p.toServer, p.toClient)
		p.mu.Lock()
		delete(p.links, k)
		p.mu.Unlock()
	})
}

// cut holds back what goes in the direction named, and only that.
func (p *proxy) cut(direction string) error {
	switch direction {
	case "to-server":
		p.toServer.shut()
		p.toClient.open()
	case "to-client":
		p.toServer.open()
		p.toClient.shut()
	case "both":
		p.toServer.shut()
		p.toClient.shut()
	default:
		return fmt.Errorf("unknown direction %q: there are to-server, to-client and both", direction)
	}
	return nil
}

// refuse resets every connection, with what a cut may have held back of it,
// and lets no new one in.
func (p *proxy) refuse() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return nil
	}
	err := p.listener.Close()
	p.listener = nil
	for k := range p.links {
		k.reset()
	}
	return err
}

// heal lets everything through again.
func (p *proxy) heal() error {
	p.toServer.open()
	p.toClient.open()
	p.mu.Lock()
	refusing := p.listener == nil
	p.mu.Unlock()
	if !refusing {
		return nil
	}
	return p.listen()
}

func (p *proxy) close() error {
	err := p.refuse()
	p.wg.Wait()
	return err
}
