package consulstore

import (
	"time"

	"baton"
)

// sight is what this store knows of the time that the holder of a group has.
// Consul does not tell when a session ends.
type sight struct {
	session string
	// since is when the TTL began, on this store's clock: before the session was
	// asked for if this store did that; else when the session was first seen,
	// which is later.
	since time.Duration
	own   bool
}

// promised takes note of a session that was made for a leadership, and returns
// what is left of it.
func (s *Store) promised(group, session string, ttl, sent time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sights[group] = sight{session: session, since: sent, own: true}
	return max(0, ttl-(s.clock.Now()-sent))
}

// seen takes note of the session of a group, if it is a new one, and returns what
// is known of it. A vacant group is forgotten.
func (s *Store) seen(st *state) sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !st.Held() {
		delete(s.sights, st.Group)
		return sight{}
	}
	known := s.sights[st.Group]
	if known.session != st.session {
		known = sight{session: st.session, since: s.clock.Now()}
		s.sights[st.Group] = known
	}
	return known
}

// forLooks is the state as a lease for those who look. What is left is at most
// that: the holder may have less.
func (s *Store) forLooks(st *state) baton.Lease {
	lease := st.Lease()
	if seen := s.seen(st); lease.Held() {
		lease.Remaining = max(0, lease.TTL-(s.clock.Now()-seen.since))
	}
	return lease
}

// forHolder is the state as a lease for its holder, who counts on what is left.
// If this store did not give it its time, that is 0: the holder keeps what it
// was promised.
func (s *Store) forHolder(st *state) baton.Lease {
	lease := st.Lease()
	if seen := s.seen(st); lease.Held() && seen.own {
		lease.Remaining = max(0, lease.TTL-(s.clock.Now()-seen.since))
	}
	return lease
}
