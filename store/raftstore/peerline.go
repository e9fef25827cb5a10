package raftstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"baton/internal/raftnode"
)

// lines are this server's connections for questions to others, one to each.
type lines struct {
	dial raftnode.Dialer

	mu     sync.Mutex
	to     map[raftnode.Addressee]*peerLine
	closed bool
	owned  sync.WaitGroup
}

func newLines(dial raftnode.Dialer) *lines {
	return &lines{dial: dial, to: map[raftnode.Addressee]*peerLine{}}
}

// peerLine is one of them, from before it is connected until it breaks.
type peerLine struct {
	all *lines
	to  raftnode.Addressee

	connected chan struct{} // closed when it is, or cannot be
	err       error         // why it cannot be; set before
	out       *frameWriter  // set before
	heard     atomic.Int64  // how many frames have come

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan frame // nil when it is broken
}

// connectTime is what connecting to another server may take.
const connectTime = 2 * time.Second

var errBroken = errors.New("the connection broke before there was an answer")

// unsent is why a question was not asked: nothing came of it.
type unsent struct{ error }

func (e *unsent) Unwrap() error { return e.error }

// ask sends a question and waits for its answer: the one to this very question.
func (l *lines) ask(ctx context.Context, to raftnode.Addressee, kind byte, body []byte) ([]byte, error) {
	p, err := l.line(to)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.connected:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if p.err != nil {
		return nil, &unsent{p.err}
	}
	id, answer, err := p.begin()
	if err != nil {
		return nil, &unsent{err}
	}
	heard := p.heard.Load()
	if err := p.out.send(frame{kind, id, body}); err != nil {
		p.end(id)
		return nil, err
	}
	select {
	case f, ok := <-answer:
		switch {
		case !ok:
			return nil, errBroken
		case f.kind == notMeant:
			return nil, fmt.Errorf("%w: %s", raftnode.ErrNotMeant, f.body)
		}
		return f.body, nil
	case <-ctx.Done():
		p.end(id)
		_ = p.out.send(frame{kind: giveUp, id: id}) // if it is lost, the answer comes in vain
		if p.heard.Load() == heard && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			// Nothing at all has come meanwhile. A new connection may get through where this one waits.
			p.hangUp()
		}
		return nil, ctx.Err()
	}
}

// line is the connection to a server, begun if there is none.
func (l *lines) line(to raftnode.Addressee) (*peerLine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, net.ErrClosed
	}
	p := l.to[to]
	if p == nil {
		p = &peerLine{all: l, to: to, connected: make(chan struct{}), waiting: map[uint64]chan frame{}}
		l.to[to] = p
		l.owned.Go(p.run)
	}
	return p, nil
}

// forget makes the next question connect anew.
func (l *lines) forget(p *peerLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.to[p.to] == p {
		delete(l.to, p.to)
	}
}

func (l *lines) close() {
	l.mu.Lock()
	l.closed = true
	var open []*peerLine
	for _, p := range l.to {
		open = append(open, p)
	}
	l.mu.Unlock()
	for _, p := range open {
		<-p.connected
		p.hangUp()
	}
	l.owned.Wait()
}

// run connects, and reads answers until the connection breaks.
func (p *peerLine) run() {
	defer p.all.forget(p)
	ctx, cancel := context.WithTimeout(context.Background(), connectTime)
	conn, r, err := p.connect(ctx)
	cancel()
	if err != nil {
		p.err = err
		close(p.connected)
		return
	}
	p.out = newFrameWriter(conn)
	close(p.connected)
	for {
		f, err := readFrame(r)
		if err != nil {
			break
		}
		p.heard.Add(1)
		p.mu.Lock()
		answer := p.waiting[f.id]
		delete(p.waiting, f.id)
		p.mu.Unlock()
		if answer != nil {
			answer <- f
		}
	}
	p.all.forget(p)
	p.mu.Lock()
	for _, answer := range p.waiting {
		close(answer)
	}
	p.waiting = nil
	p.mu.Unlock()
	p.out.close()
}

// connect says whom it is for, and is a connection for frames if that is right.
func (p *peerLine) connect(ctx context.Context) (net.Conn, *bufio.Reader, error) {
	conn, err := p.all.dial(ctx, "tcp", p.to.Address)
	if err != nil {
		return nil, nil, err
	}
	fail := func(err error) (net.Conn, *bufio.Reader, error) {
		return nil, nil, errors.Join(err, conn.Close())
	}
	_ = conn.SetDeadline(time.Now().Add(connectTime))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+p.to.Address+linePath, nil)
	if err != nil {
		return fail(err)
	}
	p.to.Put(req.Header)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", lineProtocol)
	if err := req.Write(conn); err != nil {
		return fail(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return fail(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		said := make([]byte, 1024)
		n, _ := resp.Body.Read(said)
		_ = resp.Body.Close()
		return fail(raftnode.Refusal(p.to, resp, []byte(strings.TrimSpace(string(said[:n])))))
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, r, nil
}

const (
	linePath     = "/line"
	lineProtocol = "baton-line/1"
)

func (p *peerLine) begin() (uint64, <-chan frame, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == nil {
		return 0, nil, errBroken
	}
	p.last++
	answer := make(chan frame, 1)
	p.waiting[p.last] = answer
	return p.last, answer, nil
}

func (p *peerLine) end(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, id)
}

// hangUp ends a connection that was made. What waits for it ends too.
func (p *peerLine) hangUp() {
	p.all.forget(p)
	if p.err == nil {
		_ = p.out.conn.Close()
	}
}
