package bound

import (
	"math"
	"slices"
	"strings"
	"time"

	"baton"
)

// TurnKept is how long each in line has before the next one is called.
const TurnKept = time.Second

// Place is one who waits.
type Place struct{ Node, Instance string }

// PlaceOf is the place of c.
func PlaceOf(c baton.Candidate) Place { return Place{Node: c.NodeID, Instance: c.InstanceID} }

// ReadPlace is the place that a key of the line stands for.
func ReadPlace(key string) Place {
	elements := strings.Split(key, "/")
	if len(elements) < 2 {
		return Place{}
	}
	return Place{Node: elements[len(elements)-2], Instance: elements[len(elements)-1]}
}

// InLine reports whether c has a place.
func (st *State) InLine(c baton.Candidate) bool { return slices.Contains(st.Line, PlaceOf(c)) }

func (st *State) waits(node string) bool { return st.first(node) >= 0 }

// first is where the first instance of a node stands in line, -1 if none does.
func (st *State) first(node string) int {
	return slices.IndexFunc(st.Line, func(p Place) bool { return p.Node == node })
}

// successor is the node that the last ending named, "" if none. Of a lease that ran
// out while it was being ended, and that nobody has written down yet, the ending still says it.
func (st *State) successor() string {
	if st.Lapsed() && st.Record.Holder.Ending != nil {
		return st.Record.Holder.Ending.Successor
	}
	return st.Record.Successor
}

// ahead is how many in line go before c. A successor goes before all.
func (st *State) ahead(c baton.Candidate) int {
	n := slices.Index(st.Line, PlaceOf(c))
	if n < 0 {
		n = len(st.Line)
	}
	successor := st.first(st.successor())
	switch {
	case successor == n && n < len(st.Line):
		return 0
	case successor > n:
		return n + 1
	}
	return n
}

// turnLeft is for how long a group that was just vacated is kept for others
// than c. It compares stamps of two machines, so it may be wrong by what their
// clocks differ: a candidate from aside may get in, or come a second later.
// Nothing rests on it.
func (st *State) turnLeft(c baton.Candidate, now int64) time.Duration {
	if st.Record.Last == nil || st.ahead(c) == 0 {
		return 0
	}
	since := time.Duration(now-st.Record.Last.Ended) * time.Millisecond
	if since < 0 || since >= TurnKept {
		return 0
	}
	return TurnKept - since
}

// CallsFirst reports whether c may go at once, without a place.
func (st *State) CallsFirst(c baton.Candidate) bool {
	return st.HeldBy(c) || !st.Held() && st.ahead(c) == 0
}

// Waiter is a candidate in line, with what it has seen of the group.
type Waiter struct {
	Candidate baton.Candidate

	vacant baton.Term // the term after which the group is vacant
	since  time.Time  // when that was first seen; zero while the group is held
}

// WritesDown reports whether it is for this one to write down that the lease
// has run out: for the second in line, since the first may be dead, and later for
// whoever still finds it so. The turns of those who Acquire count from that moment.
func (w *Waiter) WritesDown(st *State) bool {
	return st.Lapsed() && (st.ahead(w.Candidate) == 1 || !w.since.IsZero())
}

// Turn decides whether the candidate is called: at once when the group is vacant
// and nobody is ahead, and TurnKept later for each who is ahead and does not come.
// For the holder it is always its turn. If it is not called, later is when that may
// change by itself.
func (w *Waiter) Turn(st *State, now time.Time) (called bool, later time.Duration) {
	const never = math.MaxInt64
	if st.HeldBy(w.Candidate) {
		return true, 0
	}
	if st.Held() {
		w.since = time.Time{}
		return false, never
	}
	if last := st.Last(); w.since.IsZero() || last != w.vacant {
		w.vacant, w.since = last, now
	}
	later = time.Duration(st.ahead(w.Candidate))*TurnKept - now.Sub(w.since)
	return later <= 0, later
}
