package storetest

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"baton"
)

// FaultConfig says how often a network and a store behind it fail. Every
// probability is per request, from 0 to 1.
type FaultConfig struct {
	// Seed decides everything: the same calls in the same order meet the same faults.
	Seed uint64
	// Clock measures delays and outages; the system's if nil.
	Clock baton.Clock

	// LostRequest: the request never arrives. The caller gets ErrUnavailable, nothing happens.
	LostRequest float64
	// LostReply: the request takes effect, the caller gets ErrUnavailable.
	LostReply float64
	// Duplicate: the request arrives twice, the second time up to MaxDelay after the first was answered.
	Duplicate float64
	// Late: the caller gives up with ErrUnavailable, and up to MaxDelay later the request arrives. Other
	// requests overtake it.
	Late float64
	// Delay: the request, the reply or both take up to MaxDelay. A caller whose context ends
	// meanwhile is told so, and its request arrives all the same.
	Delay    float64
	MaxDelay time.Duration
	// Outage: from this request on everything fails at once, for up to MaxOutage.
	Outage    float64
	MaxOutage time.Duration
}

// Faults is the switch of a faulty store.
type Faults struct {
	cfg   FaultConfig
	life  context.Context
	stop  context.CancelFunc
	inAir sync.WaitGroup // requests that outlive their callers

	mu        sync.Mutex
	rng       *rand.Rand
	off       bool
	cut       bool
	closed    bool
	downUntil time.Duration
	injected  map[string]int
}

// longAgo is before every reading of a clock, some of which are negative.
const longAgo time.Duration = math.MinInt64

// Heal lets every request through from now on. What is in the air still lands.
func (f *Faults) Heal() { f.set(true, false) }

// Hurt injects faults again.
func (f *Faults) Hurt() { f.set(false, false) }

// Cut makes every request fail at once, until Heal or Hurt.
func (f *Faults) Cut() { f.set(false, true) }

func (f *Faults) set(off, cut bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off, f.cut, f.downUntil = off, cut, longAgo
}

// Settle waits until nothing is in the air. It is meant to be called after Heal.
func (f *Faults) Settle() { f.inAir.Wait() }

// Injected counts the faults by name, so that a test can show that it met them.
func (f *Faults) Injected() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	counts := make(map[string]int, len(f.injected))
	for name, n := range f.injected {
		counts[name] = n
	}
	return counts
}

// fate is what happens to one request.
type fate struct {
	down, lostRequest, lostReply, duplicate, late bool
	before, after, again                          time.Duration
}

// draw decides the fate of a request. It draws the same numbers whatever they
// decide, so that the fate of the next one does not depend on this one.
func (f *Faults) draw() fate {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cut {
		f.injected["cut"]++
		return fate{down: true}
	}
	if f.off {
		return fate{}
	}
	hit := func(p float64) bool { return f.rng.Float64() < p }
	upTo := func(d time.Duration) time.Duration { return time.Duration(f.rng.Float64() * float64(d)) }
	c := f.cfg
	ft := fate{lostRequest: hit(c.LostRequest), lostReply: hit(c.LostReply), duplicate: hit(c.Duplicate), late: hit(c.Late)}
	slow, before, after := hit(c.Delay), upTo(c.MaxDelay), upTo(c.MaxDelay)
	if ft.again = upTo(c.MaxDelay); slow {
		ft.before, ft.after = before, after
	}
	outage, length := hit(c.Outage), upTo(c.MaxOutage)
	now := c.Clock.Now()
	if outage && now >= f.downUntil {
		f.downUntil = now + length
	}
	if now < f.downUntil {
		f.injected["outage"]++
		return fate{down: true}
	}
	for name, is := range map[string]bool{
		"lost request": ft.lostRequest, "lost reply": ft.lostReply, "duplicate": ft.duplicate, "late": ft.late, "delay": slow,
	} {
		if is {
			f.injected[name]++
		}
	}
	return ft
}

var (
	errDown        = errors.New("injected fault: outage")
	errLostRequest = errors.New("injected fault: request lost")
	errLostReply   = errors.New("injected fault: reply lost")
	errLate        = errors.New("injected fault: no answer in time")
	errClosed      = errors.New("the faulty store is closed")
)

func unavailable(op string, err error) error { return &baton.UnavailableError{Op: op, Err: err} }

// call sends one request to its fate.
func call[R any](ctx context.Context, f *Faults, op string, do func(context.Context) (R, error)) (R, error) {
	ft := f.draw()
	var none R
	switch {
	case ft.down:
		return none, unavailable(op, errDown)
	case ft.lostRequest:
		if err := f.wait(ctx, ft.before); err != nil {
			return none, err
		}
		return none, unavailable(op, errLostRequest)
	case ft.before == 0 && !ft.duplicate && !ft.late:
		r, err := do(ctx)
		return reply(ctx, f, op, ft, r, err)
	}
	type answer struct {
		r   R
		err error
	}
	answered := make(chan answer, 1)
	sent := f.send(ctx, func(ctx context.Context) {
		travel := ft.before
		if ft.late {
			travel += ft.again
		}
		if f.wait(ctx, travel) != nil {
			return
		}
		r, err := do(ctx)
		answered <- answer{r, err}
		if ft.duplicate && f.wait(ctx, ft.again) == nil {
			_, _ = do(ctx) // its answer reaches nobody
		}
	})
	if !sent {
		return none, unavailable(op, errClosed)
	}
	if ft.late {
		if err := f.wait(ctx, ft.before); err != nil {
			return none, err
		}
		return none, unavailable(op, errLate)
	}
	select {
	case a := <-answered:
		return reply(ctx, f, op, ft, a.r, a.err)
	case <-ctx.Done():
		return none, ctx.Err()
	case <-f.life.Done():
		return none, unavailable(op, errClosed)
	}
}

// reply brings an answer back, if it comes back.
func reply[R any](ctx context.Context, f *Faults, op string, ft fate, r R, err error) (R, error) {
	var none R
	if late := f.wait(ctx, ft.after); late != nil && ft.after > 0 {
		return none, late
	}
	if ft.lostReply {
		return none, unavailable(op, errLostReply)
	}
	return r, err
}

// send runs a request apart from its caller: it keeps the context's values and outlives its end.
func (f *Faults) send(ctx context.Context, request func(context.Context)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(f.life, cancel)
	f.inAir.Go(func() {
		defer cancel()
		defer unlink()
		request(detached)
	})
	return true
}

// wait lets d pass on the configured clock, or returns the context's error.
func (f *Faults) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	passed := make(chan struct{})
	stop := f.cfg.Clock.AfterFunc(d, func() { close(passed) })
	defer stop()
	select {
	case <-passed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *Faults) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.stop()
	f.inAir.Wait()
}
