package node

import (
	"time"

	"baton"
)

// skewedClock is the machine's clock, off by a constant. A lease must not
// notice: only differences between its readings mean anything.
type skewedClock struct {
	baton.Clock
	by time.Duration
}

func newClock(by time.Duration) baton.Clock { return skewedClock{baton.SystemClock(), by} }

func (c skewedClock) Now() time.Duration { return c.Clock.Now() + c.by }
