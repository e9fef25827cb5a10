package server

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"baton"
	"baton/internal/line"
)

// ownLine is the line of those who wait at this server, for stores that have
// none. It learns of vacancies by watching the group, while anybody waits.
type ownLine struct {
	store   baton.Store
	clock   baton.Clock
	timeout time.Duration
	log     *slog.Logger
	line    *line.Line

	ctx  context.Context
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	watched map[string]*watched
}

// watched is a group with someone in line, or with a place kept for someone.
type watched struct {
	waiting   int
	stop      context.CancelFunc
	stopTimer func() bool // armed while nobody waits
	successor string
}

// watchKept is how long a group is watched after the last wait ended: beyond
// what a place is kept for, so that the line never goes by old news.
const watchKept = 2 * line.PlaceKept

func newOwnLine(store baton.Store, clock baton.Clock, timeout time.Duration, log *slog.Logger) *ownLine {
	o := &ownLine{store: store, clock: clock, timeout: timeout, log: log, watched: map[string]*watched{}}
	o.ctx, o.stop = context.WithCancel(context.Background())
	o.line = line.New(clock, o.vacant)
	return o
}

func (o *ownLine) get(ctx context.Context, group string) (baton.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	return o.store.Get(ctx, group)
}

func (o *ownLine) vacant(ctx context.Context, group string) (bool, error) {
	lease, err := o.get(ctx, group)
	return !lease.Held(), err
}

// Await is baton.Line's. For one that holds the group, as after an Acquire
// whose answer was lost, it is its turn at once.
func (o *ownLine) Await(ctx context.Context, group string, c baton.Candidate) error {
	if lease, err := o.get(ctx, group); err != nil || lease.HeldBy(c) {
		return err
	}
	o.enter(group)
	defer o.leave(group)
	return o.line.Await(ctx, group, c)
}

func (o *ownLine) enter(group string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.watched[group]
	if w == nil {
		ctx, stop := context.WithCancel(o.ctx)
		w = &watched{stop: stop}
		o.watched[group] = w
		if o.ctx.Err() == nil { // else the line is closed, and says so
			o.done.Go(func() { o.follow(ctx, group) })
		}
	}
	if w.stopTimer != nil {
		w.stopTimer()
		w.stopTimer = nil
	}
	w.waiting++
}

func (o *ownLine) leave(group string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.watched[group]
	w.waiting--
	if w.waiting == 0 {
		w.stopTimer = o.clock.AfterFunc(watchKept, func() { o.unwatch(group, w) })
	}
}

func (o *ownLine) unwatch(group string, w *watched) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w.waiting == 0 && o.watched[group] == w {
		w.stop()
		delete(o.watched, group)
	}
}

// follow tells the line what becomes of the group, for as long as ctx lasts.
// Every watch begins with the present state, so what was missed between two of them is made up for.
func (o *ownLine) follow(ctx context.Context, group string) {
	const least, most = 50 * time.Millisecond, 2 * time.Second
	pause := least
	for {
		for e, err := range o.store.Watch(ctx, group, "") {
			if err != nil {
				if ctx.Err() == nil {
					o.log.Warn("watching a group for those who wait in line failed; trying again", "group", group, "error", err)
				}
				break
			}
			pause = least
			o.heard(e)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause/2 + rand.N(pause)):
			pause = min(2*pause, most)
		}
	}
}

func (o *ownLine) heard(e baton.Event) {
	if e.Type == baton.LeaderChanged {
		o.line.Granted(e.Group, baton.Candidate{NodeID: e.NodeID, InstanceID: e.InstanceID})
		return
	}
	o.line.Open(e.Group, o.succeeds(e.Group, ""), 0)
}

// succeeds makes node, or nobody, the successor at the next vacancy, and returns who was before.
func (o *ownLine) succeeds(group, node string) (before string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.watched[group]; w != nil {
		before, w.successor = w.successor, node
	}
	return before
}

// turnOfAnother reports whether the group is kept for someone else, and for how long.
func (o *ownLine) turnOfAnother(group string, c baton.Candidate) (left time.Duration, other bool) {
	turn, left, ok := o.line.TurnOf(group)
	return left, ok && (turn.NodeID != c.NodeID || turn.InstanceID != "" && turn.InstanceID != c.InstanceID)
}

func (o *ownLine) close() {
	o.mu.Lock()
	o.stop()
	for _, w := range o.watched {
		if w.stopTimer != nil {
			w.stopTimer()
		}
	}
	o.mu.Unlock()
	o.line.Close()
	o.done.Wait()
}
