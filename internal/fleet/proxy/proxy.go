// Package proxy stands between the nodes of a fleet and their backend, and can
// be cut for one node as a network can.
//
// A cut holds bytes back, it does not drop them: TCP would send them again, and
// a connection that outlives the cut goes on where it stood. That a connection
// has ended is held back as well. New connections are accepted, and hear
// nothing. This is why it is not toxiproxy, see docs/decisions/0007.
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

// Proxy forwards what the nodes of a fleet and its backend say to each other.
type Proxy struct {
	cables map[string]*cable // by node; what is plugged in stays
	wg     sync.WaitGroup
}

// cable is all that one node has to the backend.
type cable struct {
	to, from *way

	mu        sync.Mutex
	closed    bool
	listeners []net.Listener
	links     map[*link]struct{}
	fault     *Fault
	healing   *time.Timer
}

// Open listens for every node of the fleet that goes via a proxy.
func Open(f *fleet.File) (*Proxy, error) {
	hosts, err := fleet.StoreHosts(f.Store)
	if err != nil {
		return nil, err
	}
	p := &Proxy{cables: map[string]*cable{}}
	for _, n := range f.Nodes {
		if len(n.Via) == 0 {
			continue
		}
		c := &cable{to: newWay(), from: newWay(), links: map[*link]struct{}{}}
		p.cables[n.ID] = c
		for i, address := range n.Via {
			listener, err := net.Listen("tcp", address)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("listen for node %s: %w", n.ID, err), p.Close())
			}
			c.listeners = append(c.listeners, listener)
			p.wg.Go(func() { p.accept(c, listener, hosts[i]) })
		}
	}
	if len(p.cables) == 0 {
		return nil, errors.New("no node of the fleet goes via a proxy")
	}
	return p, nil
}

func (p *Proxy) accept(c *cable, listener net.Listener, backend string) {
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
		if !c.plug(k) {
			k.reset()
			return
		}
		p.wg.Go(func() {
			defer c.unplug(k)
			k.run(backend, c.to, c.from)
		})
	}
}

func (c *cable) plug(k *link) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.links[k] = struct{}{}
	}
	return !c.closed
}

func (c *cable) unplug(k *link) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.links, k)
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

// Close breaks all connections off and waits for what forwarded them.
func (p *Proxy) Close() error {
	var err error
	for _, c := range p.cables {
		err = errors.Join(err, c.close())
	}
	p.wg.Wait()
	return err
}

func (c *cable) close() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	c.set(nil)
	for _, l := range c.listeners {
		err = errors.Join(err, l.Close())
	}
	for k := range c.links {
		k.reset()
	}
	return err
}
