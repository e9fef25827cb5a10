package line

import (
	"maps"
	"time"

	"baton"
)

// Member is one that waits.
type Member struct {
	baton.Candidate
	// Waited is how long it has had its place.
	Waited time.Duration
	// Unseen is how long ago its last Await ended; 0 during one.
	Unseen time.Duration
	// Turn tells that it was called.
	Turn bool
}

// InLine reports whether the node waits for the group.
func (l *Line) InLine(group, node string) (in bool) {
	l.look(group, func(q *queue, _ time.Duration) { in = len(q.nodes[node]) > 0 })
	return in
}

// Len is how many wait for the group.
func (l *Line) Len(group string) (n int) {
	l.look(group, func(q *queue, _ time.Duration) { n = q.order.Len() })
	return n
}

// TurnOf tells whose turn it is and for how long, so that an Acquire out of
// turn can be told when to try again. A successor that is waited for has a
// node and no instance.
func (l *Line) TurnOf(group string) (c baton.Candidate, left time.Duration, ok bool) {
	l.look(group, func(q *queue, now time.Duration) {
		switch {
		case q.turn != nil:
			c, left, ok = q.turn.show(), TurnKept, true
			if at, ends := q.turnEnds(); ends {
				left = at - now
			}
		case q.successor != "":
			c, left, ok = baton.Candidate{NodeID: q.successor}, q.successorUntil-now, true
		}
	})
	return c, left, ok
}

// Members lists who waits for the group, first come first.
func (l *Line) Members(group string) (members []Member) {
	l.look(group, func(q *queue, now time.Duration) {
		members = make([]Member, 0, q.order.Len())
		for e := q.order.Front(); e != nil; e = e.Next() {
			p := e.Value.(*place)
			m := Member{Candidate: p.show(), Waited: now - p.since, Turn: q.turn == p}
			if p.waiter == nil {
				m.Unseen = now - p.seen
			}
			members = append(members, m)
		}
	})
	return members
}

func (p *place) show() baton.Candidate {
	c := p.candidate
	c.Metadata = maps.Clone(c.Metadata)
	return c
}

// look calls f with the group's line as it is now, if it has one.
func (l *Line) look(group string, f func(q *queue, now time.Duration)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.groups[group]
	if q == nil {
		return
	}
	now := q.settle()
	f(q, now)
	q.arm(now)
}
