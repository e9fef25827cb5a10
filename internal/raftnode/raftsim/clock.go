package raftsim

import (
	"math"
	"time"
)

// Clock is the clock of a process.
type Clock struct {
	p     *Process
	rate  float64
	start time.Time
}

// Clock returns one that goes by rate: 1 is true time.
func (p *Process) Clock(rate float64) *Clock { return &Clock{p, rate, time.Now()} }

// Now is what it shows.
func (c *Clock) Now() time.Duration { return time.Duration(float64(time.Since(c.start)) * c.rate) }

// AfterFunc calls f when d has passed on it, and the process is not frozen. It never
// rounds down to nothing: whoever waits for the rest would wait for ever, without time passing.
func (c *Clock) AfterFunc(d time.Duration, f func()) func() bool {
	return time.AfterFunc(time.Duration(math.Ceil(float64(d)/c.rate)), func() { c.p.Gate.Pass(); f() }).Stop
}
