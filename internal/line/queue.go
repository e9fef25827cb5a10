package line

import (
	"container/list"
	"maps"
	"slices"
	"time"

	"baton"
)

// key tells candidates apart.
type key struct{ node, instance string }

func keyOf(c baton.Candidate) key { return key{c.NodeID, c.InstanceID} }

// place is where one candidate stands.
type place struct {
	queue     *queue
	candidate baton.Candidate
	since     time.Duration // when it was taken
	seen      time.Duration // when the last Await ended; of no meaning during one
	waiter    *waiter       // nil between two Awaits
	declined  bool          // its Await ended as its turn came; passed over until the next one
	inOrder   *list.Element
	inAbsent  *list.Element // nil during an Await
}

// waiter is one Await.
type waiter struct {
	place  *place
	called chan struct{} // capacity 1: a reason to look, not a message
	ended  bool          // by others, with err
	err    error
}

func (w *waiter) wake() {
	select {
	case w.called <- struct{}{}:
	default:
	}
}

// end ends the Await at p, if there is one.
func (p *place) end(err error) {
	if w := p.waiter; w != nil {
		w.ended, w.err = true, err
		w.wake()
	}
	p.waiter = nil
}

// state is what the owner has told about a group.
type state int

const (
	unknown state = iota
	open
	held
)

// queue is the line of one group. All of it is guarded by Line.mu.
//
// While the group is open and anyone stands in line, exactly one turn is out,
// or kept for a successor that is waited for. The one exception is a line in
// which everybody has declined. Every change ends in call, which keeps it so.
type queue struct {
	line  *Line
	group string
	state state

	places map[key]*place
	nodes  map[string][]*place // by node, in order of arrival
	order  list.List           // of *place, first come first
	absent list.List           // of *place without an Await, longest absent first

	// turn is whose turn it is, until turnUntil. An Await that was woken has
	// not missed anything yet, however late it gets to run: its time counts from when it
	// returns. For a candidate between two Awaits it counts from the call,
	// and from the return of its next one.
	turn      *place
	taken     bool // an Await has returned with it
	turnUntil time.Duration
	// foretold: the group is not vacant yet, and until it is no turn runs out.
	foretold bool

	// successor is waited for until successorUntil.
	successor      string
	successorUntil time.Duration

	stopTimer func() bool
	timerAt   time.Duration
}

func newQueue(l *Line, group string) *queue {
	return &queue{line: l, group: group, places: map[key]*place{}, nodes: map[string][]*place{}}
}

// place returns c's place, at the end if it had none.
func (q *queue) place(c baton.Candidate, now time.Duration) *place {
	c.Metadata = maps.Clone(c.Metadata)
	p := q.places[keyOf(c)]
	if p == nil {
		p = &place{queue: q, since: now}
		p.inOrder = q.order.PushBack(p)
		q.places[keyOf(c)] = p
		q.nodes[c.NodeID] = append(q.nodes[c.NodeID], p)
	}
	p.candidate = c
	if p.waiter == nil {
		q.markAbsent(p, now)
	}
	return p
}

// markAbsent starts p's time without an Await, or starts it again.
func (q *queue) markAbsent(p *place, now time.Duration) {
	p.seen = now
	if p.inAbsent == nil {
		p.inAbsent = q.absent.PushBack(p)
	} else {
		q.absent.MoveToBack(p.inAbsent)
	}
}

// attach begins an Await at p, instead of the one there may be.
func (q *queue) attach(p *place, now time.Duration) *waiter {
	p.end(ErrReplaced)
	if p.inAbsent != nil {
		q.absent.Remove(p.inAbsent)
		p.inAbsent = nil
	}
	p.declined = false
	p.waiter = &waiter{place: p, called: make(chan struct{}, 1)}
	if q.successor != "" && q.successor == p.candidate.NodeID && q.state == open && q.turn == nil {
		q.give(p, now)
	} else if q.turn == p {
		p.waiter.wake()
	}
	return p.waiter
}

// detach ends the Await at p.
func (q *queue) detach(p *place, now time.Duration) {
	p.waiter = nil
	q.markAbsent(p, now)
}

// remove takes p out of the line. It is between two Awaits.
func (q *queue) remove(p *place) {
	c := p.candidate
	delete(q.places, keyOf(c))
	q.order.Remove(p.inOrder)
	if p.inAbsent != nil {
		q.absent.Remove(p.inAbsent)
	}
	if same := slices.DeleteFunc(q.nodes[c.NodeID], func(o *place) bool { return o == p }); len(same) > 0 {
		q.nodes[c.NodeID] = same
	} else {
		delete(q.nodes, c.NodeID)
	}
	if q.turn == p {
		q.turn = nil
	}
}

// learn takes the owner's answer as what it would have told.
func (q *queue) learn(vacant bool) {
	q.state = held
	if vacant {
		q.state = open
	}
}

