//go:build !linux

package boottime

import (
	"sync"
	"time"
)

// suspended keeps what the monotonic clock slept through, as far as the wall
// clock shows it. Wall time that was set forward looks the same and ends a
// lease early, which is the safe side.
var suspended struct {
	sync.Mutex
	lastWall time.Time
	lastMono time.Duration
	lost     time.Duration
}

func sinceBoot() time.Duration {
	const slack = 2 * time.Second // below this it is the wall clock being disciplined
	s := &suspended
	s.Lock()
	defer s.Unlock()
	now := time.Now()
	mono, wall := now.Sub(start), now.Round(0)
	if !s.lastWall.IsZero() {
		if slept := wall.Sub(s.lastWall) - (mono - s.lastMono); slept > slack {
			s.lost += slept
		}
	}
	s.lastWall, s.lastMono = wall, mono
	return mono + s.lost
}
