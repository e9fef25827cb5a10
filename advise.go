package baton

import (
	"fmt"
	"time"
)

// Advice says what a TTL costs and buys.
type Advice struct {
	TTL     time.Duration
	Latency time.Duration
	// RenewEvery, Margin and StopGrace are the timing it was reckoned for.
	RenewEvery time.Duration
	Margin     time.Duration
	StopGrace  time.Duration
	// FailoverBest, FailoverTypical and FailoverWorst are how long after a
	// leader's sudden death its successor leads: it died just before a renewal,
	// half-way between two, or just after one, with the first in line dead as well.
	FailoverBest    time.Duration
	FailoverTypical time.Duration
	FailoverWorst   time.Duration
	// SurvivesPause is the longest pause of the leader's process that never
	// costs it the leadership, however unluckily it falls.
	SurvivesPause time.Duration
	// SurvivesOutage is likewise the longest time the store may not answer. It is
	// shorter: the leader finds the store back with its next attempt only.
	SurvivesOutage time.Duration
}

// turnKept is how long a dead first in line holds up the next one.
const turnKept = time.Second

// Advise reckons what to expect of a TTL when a renewal takes latency for its
// round trip, with the default timing.
func Advise(ttl, latency time.Duration) (Advice, error) {
	if ttl <= 0 {
		return Advice{}, &InvalidTTLError{Field: "TTL", TTL: ttl, Min: time.Millisecond, Max: MaxTTL}
	}
	return Config{TTL: ttl}.Advise(latency)
}

// Advise reckons what to expect of c's timing when a renewal takes latency for
// its round trip. A latency at which leaders would lapse for no other reason is an error.
func (c Config) Advise(latency time.Duration) (Advice, error) {
	if c.TTL < 0 || c.TTL > MaxTTL {
		return Advice{}, &InvalidTTLError{Field: "TTL", TTL: c.TTL, Min: time.Millisecond, Max: MaxTTL}
	}
	c = c.withDefaults()
	if err := c.validateTiming(); err != nil {
		return Advice{}, err
	}
	// A renewal that leaves at RenewEvery has to be back by then.
	slack := c.TTL - c.Margin - c.StopGrace - c.RenewEvery
	if latency < 0 || latency >= slack {
		return Advice{}, &InvalidArgumentError{Field: "latency", Value: latency,
			Want: fmt.Sprintf("0 to below %v, what RenewEvery, StopGrace and Margin leave of the TTL", slack)}
	}
	// The successor hears that it is its turn, half a round trip, and acquires, a whole one.
	elect := latency + latency/2
	return Advice{
		TTL: c.TTL, Latency: latency,
		RenewEvery: c.RenewEvery, Margin: c.Margin, StopGrace: c.StopGrace,
		FailoverBest:    c.TTL - c.RenewEvery + elect,
		FailoverTypical: c.TTL - c.RenewEvery/2 + elect,
		FailoverWorst:   c.TTL + latency + elect + turnKept,
		SurvivesPause:   slack - latency,
		SurvivesOutage:  max(0, slack-latency-c.retryGap(c.TTL)),
	}, nil
}

func (a Advice) String() string {
	r := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	return fmt.Sprintf("ttl %v: after a crash the next leader leads in %v at best, %v typically, %v at worst; a pause of the leader of up to %v, or an outage of its store of up to %v, costs nothing",
		a.TTL, r(a.FailoverBest), r(a.FailoverTypical), r(a.FailoverWorst), r(a.SurvivesPause), r(a.SurvivesOutage))
}
