package observed

import (
	"sync"
	"time"

	"baton"
)

// sights remembers when leases were first seen as they are now. To forget one
// is always safe: it is counted anew.
type sights struct {
	clock baton.Clock

	mu      sync.Mutex
	byGroup map[string]sight
	sweepAt int // how many there may be before those that nobody asks for are dropped

	// stampEarly is a mistake for the simulation to find: a sight is dated from before the question.
	stampEarly bool
}

// sight is a group as it was seen last.
type sight struct {
	snap Snapshot
	// since is when an answer first showed the holder's beat.
	since time.Duration
	// sent is from before that beat was written, if mine: if it was written here.
	sent time.Duration
	mine bool
	// asked is from before the question that showed it left, told from after its answer came.
	asked, told time.Duration
}

const fewSights = 1024

func newSights(clock baton.Clock) *sights {
	return &sights{clock: clock, byGroup: map[string]sight{}, sweepAt: fewSights}
}

// see takes in what a read has answered that was asked at this time. The sight
// is stamped now, after the answer has come: the beat was written before that.
func (s *sights) see(group string, snap Snapshot, asked time.Duration) sight {
	now := s.clock.Now()
	since := now
	if s.stampEarly {
		since = asked
	}
	return s.take(group, sight{snap: snap, since: since, asked: asked, told: now})
}

// wrote takes in a beat that was written here, by a request that left after sent.
func (s *sights) wrote(group string, snap Snapshot, sent time.Duration) sight {
	now := s.clock.Now()
	return s.take(group, sight{snap: snap, since: now, sent: sent, mine: true, asked: sent, told: now})
}

func (s *sights) take(group string, now sight) sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := now.snap.Record.Holder
	old, known := s.byGroup[group]
	if known && h != nil && old.snap.Record.Holder.Term == h.Term && old.snap.Record.Holder.Beat == h.Beat {
		now.since = old.since
		if !now.mine {
			now.sent, now.mine = old.sent, old.mine
		}
	}
	switch {
	case known && old.told > now.asked:
		return now // the two crossed, and nobody knows which is the later one
	case h == nil:
		delete(s.byGroup, group)
		return now
	}
	s.byGroup[group] = now
	if len(s.byGroup) > s.sweepAt {
		s.sweep()
	}
	return now
}

// last is the group as it was seen last, if it was held then.
func (s *sights) last(group string) (sight, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.byGroup[group]
	return last, ok
}

// sweep drops leases that ran out a while ago without anybody asking.
func (s *sights) sweep() {
	const patience = time.Minute
	now := s.clock.Now()
	for group, last := range s.byGroup {
		if now-last.ends() > patience {
			delete(s.byGroup, group)
		}
	}
	s.sweepAt = max(fewSights, 2*len(s.byGroup))
}

// ends is when this observer may end the lease, unless it is renewed.
func (s sight) ends() time.Duration { return s.since + s.snap.Record.Holder.TTL }

// lapsed reports whether it may now.
func (s sight) lapsed(now time.Duration) bool {
	return s.snap.Record.Holder != nil && now >= s.ends()
}

// remaining is what is left for those who look. Where the beat was
// written here it is also what its holder may count on.
func (s sight) remaining(now time.Duration) time.Duration {
	h := s.snap.Record.Holder
	switch {
	case h == nil:
		return 0
	case s.mine:
		return max(0, s.sent+h.TTL-now)
	}
	return min(h.TTL, max(0, s.ends()-now))
}

// promise is what a holder may count on: nothing, if the beat was written elsewhere. It keeps
// what it was promised there.
func (s sight) promise(now time.Duration) time.Duration {
	if !s.mine {
		return 0
	}
	return s.remaining(now)
}

// lease is the state with what is left of it for those who look.
func (s sight) lease(group string, now time.Duration) baton.Lease {
	l := s.snap.Record.lease(group)
	l.Remaining = s.remaining(now)
	return l
}
