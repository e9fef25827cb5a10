package baton

import (
	"time"

	"baton/internal/boottime"
)

// Clock measures how much time has passed. Nothing may be read into a single
// reading, and readings of two clocks are never compared.
type Clock interface {
	// Now is the time since some moment that is the same for all readings of
	// this clock. It counts on while the machine sleeps.
	Now() time.Duration
	// AfterFunc calls f in its own goroutine when d has passed, or later: after a pause
	// of the process or the machine possibly much later, so f looks at Now before it believes anything.
	// stop prevents the call and reports whether it did.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// SystemClock is the clock of this machine that counts through a suspend.
func SystemClock() Clock { return boottime.System() }
