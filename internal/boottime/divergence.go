package boottime

import "time"

var (
	bootAtStart = sinceBoot()
	monoAtStart = sinceStart()
)

// Slept is how much longer this process has existed than Go's monotonic clock
// has counted: how long the machine was suspended meanwhile. Small values of
// either sign are the time between the two readings.
func Slept() time.Duration {
	return (sinceBoot() - bootAtStart) - (sinceStart() - monoAtStart)
}
