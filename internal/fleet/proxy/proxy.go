// Package proxy stands between the nodes of a fleet and their backend, or between
// the nodes where they elect among themselves, and can be cut for one node as a network can.
//
// A cut holds bytes back, it does not drop them: TCP would send them again, and
// a connection that outlives the cut goes on where it stood. That a connection
// has ended is held back as well. New connections are accepted, and hear
// nothing. This is why it is not toxiproxy, see docs/decisions/0007.
//
// The proxy of testservers/ cuts in the same way, for all clients of one server at
// once. It is a second one on purpose: that module is built alone, from its own
// few requirements, and what this one adds, ways that several cables share,
// delays and counts, it has no use for.
package proxy

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"baton/internal/fleet"
)

// Direction is which way a fault works.
type Direction string

// The directions.
const (
	Both        Direction = "both"
	ToBackend   Direction = "to-backend"
	FromBackend Direction = "from-backend"
)

// Directions are all directions.
var Directions = []Direction{Both, ToBackend, FromBackend}

// Fault is what is wrong between a node and its backend, each way.
type Fault struct {
	ToBackend   Trouble `json:"to_backend"`
	FromBackend Trouble `json:"from_backend"`
	// ForMS heals the fault after this time, so that one whose maker has died
	// does not last. 0: it lasts until it is healed.
	ForMS int64 `json:"for_ms,omitempty"`
}

// Trouble is what is wrong in one direction.
type Trouble struct {
	// Cut holds everything back until the fault is healed.
	Cut bool `json:"cut,omitempty"`
	// DelayMS makes everything arrive this much later.
	DelayMS int64 `json:"delay_ms,omitempty"`
}

// In is a fault that is this trouble in one direction, or in both.
func (t Trouble) In(d Direction) Fault {
	var f Fault
	if d != FromBackend {
		f.ToBackend = t
	}
	if d != ToBackend {
		f.FromBackend = t
	}
	return f
}

func (f Fault) validate() error {
	if f.ForMS < 0 || f.ToBackend.DelayMS < 0 || f.FromBackend.DelayMS < 0 {
		return errors.New("a fault cuts or delays, for times that are not negative")
	}
	return nil
}

// Proxy forwards what the nodes of a fleet say to their backend and to each other.
type Proxy struct {
	cables map[string]*cable // by node; what is plugged in stays
	wg     sync.WaitGroup

	mu        sync.Mutex
	closed    bool
	listeners []net.Listener
	links     map[*link]struct{}
}

// cable is all that one node has to the backend, or to its peers.
type cable struct {
	to, from *way

	mu      sync.Mutex
	fault   *Fault
	healing *time.Timer
}

// Open listens for every node of the fleet that goes via a proxy.
func Open(f *fleet.File) (*Proxy, error) {
	hosts, err := fleet.StoreHosts(f.Store)
	if err != nil {
		return nil, err
	}
	p := &Proxy{cables: map[string]*cable{}, links: map[*link]struct{}{}}
	for _, n := range f.Nodes {
		if len(n.Via) > 0 {
			p.cables[n.ID] = &cable{to: newWay(), from: newWay()}
		}
	}
	for _, n := range f.Nodes {
		if err := p.listenFor(f, n, hosts); err != nil {
			return nil, errors.Join(fmt.Errorf("listen for node %s: %w", n.ID, err), p.Close())
		}
	}
	if len(p.listeners) == 0 {
		return nil, errors.New("no node of the fleet goes via a proxy")
	}
	return p, nil
}

// listenFor opens the node's ways to the hosts of the store. Where these are
// the other nodes, what two say to each other passes the cables of both.
func (p *Proxy) listenFor(f *fleet.File, n fleet.Node, hosts []string) error {
	c := p.cables[n.ID]
	for i, address := range n.Via {
		there, back := path{c.to}, path{c.from}
		if f.Peers() {
			if other := p.cables[f.Nodes[i].ID]; other != nil && other != c {
				there, back = path{c.to, other.from}, path{other.to, c.from}
			}
		}
		if err := p.listen(address, hosts[i], there, back); err != nil {
			return err
		}
	}
	return nil
}

func (p *Proxy) listen(address, target string, there, back path) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	p.listeners = append(p.listeners, listener)
	p.wg.Go(func() { p.accept(listener, target, there, back) })
	return nil
}

func (p *Proxy) accept(listener net.Listener, target string, there, back path) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of files, or the like: it may pass.
			time.Sleep(10 * time.Millisecond)
			continue
		}
		k := newLink(conn.(*net.TCPConn))
		if !p.plug(k) {
			k.reset()
			return
		}
		p.wg.Go(func() {
			defer p.unplug(k)
			k.run(target, there, back)
		})
	}
}

func (p *Proxy) plug(k *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.links[k] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) unplug(k *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, k)
}

// ErrNoNode: no such node goes via this proxy.
var ErrNoNode = errors.New("no such node goes via this proxy")

// Set makes the fault the only one that the node has.
func (p *Proxy) Set(node string, f Fault) error {
	if err := f.validate(); err != nil {
		return err
	}
	c, ok := p.cables[node]
	if !ok {
		return ErrNoNode
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(&f)
	if f.ForMS > 0 {
		c.healing = time.AfterFunc(time.Duration(f.ForMS)*time.Millisecond, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.fault == &f {
				c.set(nil)
			}
		})
	}
	return nil
}

// Heal takes the node's fault away.
func (p *Proxy) Heal(node string) error {
	c, ok := p.cables[node]
	if !ok {
		return ErrNoNode
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(nil)
	return nil
}

func (c *cable) set(f *Fault) {
	if c.healing != nil {
		c.healing.Stop()
		c.healing = nil
	}
	c.fault = f
	if f == nil {
		f = &Fault{}
	}
	c.to.set(f.ToBackend)
	c.from.set(f.FromBackend)
}

// Faults are the nodes that go via this proxy and what is wrong with their
// connections; nil for nothing.
func (p *Proxy) Faults() map[string]*Fault {
	faults := map[string]*Fault{}
	for node, c := range p.cables {
		c.mu.Lock()
		faults[node] = c.fault
		c.mu.Unlock()
	}
	return faults
}

// Traffic is what one node has sent and received through this proxy.
type Traffic struct {
	ToBackend   Load `json:"to_backend"`
	FromBackend Load `json:"from_backend"`
}

// Load is what went one way. A message is what arrived at once: mostly one
// request or one answer.
type Load struct {
	Messages int64 `json:"messages"`
	Bytes    int64 `json:"bytes"`
}

// Traffic is what went through this proxy so far, by node.
func (p *Proxy) Traffic() map[string]Traffic {
	all := map[string]Traffic{}
	for node, c := range p.cables {
		all[node] = Traffic{ToBackend: c.to.load(), FromBackend: c.from.load()}
	}
	return all
}

// Close breaks all connections off and waits for what forwarded them.
func (p *Proxy) Close() error {
	for _, c := range p.cables {
		c.mu.Lock()
		c.set(nil)
		c.mu.Unlock()
	}
	p.mu.Lock()
	var err error
	if !p.closed {
		p.closed = true
		for _, l := range p.listeners {
			err = errors.Join(err, l.Close())
		}
		for k := range p.links {
			k.reset()
		}
	}
	p.mu.Unlock()
	p.wg.Wait()
	return err
}