func (q *queue) foretell(now time.Duration) {
	if q.state != open {
		q.state, q.foretold = open, true
		q.call(now)
	}
}

func (q *queue) open(successor string, wait, now time.Duration) {
	if q.foretold {
		q.foretold, q.turnUntil = false, now+TurnKept
	}
	if q.state == open && (q.turn != nil || q.successor != "") {
		return
	}
	q.state = open
	if successor == "" {
		q.call(now)
		return
	}
	if p := q.firstOf(successor); p != nil {
		q.give(p, now)
		return
	}
	if wait > 0 {
		q.successor, q.successorUntil = successor, now+wait
	}
	q.call(now)
}

// firstOf returns the first place of a node, and rather one that awaits.
func (q *queue) firstOf(node string) *place {
	places := q.nodes[node]
	for _, p := range places {
		if p.waiter != nil {
			return p
		}
	}
	if len(places) > 0 {
		return places[0]
	}
	return nil
}

// close takes a turn back: the group is held.
func (q *queue) close() {
	q.state, q.foretold = held, false
	q.turn = nil
	q.successor = ""
}

// give makes it p's turn.
func (q *queue) give(p *place, now time.Duration) {
	q.turn, q.taken, q.turnUntil = p, false, now+TurnKept
	q.successor = ""
	if p.waiter != nil {
		p.waiter.wake()
	}
}

// take starts the time of the turn that was given to a waiter, once: asking
// again does not make it longer.
func (q *queue) take(now time.Duration) {
	if !q.taken {
		q.taken, q.turnUntil = true, now+TurnKept
	}
}

// decline passes p's turn on. It keeps its place, for which it had waited.
func (q *queue) decline(p *place, now time.Duration) {
	q.turn = nil
	p.declined = true
	q.call(now)
}

// call gives the turn to the first in line, if there is one to give. Those who
// have declined are passed over; they are few, since a turn stops at the first
// place without an Await.
func (q *queue) call(now time.Duration) {
	if q.state != open || q.turn != nil || q.successor != "" {
		return
	}
	for e := q.order.Front(); e != nil; e = e.Next() {
		if p := e.Value.(*place); !p.declined {
			q.give(p, now)
			return
		}
	}
}

// turnEnds is when the turn that is out will be missed.
func (q *queue) turnEnds() (time.Duration, bool) {
	if q.turn == nil || q.turn.waiter != nil || q.foretold {
		return 0, false
	}
	return q.turnUntil, true
}

// settle brings the line up to the clock and returns its reading. Everything
// starts with it, so that nothing depends on a timer having fired in time.
func (q *queue) settle() time.Duration {
	now := q.line.clock.Now()
	if at, ok := q.turnEnds(); ok && at <= now {
		q.remove(q.turn)
	}
	if q.successor != "" && q.successorUntil <= now {
		q.successor = ""
	}
	for e := q.absent.Front(); e != nil && e.Value.(*place).seen+PlaceKept <= now; e = q.absent.Front() {
		q.remove(e.Value.(*place))
	}
	q.call(now)
	return now
}

// arm sets the timer for the next thing that time alone will change, or
// forgets the queue if nothing is left of it.
func (q *queue) arm(now time.Duration) {
	if q.order.Len() == 0 && q.successor == "" {
		q.disarm()
		delete(q.line.groups, q.group)
		return
	}
	at, ok := q.next()
	switch {
	case !ok:
		q.disarm()
		return
	case q.stopTimer != nil && q.timerAt <= at:
		return // it arms the next one
	}
	q.disarm()
	q.timerAt = at
	q.line.timers.Add(1)
	q.stopTimer = q.line.clock.AfterFunc(at-now, q.fire)
}

func (q *queue) next() (at time.Duration, ok bool) {
	consider := func(t time.Duration) {
		if !ok || t < at {
			at, ok = t, true
		}
	}
	if t, ends := q.turnEnds(); ends {
		consider(t)
	}
	if q.successor != "" {
		consider(q.successorUntil)
	}
	if e := q.absent.Front(); e != nil {
		consider(e.Value.(*place).seen + PlaceKept)
	}
	return at, ok
}

func (q *queue) disarm() {
	if q.stopTimer != nil && q.stopTimer() {
		q.line.timers.Done()
	}
	q.stopTimer = nil
}

func (q *queue) fire() {
	defer q.line.timers.Done()
	q.line.mu.Lock()
	defer q.line.mu.Unlock()
	if q.line.groups[q.group] != q {
		return // forgotten, or closed, while this call was on its way
	}
	// A call that disarm came too late for sets the timer a second time
	// at worst, and never leaves the line without one.
	q.disarm()
	q.arm(q.settle())
}

// dismiss ends all Awaits.
func (q *queue) dismiss() {
	q.disarm()
	for _, p := range q.places {
		p.end(closedError(q.group))
	}
}
