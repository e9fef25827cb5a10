package leasefsm

import (
	"container/heap"
	"errors"
	"time"

	"baton"
)

var (
	// ErrLapsed: the deadline has passed, or there is none for this term. The
	// leadership is over, or will be when its expiry is recorded.
	ErrLapsed = errors.New("the lease has run out")
	// ErrClosed: an ending of this leadership is under way, and what comes of it is not known yet.
	ErrClosed = errors.New("the lease is being ended")
)

// Deadlines is until when each leadership lasts, on the clock of whoever
// keeps it. Every method that needs the time is handed a reading; readings may be
// negative. It is not safe for concurrent use.
//
// A leadership is open or closed. An open one can be renewed while its
// deadline lies ahead. A closed one cannot, and [Deadlines.Due] does not
// report it: whoever closed it is ending it.
type Deadlines struct {
	byGroup map[string]*deadline
	open    queue // the open ones, the earliest first
}

type deadline struct {
	group string
	term  baton.Term
	at    time.Duration
	index int // in the queue; -1 while closed
}

// Lapsed names a leadership whose deadline has passed.
type Lapsed struct {
	Group string
	Term  baton.Term
}

// NewDeadlines knows no deadlines.
func NewDeadlines() *Deadlines {
	return &Deadlines{byGroup: make(map[string]*deadline)}
}

// Arm begins the deadline of a term, ttl from now. A later term of the group
// replaces an earlier one, never the other way round. Arming the same
// term again can only move its deadline later, and a closed one stays closed.
func (d *Deadlines) Arm(group string, term baton.Term, ttl, now time.Duration) {
	old := d.byGroup[group]
	switch {
	case old == nil:
	case old.term == term:
		d.postpone(old, now+ttl)
		return
	case old.term > term:
		return
	default:
		d.Drop(group, old.term)
	}
	l := &deadline{group: group, term: term, at: now + ttl}
	d.byGroup[group] = l
	heap.Push(&d.open, l)
}

// Renew lets a leadership last until extend from now, or until it would have
// lasted anyway if that is later, and returns what is left. It is ErrClosed
// or ErrLapsed when that must not be.
func (d *Deadlines) Renew(group string, term baton.Term, extend, now time.Duration) (time.Duration, error) {
	l := d.find(group, term)
	switch {
	case l == nil:
		return 0, ErrLapsed
	case l.index < 0:
		return 0, ErrClosed
	case l.at <= now:
		return 0, ErrLapsed
	}
	d.postpone(l, now+extend)
	return l.at - now, nil
}

// Close ends renewal, and reports whether this leadership was open. Whoever
// gets true may propose an ending, and owes a Drop or a Reopen once its fate is known.
func (d *Deadlines) Close(group string, term baton.Term) bool {
	l := d.find(group, term)
	if l == nil || l.index < 0 {
		return false
	}
	heap.Remove(&d.open, l.index)
	return true
}

// Reopen takes a Close back: the ending is known to have failed. The deadline
// is where it was, and possibly past.
func (d *Deadlines) Reopen(group string, term baton.Term) {
	if l := d.find(group, term); l != nil && l.index < 0 {
		heap.Push(&d.open, l)
	}
}

// Remaining is what is left of a leadership, open or closed; 0 if its deadline has
// passed or there is none.
func (d *Deadlines) Remaining(group string, term baton.Term, now time.Duration) time.Duration {
	l := d.find(group, term)
	if l == nil {
		return 0
	}
	return max(0, l.at-now)
}

// Due closes and returns all open leaderships whose deadline has passed, the
// earliest first. The caller owes a Drop or a Reopen for each, as after Close.
func (d *Deadlines) Due(now time.Duration) []Lapsed {
	var due []Lapsed
	for len(d.open) > 0 && d.open[0].at <= now {
		l := heap.Pop(&d.open).(*deadline)
		due = append(due, Lapsed{Group: l.group, Term: l.term})
	}
	return due
}

// Next is the earliest deadline of an open leadership, if there is one.
func (d *Deadlines) Next() (at time.Duration, ok bool) {
	if len(d.open) == 0 {
		return 0, false
	}
	return d.open[0].at, true
}

// Drop forgets the deadline of exactly this term.
func (d *Deadlines) Drop(group string, term baton.Term) {
	l := d.find(group, term)
	if l == nil {
		return
	}
	if l.index >= 0 {
		heap.Remove(&d.open, l.index)
	}
	delete(d.byGroup, group)
}

// Len is how many leaderships have a deadline.
func (d *Deadlines) Len() int { return len(d.byGroup) }

func (d *Deadlines) find(group string, term baton.Term) *deadline {
	l := d.byGroup[group]
	if l == nil || l.term != term {
		return nil
	}
	return l
}

func (d *Deadlines) postpone(l *deadline, at time.Duration) {
	if at <= l.at {
		return
	}
	l.at = at
	if l.index >= 0 {
		heap.Fix(&d.open, l.index)
	}
}

// queue implements heap.Interface.
type queue []*deadline

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at < q[j].at }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue) Push(x any) {
	l := x.(*deadline)
	l.index = len(*q)
	*q = append(*q, l)
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	l := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	l.index = -1
	return l
}
