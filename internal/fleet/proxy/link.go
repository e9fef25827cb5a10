package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// way is one direction of a node's traffic.
type way struct {
	mu    sync.Mutex
	open  chan struct{} // closed while it is open
	delay time.Duration

	messages, bytes atomic.Int64
}

func newWay() *way {
	w := &way{open: make(chan struct{})}
	close(w.open)
	return w
}

func (w *way) set(t Trouble) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = time.Duration(t.DelayMS) * time.Millisecond
	isOpen := true
	select {
	case <-w.open:
	default:
		isOpen = false
	}
	switch {
	case t.Cut && isOpen:
		w.open = make(chan struct{})
	case !t.Cut && !isOpen:
		close(w.open)
	}
}

// count takes note of something that was sent.
func (w *way) count(bytes int) {
	w.messages.Add(1)
	w.bytes.Add(int64(bytes))
}

func (w *way) load() Load { return Load{Messages: w.messages.Load(), Bytes: w.bytes.Load()} }

// state is how late things arrive, and what is closed when they do.
func (w *way) state() (time.Duration, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.delay, w.open
}

// path is the ways that something passes, one after the other.
type path []*way

// due is when what is sent now arrives.
func (p path) due() time.Time {
	at := time.Now()
	for _, w := range p {
		delay, _ := w.state()
		at = at.Add(delay)
	}
	return at
}

func (p path) count(bytes int) {
	for _, w := range p {
		w.count(bytes)
	}
}

// pass returns true when all ways are open, false if ctx ended first.
func (p path) pass(ctx context.Context) bool {
	for _, w := range p {
		_, open := w.state()
		select {
		case <-open:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// parcel is something on its way: bytes, or how the connection ended.
type parcel struct {
	due  time.Time
	data []byte
	err  error
}

// deliver waits until the parcel may arrive.
func (p path) deliver(ctx context.Context, what parcel) bool {
	if d := time.Until(what.due); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
	}
	return p.pass(ctx)
}

// link is one connection of a node to the backend, or to a peer.
type link struct {
	node   *net.TCPConn
	ctx    context.Context // ends when the link is reset
	cancel context.CancelFunc

	mu      sync.Mutex
	backend *net.TCPConn // nil until connected
}

func newLink(node *net.TCPConn) *link {
	k := &link{node: node}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	return k
}

// run forwards in both directions until both have ended.
func (k *link) run(address string, to, from path) {
	defer k.reset()
	if !to.deliver(k.ctx, parcel{due: to.due()}) {
		return
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(k.ctx, "tcp", address)
	if err != nil {
		from.deliver(k.ctx, parcel{due: from.due()}) // a refusal travels, too
		return
	}
	backend := conn.(*net.TCPConn)
	k.mu.Lock()
	k.backend = backend
	k.mu.Unlock()
	if k.ctx.Err() != nil {
		return // reset before it was known what to reset
	}
	var wg sync.WaitGroup
	wg.Go(func() { k.forward(backend, k.node, to, from) })
	wg.Go(func() { k.forward(k.node, backend, from, to) })
	wg.Wait()
	if k.ctx.Err() == nil { // both have said all they had to say
		_ = k.node.Close()
		_ = backend.Close()
	}
}

const (
	parcelSize = 32 << 10
	// underway is how many parcels a direction holds before its sender has to wait.
	underway = 64
)

// forward carries what src says to dst. That dst is gone is news which goes back the other way.
func (k *link) forward(dst, src *net.TCPConn, there, back path) {
	parcels := make(chan parcel, underway)
	var reader sync.WaitGroup
	reader.Go(func() { k.read(src, there, parcels) })
	defer reader.Wait()
	for p := range parcels {
		if !there.deliver(k.ctx, p) {
			return
		}
		switch {
		case errors.Is(p.err, io.EOF):
			_ = dst.CloseWrite() // if dst is gone, the other direction notices
			return
		case p.err != nil:
			k.reset()
			return
		}
		if _, err := dst.Write(p.data); err != nil {
			back.pass(k.ctx)
			k.reset()
			return
		}
	}
}

func (k *link) read(src *net.TCPConn, there path, parcels chan<- parcel) {
	defer close(parcels)
	for {
		buf := make([]byte, parcelSize)
		n, err := src.Read(buf)
		if n > 0 {
			there.count(n)
		}
		for _, p := range []parcel{{due: there.due(), data: buf[:n]}, {due: there.due(), err: err}} {
			if len(p.data) == 0 && p.err == nil {
				continue
			}
			select {
			case parcels <- p:
			case <-k.ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// reset breaks the connection off on both sides.
func (k *link) reset() {
	k.cancel()
	reset(k.node)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.backend != nil {
		reset(k.backend)
	}
}

// reset closes a connection so that its other end sees an error and not an
// end. One that is closed already stays as it is.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}
