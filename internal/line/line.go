// Package line is where candidates wait for a group to open: in order, in
// memory, one called per vacancy.
//
// It hands out turns, not grants. A turn is a hint that keeps a thousand
// candidates from running all at once; the store decides who leads, and no
// safety rests on anything here. What does rest on it is that the next one is
// called in milliseconds, that nobody is forgotten, and that a candidate that
// died while it waited costs a second and not a lease.
package line

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"baton"
)

const (
	// TurnKept is how long the one that was called has for its Acquire before
	// the next one is called. It loses its place then.
	TurnKept = time.Second
	// PlaceKept is how long a place survives without an Await: from one poll to the next.
	PlaceKept = 5 * time.Second
	// SuccessorKept is how long an owner should let a named successor that is
	// not in line be waited for, where the line may have been lost: see Open.
	SuccessorKept = time.Second
)

// ErrReplaced ends an Await when a later one of the same candidate has taken over its place.
var ErrReplaced error = &baton.ConflictError{
	Reason:  baton.ConflictBusy,
	Message: "this instance waits in line with a later request",
}

var errClosed = errors.New("the line is closed")

// Vacant answers whether a group is vacant, or about to be. The line asks when
// it knows nothing of a group, without any lock held, and the answer must
// be no older than the question.
type Vacant func(ctx context.Context, group string) (bool, error)

// Line keeps the waiting lines of many groups. It remembers nothing of a
// group at which nobody waits.
//
// Its owner reports every vacancy with Open and every grant with Granted, in
// the order in which they happen: it may hold its own lock while it does,
// even the one that Vacant takes. Every step costs O(1).
type Line struct {
	clock  baton.Clock
	vacant Vacant

	mu     sync.Mutex
	groups map[string]*queue
	closed bool
	timers sync.WaitGroup // one for each armed timer
}

// New returns an empty line.
func New(clock baton.Clock, vacant Vacant) *Line {
	return &Line{clock: clock, vacant: vacant, groups: map[string]*queue{}}
}

// Await takes a place at the end of the group's line, or keeps the one that c
// has, and returns nil when it is c's turn: c is first and the group is open.
// From then on the turn is kept for c for TurnKept.
//
// When ctx ends first its error is returned, and the place is kept for
// another PlaceKept. A turn that came at that very moment passes on at once.
// A second Await of the same candidate replaces the first, which returns ErrReplaced.
// When the line is closed: baton.ErrUnavailable.
func (l *Line) Await(ctx context.Context, group string, c baton.Candidate) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("wait in line for group %q: %w", group, err)
	}
	w, err := l.enter(ctx, group, c)
	if err != nil {
		return err
	}
	for {
		select {
		case <-w.called:
		case <-ctx.Done():
		}
		if done, err := l.leave(ctx, w); done {
			return err
		}
	}
}

// enter takes or keeps c's place and attaches a waiter to it. A group of which
// the line knows nothing is asked about after the place was taken, so that a
// vacancy that comes in between finds somebody in line.
func (l *Line) enter(ctx context.Context, group string, c baton.Candidate) (*waiter, error) {
	var asked *queue
	var vacant bool
	for {
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			return nil, closedError(group)
		}
		q := l.queue(group)
		now := q.settle()
		p := q.place(c, now)
		if q.state == unknown && asked == q {
			q.learn(vacant)
		}
		if q.state != unknown {
			w := q.attach(p, now)
			q.call(now)
			q.arm(now)
			l.mu.Unlock()
			return w, nil
		}
		q.arm(now)
		l.mu.Unlock()

		var err error
		if vacant, err = l.vacant(ctx, group); err != nil {
			return nil, fmt.Errorf("wait in line for group %q: %w", group, err)
		}
		asked = q
	}
}

// leave looks at why w woke up, and ends it unless it was called in vain: the
// turn may have been taken back by a grant to someone else.
func (l *Line) leave(ctx context.Context, w *waiter) (done bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.ended {
		return true, w.err
	}
	p := w.place
	q := p.queue
	now := q.settle()
	ended := ctx.Err()
	mine := q.turn == p
	switch {
	case ended != nil:
		q.detach(p, now)
		if mine {
			q.decline(p, now)
		}
		err = fmt.Errorf("wait in line for group %q: %w", q.group, ended)
	case mine:
		q.detach(p, now)
		q.take(now)
	default:
		return false, nil
	}
	q.arm(now)
	return true, err
}

// Open says that the group is vacant, and calls the first in
// line, or the successor if one is named and in line. If it is not in line it
// is waited for, up to wait, before anyone else is called: an owner that cannot have lost
// its line gives 0, one that took over SuccessorKept. A group that is open already
// stays as it is.
func (l *Line) Open(group, successor string, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.groups[group]
	if q == nil {
		if l.closed || successor == "" || wait <= 0 {
			return
		}
		q = l.queue(group)
	}
	now := q.settle()
	q.open(successor, wait, now)
	q.arm(now)
}

// Foretell calls the first in line ahead of a vacancy of which Open or Shut will
// tell. The turn does not run out before that: whoever has it can do no more than wait.
func (l *Line) Foretell(group string) { l.change(group, (*queue).foretell) }

// Shut takes Foretell back: the vacancy does not come. Whoever was called keeps its place.
func (l *Line) Shut(group string) {
	l.change(group, func(q *queue, _ time.Duration) { q.close() })
}

// Granted says that the group is held, by c. Its place is given up, an Await
// of its own returns nil, since its Acquire will succeed, and a turn that was
// someone else's is taken back: that one keeps its place.
func (l *Line) Granted(group string, c baton.Candidate) {
	l.change(group, func(q *queue, _ time.Duration) {
		q.close()
		if p := q.places[keyOf(c)]; p != nil {
			p.end(nil)
			q.remove(p)
		}
	})
}

// change brings the line of a group up to the clock and lets f change it, if there is one.
func (l *Line) change(group string, f func(q *queue, now time.Duration)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.groups[group]
	if q == nil {
		return
	}
	now := q.settle()
	f(q, now)
	q.arm(now)
}

// Close ends all waits with baton.ErrUnavailable and forgets all places.
func (l *Line) Close() {
	l.mu.Lock()
	l.closed = true
	for _, q := range l.groups {
		q.dismiss()
	}
	clear(l.groups)
	l.mu.Unlock()
	l.timers.Wait()
}

// queue returns the group's line, which it begins if there is none.
func (l *Line) queue(group string) *queue {
	q := l.groups[group]
	if q == nil {
		q = newQueue(l, group)
		l.groups[group] = q
	}
	return q
}

func closedError(group string) error {
	return &baton.UnavailableError{Op: fmt.Sprintf("wait in line for group %q", group), Err: errClosed}
}
