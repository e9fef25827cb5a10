package baton

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"baton/internal/boottime"
)

// maxInFlight bounds the renewals that are under way at once. A slow answer is
// still evidence, counted from its own send, so the next request does not
// wait for it, and it is not thrown away.
const maxInFlight = 6

// holding keeps a won lease: it renews, watches readiness, and ends the
// leadership when it has to.
type holding struct {
	e      *LeaseElector
	id     LeaseID
	ttl    time.Duration
	l      *Leadership
	tenure *Tenure

	answers  chan renewal
	inFlight int
	failures int
	draining bool
	ending   bool // the store will not extend it any more
}

type renewal struct {
	sent  time.Duration
	lease Lease
	err   error
}

// hold makes a leadership of a lease that can be trusted until then.
func (e *LeaseElector) hold(lease Lease, until, sent time.Duration) (*Leadership, error) {
	h := &holding{e: e, id: lease.ID(), ttl: cmp.Or(lease.TTL, e.cfg.TTL), answers: make(chan renewal)}
	cfg := LeadershipConfig{
		Token:     Token{Group: lease.Group, Term: lease.Term, InstanceID: lease.InstanceID},
		Clock:     e.cfg.Clock,
		Until:     until,
		StopGrace: e.cfg.StopGrace,
		Tick:      e.cfg.Margin / 4,
		Release:   func(ctx context.Context) error { return e.release(ctx, h.id) },
		OnOverrun: e.overrun,
	}
	if e.ender != nil {
		cfg.Transfer = func(ctx context.Context, node string) error {
			return e.ender.End(ctx, h.id.Group, h.id.Term, Ending{Reason: Transferred, Successor: node, Note: "resigned by its holder"})
		}
	}
	h.l, h.tenure = NewLeadership(cfg)

	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		h.tenure.End(ErrClosed)
		e.owned.Go(func() { _ = cfg.Release(context.Background()) })
		return nil, ErrClosed
	}
	e.last = h.l
	e.owned.Go(func() { h.keep(sent) })
	e.log.Info("elected", "term", lease.Term, "instance", lease.InstanceID)
	return h.l, nil
}

func (e *LeaseElector) overrun(o Overrun) {
	if e.cfg.OnOverrun != nil {
		e.cfg.OnOverrun(o)
		return
	}
	e.log.Error("the work has not stopped although its lease can no longer be trusted", "term", o.Token.Term, "late", o.By, "cause", o.Cause)
}

// keep is the life of a leadership, from its first renewal until it is over.
func (h *holding) keep(granted time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	slept := boottime.Slept()
	defer func() {
		cancel()
		if d := boottime.Slept() - slept; d > time.Second {
			h.e.log.Warn("the machine was suspended during this leadership", "term", h.id.Term, "for", d)
		}
		for ; h.inFlight > 0; h.inFlight-- {
			<-h.answers
		}
		h.l.awaitRelease() // so that a closed elector has given back what it led
		h.e.log.Info("leadership over", "term", h.id.Term, "cause", h.l.Cause())
	}()

	clock := h.e.cfg.Clock
	renewAt := granted + h.interval()
	readyAt := clock.Now() + h.e.cfg.ReadyEvery
	readiness := make(chan error, 1)
	asking := false
	var drainUntil time.Duration
	stopped := h.l.Context().Done()
	for {
		var renewDue, readyDue <-chan struct{}
		stopRenew, stopReady := idle, idle
		if h.renewable() && (!h.draining || clock.Now() < drainUntil) {
			renewDue, stopRenew = after(clock, renewAt-clock.Now())
		}
		if h.e.cfg.Ready != nil && !h.draining && !asking {
			readyDue, stopReady = after(clock, readyAt-clock.Now())
		}
		over := false
		select {
		case <-h.l.Over():
			over = true
		case <-stopped:
			h.draining, stopped = true, nil
			drainUntil = clock.Now() + h.e.cfg.DrainTimeout
		case <-renewDue:
			if h.renewable() { // the timer may have fired late
				h.send(ctx)
			}
			renewAt = clock.Now() + h.retryPause()
		case r := <-h.answers:
			h.inFlight--
			if h.take(r) {
				renewAt = max(renewAt, r.sent+h.interval())
			}
		case <-readyDue:
			asking = true
			h.e.owned.Go(func() { readiness <- h.e.ready(ctx) })
		case err := <-readiness:
			asking, readyAt = false, clock.Now()+h.e.cfg.ReadyEvery
			if err != nil && ctx.Err() == nil {
				h.e.log.Warn("not ready: resigning", "term", h.id.Term, "err", err)
				h.tenure.Stop(fmt.Errorf("%w: %w", ErrUnready, err))
			}
		}
		stopRenew()
		stopReady()
		if over {
			return
		}
	}
}

