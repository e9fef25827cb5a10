package server

import (
	"sync"
	"time"

	"baton"
)

// elections follows each group's latest leadership as it passes through this
// server, to tell a new grant from a repeated one, how long nobody led, and
// why the one before ended. It is for logs and metrics: nothing is decided by it.
type elections struct {
	clock  baton.Clock
	mu     sync.Mutex
	groups map[string]*election
}

type election struct {
	lease    baton.Lease
	deadline time.Duration // by what the store last said; at the store it may be later, by what the answer took
	why      baton.Reason  // "" while it stands
	endedAt  time.Duration
}

// elected is what is known about a grant.
type elected struct {
	previous        baton.Lease
	why             string
	leaderless      time.Duration
	leaderlessKnown bool
	splitBrain      bool
}

const maxElections = 10_000

func newElections(clock baton.Clock) *elections {
	return &elections{clock: clock, groups: map[string]*election{}}
}

// granted records that the store, asked at the given time, granted l, and
// reports whether this is the first time it is heard of.
func (e *elections) granted(l baton.Lease, asked time.Duration) (elected, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.clock.Now()
	g := e.groups[l.Group]
	if g == nil {
		e.begin(l, asked)
		return elected{}, true
	}
	out := elected{previous: g.lease}
	if g.lease.Term == l.Term {
		out.splitBrain = g.lease.InstanceID != l.InstanceID
		g.deadline = max(g.deadline, asked+l.Remaining)
		return out, false
	}
	if g.lease.Term > l.Term {
		return out, false // an answer that was overtaken
	}
	switch {
	case g.why != "":
		out.why, out.leaderless, out.leaderlessKnown = string(g.why), now-g.endedAt, true
	case now >= g.deadline:
		out.why, out.leaderless, out.leaderlessKnown = string(baton.Expired), now-g.deadline, true
	default:
		out.why = "not seen by this server"
	}
	e.begin(l, asked)
	return out, true
}

// saw records the word on a leadership of the store, asked at the given time.
func (e *elections) saw(l baton.Lease, asked time.Duration) {
	if !l.Held() {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch g := e.groups[l.Group]; {
	case g == nil || g.lease.Term < l.Term:
		e.begin(l, asked)
	case g.lease.Term == l.Term:
		g.deadline = max(g.deadline, asked+l.Remaining)
	}
}

// ended records that the leadership of this term ended through this server.
func (e *elections) ended(group string, term baton.Term, why baton.Reason) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if g := e.groups[group]; g != nil && g.lease.Term == term && g.why == "" {
		g.why, g.endedAt = why, e.clock.Now()
	}
}

func (e *elections) begin(l baton.Lease, asked time.Duration) {
	if len(e.groups) >= maxElections {
		evict(e.groups, func(g *election) time.Duration { return g.deadline })
	}
	e.groups[l.Group] = &election{lease: l.Clone(), deadline: asked + l.Remaining}
}
