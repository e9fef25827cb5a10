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
	// maxRosterGroups and maxMembers bound the memory; beyond them somebody who was seen
	// long ago makes room.
	maxRosterGroups = 10_000
	maxMembers      = 1_000
)

// roster keeps who was seen at this server, by group and node.
type roster struct {
	clock  baton.Clock
	now    func() time.Time
	mu     sync.Mutex
	groups map[string]map[string]*seen
}

type seen struct {
	candidate baton.Candidate
	at        time.Duration
	wall      time.Time
}

func newRoster(clock baton.Clock, now func() time.Time) *roster {
	return &roster{clock: clock, now: now, groups: map[string]map[string]*seen{}}
}

// saw records that c took part in group.
func (r *roster) saw(group string, c baton.Candidate) {
	c.Metadata = maps.Clone(c.Metadata)
	s := &seen{candidate: c, at: r.clock.Now(), wall: r.now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	members := r.groups[group]
	if members == nil {
		if len(r.groups) >= maxRosterGroups {
			evict(r.groups, latest)
		}
		members = map[string]*seen{}
		r.groups[group] = members
	}
	if _, ok := members[c.NodeID]; !ok && len(members) >= maxMembers {
		evict(members, func(s *seen) time.Duration { return s.at })
	}
	members[c.NodeID] = s
}

// left records that an instance has given up: it is no candidate until it campaigns again.
func (r *roster) left(group, node, instance string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.groups[group][node]; s != nil && s.candidate.InstanceID == instance {
		delete(r.groups[group], node)
	}
}

func (r *roster) forget(group string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.groups, group)
}

// list shows the group's members, and its leader whether it was seen here or not.
func (r *roster) list(group string, lease baton.Lease) []Member {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []Member{}
	for node, s := range r.groups[group] {
		switch {
		case now-s.at >= memberKept:
			delete(r.groups[group], node)
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
		if s := r.groups[group][lease.NodeID]; s != nil && lease.HeldBy(s.candidate) && s.wall.After(renewed) {
			renewed = s.wall
		}
		out = append(out, Member{Candidate: c, Leads: true, LastSeen: renewed})
	}
	slices.SortFunc(out, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.NodeID, b.NodeID), cmp.Compare(a.InstanceID, b.InstanceID))
	})
	return out
}

func latest(members map[string]*seen) (at time.Duration) {
	for _, s := range members {
		at = max(at, s.at)
	}
	return at
}

// evict drops one entry that is old: the oldest of a few picked at random,
// which costs the same however many there are.
func evict[V any](m map[string]V, age func(V) time.Duration) {
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
	delete(m, oldest)
}
