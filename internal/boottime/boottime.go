// Package boottime is a clock for deadlines: it never steps, and it counts on
// while the machine is suspended.
//
// Go's own monotonic clock stops during a suspend on Linux, so a laptop that
// slept for an hour, or a virtual machine that was moved, would believe that no
// time has passed, and its lease with it.
package boottime

import "time"

// Clock reads a clock of this machine.
type Clock struct {
	now func() time.Duration
}

var (
	system    = Clock{now: sinceBoot}
	monotonic = Clock{now: sinceStart}
	start     = time.Now()
)

// System is the best clock there is here: CLOCK_BOOTTIME on Linux, elsewhere
// Go's monotonic clock, checked against the wall clock for a suspend it slept through.
func System() Clock { return system }

// Monotonic is Go's own clock. Inside a testing/synctest bubble it is the fake
// one, which System is not.
func Monotonic() Clock { return monotonic }

func sinceStart() time.Duration { return time.Since(start) }

// Now is the time since some fixed moment.
func (c Clock) Now() time.Duration { return c.now() }

// AfterFunc calls f in its own goroutine after d at the earliest.
func (c Clock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}
