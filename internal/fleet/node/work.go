package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"baton"
	"baton/fence"
	"baton/fenced/fencedclient"
	"baton/internal/fleet"
)

// The resources that a leader writes to.
const (
	ticksResource   = "ticks"
	numbersResource = "sequence"
	// And those of leaders that own a set of work.
	jobsResource     = "jobs"
	segmentsResource = "segments"
)

var resources = []string{ticksResource, numbersResource, jobsResource, segmentsResource}

// writeTimeout is what a write may take before its requests are failed. The
// next one then begins by finding out what became of it.
func (o options) writeTimeout() time.Duration { return min(max(o.ttl, time.Second), 5*time.Second) }

// term is one leadership's work.
type term struct {
	*Node
	l *baton.Leadership
	// work ends when no new write may begin, write when those under way must have ended.
	work, write context.Context
	ticks       *fencedclient.Resource
	numbers     *fencedclient.Resource
	owned       []owned // without a set of work, none
}

// lead is the leader's work, from its election until its context ends.
func (n *Node) lead(ctx context.Context, l *baton.Leadership) error {
	work, stopWork := outlast(ctx, n.opt.unsafeLinger)
	defer stopWork()
	write, stopWrite := outlast(work, n.opt.stopGrace()/2)
	defer stopWrite()
	t := &term{Node: n, l: l, work: work, write: write}
	sequencer := newSequencer(l.Term(), t.commitNumbers)
	n.begin(l, sequencer)
	defer n.end(l)
	if adopted, err := t.adopt(); !adopted {
		return err
	}
	group, ctx := errgroup.WithContext(work)
	group.Go(func() error { return t.schedule(ctx) })
	group.Go(func() error { return sequencer.run(ctx.Done(), t.mayWrite, fatal) })
	group.Go(func() error { return n.summarize(ctx, l) })
	for _, o := range t.owned {
		group.Go(func() error { return t.workOff(ctx, o) })
	}
	return group.Wait()
}

// outlast returns a context that ends d after ctx does.
func outlast(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-longer.Done():
		}
		cancel(context.Cause(ctx))
	})
	return longer, func() { stop(); cancel(context.Canceled) }
}

func (n *Node) begin(l *baton.Leadership, s *sequencer) {
	n.events.Log(n.about(l, fleet.Event{Type: fleet.ActingBegan}))
	n.metrics.acting.Set(1)
	n.mu.Lock()
	n.acting = s
	n.mu.Unlock()
}

func (n *Node) end(l *baton.Leadership) {
	n.mu.Lock()
	s := n.acting
	n.acting = nil
	n.mu.Unlock()
	s.close()
	n.metrics.acting.Set(0)
	n.events.Log(n.about(l, fleet.Event{Type: fleet.ActingEnded, SentAt: n.sent.last.Swap(0)}))
}

// mayWrite looks at the clock, not only at whether a timer has fired.
func (t *term) mayWrite() error {
	if t.opt.unsafeLinger > 0 {
		return t.work.Err()
	}
	return t.l.Context().Err()
}

// adopt takes all resources, before anything is read or written: from then on
// no write of an earlier leader can land in any of them. It is false, without
// an error, if the leadership ended first.
func (t *term) adopt() (bool, error) {
	var err error
	if t.ticks, err = t.take(ticksResource); t.ticks == nil {
		return false, err
	}
	if t.numbers, err = t.take(numbersResource); t.numbers == nil {
		return false, err
	}
	if t.opt.workDir == "" {
		return true, nil
	}
	return t.adoptWork()
}

func (t *term) take(name string) (*fencedclient.Resource, error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		ctx, cancel := context.WithTimeout(t.work, t.opt.writeTimeout())
		sent := fleet.Now()
		resource, err := t.resource.Take(ctx, name)
		cancel()
		switch {
		case err == nil:
			return resource, nil
		case fatal(err):
			t.failed(name, sent, err)
			// A backend that has forgotten its terms grants one after the other that the
			// resource has passed already: not a thousand times a second.
			time.Sleep(min(t.opt.stopGrace()/2, 250*time.Millisecond))
			return nil, err
		case t.work.Err() != nil:
			return nil, nil
		}
		t.log.Warn("cannot adopt the resource; asking again", "resource", name, "term", t.l.Term(), "err", err)
		select {
		case <-t.work.Done():
			return nil, nil
		case <-time.After(pause):
		}
	}
}

// fatal: the resource takes nothing more of this leadership.
func fatal(err error) bool { return fence.Refused(err) || errors.Is(err, fence.ErrStale) }

// schedule writes a tick at once and then every so often.
func (t *term) schedule(ctx context.Context) error {
	ticker := time.NewTicker(t.opt.tick)
	defer ticker.Stop()
	for {
		if t.mayWrite() != nil {
			return nil
		}
		tick := fencedclient.Tick{ScheduledForMS: t.wall().UnixMilli(), Note: t.opt.nodeID}
		_, err := t.record(ticksResource, 1, func(ctx context.Context) (int64, error) { return t.ticks.Tick(ctx, tick) })
		if fatal(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// commitNumbers takes count numbers at the resource.
func (t *term) commitNumbers(count int64) (fencedclient.Numbers, error) {
	last, err := t.record(numbersResource, count, func(ctx context.Context) (int64, error) {
		numbers, err := t.numbers.Next(ctx, count)
		return numbers.Last, err
	})
	return fencedclient.Numbers{First: last - count + 1, Last: last}, err
}

// record makes a write and takes note of what came of it.
func (t *term) record(resource string, count int64, write func(ctx context.Context) (int64, error)) (int64, error) {
	t.think()
	ctx, cancel := context.WithTimeout(t.write, t.opt.writeTimeout())
	defer cancel()
	sent := fleet.Now()
	last, err := write(ctx)
	if err != nil {
		t.failed(resource, sent, err)
		return 0, err
	}
	t.metrics.accepted.Add(1)
	t.metrics.writes.WithLabelValues(resource).Inc()
	t.events.Log(t.about(t.l, fleet.Event{Type: fleet.WriteAccepted, Resource: resource, Seq: last, Count: count, SentAt: sent, Remaining: int64(t.l.Remaining())}))
	return last, nil
}

// failed takes note of a write that was not accepted. If the resource belongs to
// another leadership, this one is over; other refusals are a mistake of whoever set
// this node up, and end it.
func (t *term) failed(resource string, sent int64, err error) {
	e := t.about(t.l, fleet.Event{Type: fleet.WriteFailed, Resource: resource, SentAt: sent, Cause: err.Error()})
	if fatal(err) {
		e.Reason = reasonOf(err)
		t.metrics.rejections.WithLabelValues(e.Reason).Inc()
		t.metrics.refused.Add(1)
		t.log.Warn("write refused", "resource", resource, "token", t.l.Token().String(), "reason", e.Reason, "err", err)
	} else if t.mayWrite() == nil {
		t.log.Warn("write failed", "resource", resource, "token", t.l.Token().String(), "err", err)
	}
	if fence.Refused(err) {
		e.Type = fleet.WriteRefused
	}
	t.events.Log(e)
	if errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrNotAdopted) {
		t.l.Lose(fmt.Errorf("refused by resource %s: %w", resource, err))
	}
}
