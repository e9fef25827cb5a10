package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"baton"
	"baton/internal/fleet"
)

// nextTally sums up requests for numbers.
type nextTally struct {
	mu     sync.Mutex
	took   []time.Duration
	failed int64
}

func (t *nextTally) answered(took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.took = append(t.took, took)
}

func (t *nextTally) lost() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed++
}

// reset returns the sum of all since the reset before, nil if there were none.
func (t *nextTally) reset() *fleet.NextSummary {
	t.mu.Lock()
	took, failed := t.took, t.failed
	t.took, t.failed = nil, 0
	t.mu.Unlock()
	if len(took) == 0 && failed == 0 {
		return nil
	}
	s := &fleet.NextSummary{Answered: int64(len(took)), Failed: failed}
	if len(took) > 0 {
		slices.Sort(took)
		at := func(percent int) int64 { return int64(took[(len(took)-1)*percent/100]) }
		s.P50NS, s.P99NS, s.MaxNS = at(50), at(99), at(100)
	}
	return s
}

// summarize logs what was served, every second and at the end.
func (n *Node) summarize(ctx context.Context, l *baton.Leadership) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		var over bool
		select {
		case <-ctx.Done():
			over = true
		case <-ticker.C:
		}
		if s := n.served.reset(); s != nil {
			n.events.Log(n.about(l, fleet.Event{Type: fleet.NextServed, Next: s}))
		}
		if over {
			return nil
		}
	}
}
