package baton

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"time"
)

// Config says who campaigns for what, and with which timing. Group and NodeID
// must be set; everything else has a default.
type Config struct {
	Group  string
	NodeID string
	// Metadata is shown to whoever reads the group.
	Metadata map[string]string

	// TTL is how long the group stays closed when its leader vanishes. Default 10s. It is
	// rounded up as the store does.
	TTL time.Duration
	// RenewEvery is the time between renewals, shortened at random by up to a tenth. Default TTL/3.
	RenewEvery time.Duration
	// Margin is taken off every answer of the store: clocks whose rates differ
	// by less than Margin/TTL do no harm. Default TTL/10.
	Margin time.Duration
	// StopGrace is what the work has to return in, when its lease is not
	// renewed. Default TTL/10.
	StopGrace time.Duration
	// DrainTimeout is how long the lease is still renewed for work that has been asked
	// to stop and has not returned. After that the lease is left to run out. Default TTL.
	DrainTimeout time.Duration

	// RetryMin and RetryMax bound the pauses between attempts to be elected: a pause is
	// drawn from zero to a bound that doubles from RetryMin to RetryMax.
	// Default 50ms, and TTL/2 but at most 5s.
	RetryMin time.Duration
	RetryMax time.Duration

	// Ready says whether this node could do the work. An unready candidate
	// does not campaign, and an unready leader resigns. It is asked every ReadyEvery
	// (default RenewEvery) and given that long to answer: no answer counts as unready. It must return
	// when its context ends, since Close waits for it. Nil: always ready.
	Ready      func(ctx context.Context) error
	ReadyEvery time.Duration

	// OnOverrun is told when Run's work has not returned although the lease can no longer be
	// trusted. [ExitOnOverrun] ends the process. Default: an error in the log.
	OnOverrun func(Overrun)

	// Logger receives what an operator wants to know. Default: slog.Default.
	Logger *slog.Logger

	// Clock is what deadlines count on. Default: SystemClock.
	Clock Clock
	// Jitter returns numbers in [0, 1). Default: math/rand.
	Jitter func() float64
	// NewInstanceID names campaigns; no two names may ever be equal. Default: random UUIDs.
	NewInstanceID func() string
}

const defaultTTL = 10 * time.Second

// roundTTL is what a store grants when it is asked for ttl.
func (g Guarantees) roundTTL(ttl time.Duration) time.Duration {
	if g.TTLStep <= 0 || ttl < g.MinTTL || ttl > g.MaxTTL || ttl%g.TTLStep == 0 {
		return ttl
	}
	return min(ttl-ttl%g.TTLStep+g.TTLStep, g.MaxTTL)
}

// withDefaults fills what is zero.
func (c Config) withDefaults() Config {
	setDuration := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	setDuration(&c.TTL, defaultTTL)
	setDuration(&c.RenewEvery, c.TTL/3)
	setDuration(&c.Margin, c.TTL/10)
	setDuration(&c.StopGrace, c.TTL/10)
	setDuration(&c.DrainTimeout, c.TTL)
	setDuration(&c.RetryMin, min(50*time.Millisecond, c.TTL/2))
	setDuration(&c.RetryMax, max(c.RetryMin, min(c.TTL/2, 5*time.Second)))
	setDuration(&c.ReadyEvery, c.RenewEvery)
	if c.Clock == nil {
		c.Clock = SystemClock()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Jitter == nil {
		c.Jitter = mathrand.Float64
	}
	if c.NewInstanceID == nil {
		c.NewInstanceID = NewInstanceID
	}
	return c
}

// validate checks c, defaults filled in, against the bounds of its store. The error names the
// field, its value and the bound.
func (c Config) validate(g Guarantees) error {
	if err := ValidateID("Group", c.Group); err != nil {
		return err
	}
	if err := ValidateID("NodeID", c.NodeID); err != nil {
		return err
	}
	if err := ValidateMetadata(c.Metadata); err != nil {
		return err
	}
	if c.TTL < g.MinTTL || c.TTL > g.MaxTTL || c.TTL <= 0 {
		return &InvalidTTLError{Field: "TTL", TTL: c.TTL, Min: g.MinTTL, Max: g.MaxTTL}
	}
	// Below the shortest, a leader would keep a processor busy; above the
	// longest, readings of the clock could overflow.
	const shortest, longest = time.Millisecond, 365 * 24 * time.Hour
	for _, f := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"RenewEvery", c.RenewEvery, shortest}, {"Margin", c.Margin, shortest}, {"DrainTimeout", c.DrainTimeout, 1},
		{"RetryMin", c.RetryMin, 1}, {"RetryMax", c.RetryMax, shortest}, {"ReadyEvery", c.ReadyEvery, shortest},
	} {
		if f.value < f.least || f.value > longest {
			return &InvalidArgumentError{Field: f.name, Value: f.value, Want: fmt.Sprintf("%v to %v", f.least, longest)}
		}
	}
	return c.validateTiming()
}

// validateTiming checks the relations without which a leader could not stop in time.
func (c Config) validateTiming() error {
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"Margin", c.Margin}, {"StopGrace", c.StopGrace}, {"RenewEvery", c.RenewEvery}} {
		if f.value <= 0 || f.value >= c.TTL {
			return &InvalidArgumentError{Field: f.name, Value: f.value, Want: fmt.Sprintf("more than 0 and less than TTL, which is %v", c.TTL)}
		}
	}
	if need := 2*c.RenewEvery + c.StopGrace + c.Margin; need >= c.TTL {
		return &InvalidArgumentError{Field: "RenewEvery", Value: c.RenewEvery,
			Want: fmt.Sprintf("2*RenewEvery + StopGrace + Margin less than TTL: %v is not less than %v", need, c.TTL)}
	}
	if c.RetryMin > c.RetryMax {
		return &InvalidArgumentError{Field: "RetryMin", Value: c.RetryMin, Want: fmt.Sprintf("at most RetryMax, which is %v", c.RetryMax)}
	}
	return nil
}

// retryGap is the longest time between two attempts to renew while the store
// does not answer. Attempts at this distance, and one that came sooner, are never too
// many at once.
func (c Config) retryGap(ttl time.Duration) time.Duration {
	return max(c.RenewEvery/3, (ttl-c.Margin-c.StopGrace)/(maxInFlight-1))
}

// NewInstanceID draws the name of a campaign: a random UUID (version 4).
func NewInstanceID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}
