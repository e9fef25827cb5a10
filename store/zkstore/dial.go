package zkstore

import (
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// rotation has the library try the servers in turn, in an order of its own. A
// name is looked up with every attempt; the library's own provider does it once.
type rotation struct {
	mu      sync.Mutex
	servers []string
	at      int // the one that was tried last
	good    int // the one that was connected to last, or where the first round began
}

// Init takes the servers.
func (r *rotation) Init(servers []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers = slices.Clone(servers)
	rand.Shuffle(len(r.servers), func(i, j int) { r.servers[i], r.servers[j] = r.servers[j], r.servers[i] })
	r.at, r.good = -1, -1
	return nil
}

// Len is how many there are.
func (r *rotation) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.servers)
}

// Next is the server to try, and whether all have been tried since one was good.
func (r *rotation) Next() (server string, all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = (r.at + 1) % len(r.servers)
	all = r.at == r.good
	if r.good < 0 {
		r.good = 0
	}
	return r.servers[r.at], all
}

// Connected is told that the last one was good.
func (r *rotation) Connected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.good = r.at
}

// lineOut dials. The library waits ten times as long for a greeting as for
// anything else, and cannot be told to stop; its connections can.
type lineOut struct {
	greeting time.Duration // how long a server may take to greet
	dialled  atomic.Int64  // how many connections there have been

	mu   sync.Mutex
	conn net.Conn
	over bool
}

func (l *lineOut) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	l.conn = conn
	l.dialled.Add(1)
	return &impatient{Conn: conn, greeting: l.greeting}, nil
}

// hangUp ends the connection that there is now, when it is called. The library
// then goes on at another server, in the same session.
func (l *lineOut) hangUp() func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	conn := l.conn
	return func() {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// cut ends the connection for good.
func (l *lineOut) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

// impatient is a connection that does not wait long for the first that it hears.
type impatient struct {
	net.Conn
	greeting time.Duration // 0 once a deadline for it was set; used by one goroutine until then
}

func (i *impatient) SetReadDeadline(t time.Time) error {
	if most := i.greeting; most > 0 {
		i.greeting = 0
		if latest := time.Now().Add(most); t.After(latest) {
			t = latest
		}
	}
	return i.Conn.SetReadDeadline(t)
}
