// Package freeze stops a simulated process, as SIGSTOP stops a real one.
package freeze

import (
	"sync"
	"time"
)

// Gate is passed by everything that a process does: its timers, its writes,
// what it sends and what reaches it. While it is shut the process stands still,
// and only its clock goes on. The zero Gate is open.
type Gate struct {
	mu   sync.Mutex
	shut chan struct{} // closed when the gate opens; nil while it is open
}

// Freeze shuts the gate for d. One that is shut already opens when it would have.
func (g *Gate) Freeze(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		return
	}
	shut := make(chan struct{})
	g.shut = shut
	time.AfterFunc(d, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.shut == shut {
			g.shut = nil
			close(shut)
		}
	})
}

// Open opens the gate before its time.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// Pass waits until the gate is open.
func (g *Gate) Pass() {
	for {
		g.mu.Lock()
		shut := g.shut
		g.mu.Unlock()
		if shut == nil {
			return
		}
		<-shut
	}
}
