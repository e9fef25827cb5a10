package server

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"baton"
)

// Member is a participant of a group.
type Member struct {
	baton.Candidate
	Leads bool
	// LastSeen is when it last campaigned or renewed, for people.
	LastSeen time.Time
}

const (
	// memberKept is how long a member is shown after it was last seen.
	memberKept = 10 * time.Minute
	// maxRosterGroups, maxMembers of each and maxRosterBytes of all together
	// bound the memory; beyond them those who were seen long ago make room.
	maxRosterGroups = 10_000
	maxMembers      = 1_000
	maxRosterBytes  = 64 << 20
)

// roster keeps who was seen at this server, by group and node.
type roster struct {
	clock  baton.Clock
	now    func() time.Time
	mu     sync.Mutex
	groups map[string]*crowd
	bytes  int
}

// crowd are those who were seen in one group.
type crowd struct {
	members map[string]*seen
	at      time.Duration // when the latest was
}

type seen struct {
	candidate baton.Candidate
	at        time.Duration
	wall      time.Time
}

// size is about what it costs to keep s.
func (s *seen) size() int {
	n := 512 + len(s.candidate.NodeID) + len(s.candidate.InstanceID)
	for k, v := range s.candidate.Metadata {
		n += 64 + len(k) + len(v)
	}
	return n
}

func newRoster(clock baton.Clock, now func() time.Time) *roster {
	return &roster{clock: clock, now: now, groups: map[string]*crowd{}}
}

// saw records that c took part in group.
func (r *roster) saw(group string, c baton.Candidate) {
	at, wall := r.clock.Now(), r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.groups[group]
	if g != nil {
		if s := g.members[c.NodeID]; s != nil && s.candidate.InstanceID == c.InstanceID && maps.Equal(s.candidate.Metadata, c.Metadata) {
			s.at, s.wall, g.at = at, wall, at
			return
		}
	}
	c.Metadata = maps.Clone(c.Metadata)
	s := &seen{candidate: c, at: at, wall: wall}
	if g == nil {
		if len(r.groups) >= maxRosterGroups {
			r.evictGroup()
		}
		g = &crowd{members: map[string]*seen{}}
		r.groups[group] = g
	}
	if before := g.members[c.NodeID]; before != nil {
		r.bytes -= before.size()
	} else if len(g.members) >= maxMembers {
		r.bytes -= evict(g.members, func(s *seen) time.Duration { return s.at }).size()
	}
	g.members[c.NodeID], g.at = s, s.at
	for r.bytes += s.size(); r.bytes > maxRosterBytes; {
		r.evictGroup()
	}
}

func (r *roster) evictGroup() {
	for _, s := range evict(r.groups, func(g *crowd) time.Duration { return g.at }).members {
		r.bytes -= s.size()
	}
}

// drop forgets one member of g.
func (r *roster) drop(g *crowd, node string) {
	r.bytes -= g.members[node].size()
	delete(g.members, node)
}

// left records that an instance has given up: it is no candidate until it campaigns again.
func (r *roster) left(group, node, instance string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.groups[group]
	if g == nil {
		return
	}
	if s := g.members[node]; s != nil && s.candidate.InstanceID == instance {
		r.drop(g, node)
	}
}

func (r *roster) forget(group string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.groups[group]
	if g == nil {
		return
	}
	for node := range g.members {
		r.drop(g, node)
	}
	delete(r.groups, group)
}

// list shows the group's members, and its leader whether it was seen here or not.
func (r *roster) list(group string, lease baton.Lease) []Member {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []Member{}
	g := r.groups[group]
	if g == nil {
		g = &crowd{}
	}
	for node, s := range g.members {
		switch {
		case now-s.at >= memberKept:
			r.drop(g, node)
		case !lease.HeldBy(s.candidate):
			c := s.candidate
			c.Metadata = maps.Clone(c.Metadata)
			out = append(out, Member{Candidate: c, LastSeen: s.wall})
		}
	}
	if lease.Held() {
		// A lease of which so much has run off was renewed that long ago, at whichever server.
		renewed := r.now().Add(lease.Remaining - lease.TTL)
		c := baton.Candidate{NodeID: lease.NodeID, InstanceID: lease.InstanceID, Metadata: maps.Clone(lease.Metadata)}
		if s := g.members[lease.NodeID]; s != nil && lease.HeldBy(s.candidate) && s.wall.After(renewed) {
			renewed = s.wall
		}
		out = append(out, Member{Candidate: c, Leads: true, LastSeen: renewed})
	}
	slices.SortFunc(out, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.InstanceID, b.InstanceID))
	})
	return out
}

// evict drops one entry that is old, and returns it: the oldest of a few
// picked at random, which costs the same however many there are.
func evict[V any](m map[string]V, age func(V) time.Duration) (dropped V) {
	const picked = 8
	var oldest string
	var at time.Duration
	n := 0
	for k, v := range m {
		if a := age(v); n == 0 || a < at {
			oldest, at = k, a
		}
		if n++; n == picked {
			break
		}
	}
	dropped = m[oldest]
	delete(m, oldest)
	return dropped
}
