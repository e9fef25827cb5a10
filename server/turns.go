package server

import (
	"sync"
	"time"

	"baton"
)

// turns remembers, for a few seconds, what the line has told whom: which
// instance was called, so that its next campaign tries for the lease even if it offers
// to wait; and which instance was drawn for a node that names none, so
// that the node keeps its place from one call to the next.
type turns struct {
	clock baton.Clock
	mu    sync.Mutex
	notes map[nodeKey]*note
}

type nodeKey struct{ group, node string }

type note struct {
	parked string // the instance that was drawn
	called string // the instance whose turn it is
	at     time.Duration
}

const (
	// noteKept is as long as a place in line survives between two calls.
	noteKept = 5 * time.Second
	maxNotes = 20_000
)

func newTurns(clock baton.Clock) *turns {
	return &turns{clock: clock, notes: map[nodeKey]*note{}}
}

// park keeps a drawn instance for the node's next campaign.
func (t *turns) park(group string, c baton.Candidate) {
	t.note(group, c.NodeID, func(n *note) { n.parked = c.InstanceID })
}

// unpark hands it out, once: two campaigns must not share an instance, since
// the store would give both the same leadership.
func (t *turns) unpark(group, node string) (instance string, ok bool) {
	t.look(group, node, func(n *note) { instance, n.parked = n.parked, "" })
	return instance, instance != ""
}

// claim takes an instance that its node names itself out of the park.
func (t *turns) claim(group string, c baton.Candidate) {
	t.look(group, c.NodeID, func(n *note) {
		if n.parked == c.InstanceID {
			n.parked = ""
		}
	})
}

// give records that it is c's turn.
func (t *turns) give(group string, c baton.Candidate) {
	t.note(group, c.NodeID, func(n *note) { n.called = c.InstanceID })
}

// take reports whether it is c's turn, once.
func (t *turns) take(group string, c baton.Candidate) (ok bool) {
	t.look(group, c.NodeID, func(n *note) {
		if ok = n.called == c.InstanceID; ok {
			n.called = ""
		}
	})
	return ok
}

func (t *turns) note(group, node string, f func(*note)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if len(t.notes) >= maxNotes {
		t.sweep(now)
	}
	k := nodeKey{group, node}
	n := t.notes[k]
	if n == nil || now-n.at >= noteKept {
		n = &note{}
		t.notes[k] = n
	}
	n.at = now
	f(n)
}

func (t *turns) look(group, node string, f func(*note)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	k := nodeKey{group, node}
	n := t.notes[k]
	if n == nil {
		return
	}
	if t.clock.Now()-n.at < noteKept {
		f(n)
	}
	if n.parked == "" && n.called == "" || t.clock.Now()-n.at >= noteKept {
		delete(t.notes, k)
	}
}

// sweep drops what is old; all of it if nothing is. The worst that comes of
// a lost note is a second turn for its node.
func (t *turns) sweep(now time.Duration) {
	for k, n := range t.notes {
		if now-n.at >= noteKept {
			delete(t.notes, k)
		}
	}
	if len(t.notes) >= maxNotes {
		clear(t.notes)
	}
}