func idle() bool { return false }

// renewable: a renewal would serve this leadership. One that has lapsed only
// keeps its successor waiting.
func (h *holding) renewable() bool {
	return !h.ending && h.inFlight < maxInFlight && h.tenure.Extendable()
}

// interval is RenewEvery, shortened at random so that the renewals of many
// leaders do not fall into step.
func (h *holding) interval() time.Duration {
	every := h.e.cfg.RenewEvery
	return every - h.e.jitter(every/10)
}

// retryPause is when to send again if no answer comes. Requests that are swallowed are
// under way for as long as their answers would help; they are spread over that
// time, so that there is room for one more whenever the store comes back.
func (h *holding) retryPause() time.Duration {
	if h.inFlight > 1 {
		return h.e.cfg.retryGap(h.ttl)
	}
	every := h.e.cfg.RenewEvery / 3
	return every - h.e.jitter(every/4)
}

// send asks for a renewal. The moment is read before the request leaves, and
// the request is given up when its answer would no longer help.
func (h *holding) send(ctx context.Context) {
	e := h.e
	h.inFlight++
	useful := h.ttl - e.cfg.Margin - e.cfg.StopGrace
	e.owned.Go(func() {
		ctx, cancel := withTimeout(ctx, e.cfg.Clock, useful)
		defer cancel()
		sent := e.cfg.Clock.Now()
		lease, err := e.store.Renew(ctx, h.id, h.ttl)
		h.answers <- renewal{sent: sent, lease: lease, err: err}
	})
}

// take acts on an answer and reports whether it confirmed the lease.
func (h *holding) take(r renewal) bool {
	e := h.e
	switch {
	case r.err == nil && r.lease.ID() != h.id:
		// Nothing may be concluded from an answer about something else.
		h.fail(fmt.Errorf("the store answered about %v", r.lease.ID()))
		return false
	case r.err == nil:
		alive := h.tenure.Extend(e.trusted(r.lease, r.sent))
		if h.failures > 0 && alive {
			e.log.Info("renewals come through again", "term", h.id.Term, "failed", h.failures)
		}
		h.failures = 0
		if r.lease.Ending != nil && !h.ending {
			h.ending = true
			e.log.Info("asked to hand over: draining", "term", h.id.Term, "reason", r.lease.Ending.Reason, "successor", r.lease.Ending.Successor)
			h.tenure.Stop(fmt.Errorf("%w: %s", ErrEnding, r.lease.Ending.Reason))
		}
		return true
	case says(r.err, ErrNotLeader):
		h.tenure.End(r.err)
		return false
	default:
		h.fail(r.err)
		return false
	}
}

func (h *holding) fail(err error) {
	h.failures++
	if !h.l.Valid() {
		return
	}
	h.e.log.Warn("renewal failed", "term", h.id.Term, "failed", h.failures, "left", h.l.Remaining(), "err", err)
}

// release gives a lease back. It repeats a request whose outcome is unknown,
// for a while: if all fail, the lease runs out by itself. Whoever can call it
// off waits for the answer, and it insists for longer.
func (e *LeaseElector) release(asked context.Context, id LeaseID) error {
	limit := e.cleanUpTime()
	if asked.Done() != nil {
		limit = resignTimeout
	}
	ctx, cancel := withTimeout(asked, e.cfg.Clock, limit)
	defer cancel()
	pause := e.newBackoff()
	for first := true; ; first = false {
		err := e.store.Release(ctx, id)
		switch {
		case err == nil:
			return nil
		case says(err, ErrNotLeader) && !first:
			return nil // an earlier request took effect, or the lease ran out
		case isFinal(err):
			return err
		}
		if pause.wait(ctx) != nil {
			e.log.Warn("lease not given back: the group opens when it has run out", "term", id.Term, "err", err)
			if asked.Err() == nil {
				return fmt.Errorf("release %v: no answer within %v: %w", id, limit, err)
			}
			return fmt.Errorf("release %v: %w", id, err)
		}
	}
}
