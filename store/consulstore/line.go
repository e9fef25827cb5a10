package consulstore

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"baton"
	"baton/internal/storecall"
)

const (
	// turnKept is how long each in line has before the next one is called.
	turnKept = time.Second
	// placeKept is how long a place outlives its owner's last sign of life at
	// least, in seconds. Consul knows no shorter time, and takes up to twice as much.
	placeKept = 10
	// signEvery is how often one who waits gives a sign of life, and looks
	// whether a vacancy escaped it.
	signEvery = 3 * time.Second
)

// place is one who waits. The line is in the order in which the places were taken.
type place struct {
	node, instance string
	session        string
	taken          uint64
}

func readLine(pairs []*api.KVPair) []place {
	var line []place
	for _, pair := range pairs {
		elements := strings.Split(pair.Key, "/")
		if pair.Session == "" || len(elements) < 2 {
			continue // a place that nobody keeps
		}
		line = append(line, place{
			node: elements[len(elements)-2], instance: elements[len(elements)-1], session: pair.Session, taken: pair.CreateIndex,
		})
	}
	slices.SortFunc(line, func(a, b place) int { return cmp.Compare(a.taken, b.taken) })
	return line
}

func (p place) is(c baton.Candidate) bool { return p.node == c.NodeID && p.instance == c.InstanceID }

func (st *state) waits(node string) bool {
	return slices.ContainsFunc(st.line, func(p place) bool { return p.node == node })
}

// placeOf is the place of c; it has no session if c is not in line.
func (st *state) placeOf(c baton.Candidate) place {
	if i := slices.IndexFunc(st.line, func(p place) bool { return p.is(c) }); i >= 0 {
		return st.line[i]
	}
	return place{}
}

// successor is the node that the last ending named, "" if none. Of a lease that ran
// out while it was being ended, and that nobody has written down yet, the ending still says it.
func (st *state) successor() string {
	if st.lapsed() && st.record.Holder.Ending != nil {
		return st.record.Holder.Ending.Successor
	}
	return st.record.Successor
}

// ahead is how many in line go before c. A successor goes before all.
func (st *state) ahead(c baton.Candidate) int {
	n := slices.IndexFunc(st.line, func(p place) bool { return p.is(c) })
	if n < 0 {
		n = len(st.line)
	}
	successor := slices.IndexFunc(st.line, func(p place) bool { return p.node == st.successor() })
	switch {
	case successor == n && n < len(st.line):
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
func (st *state) turnLeft(c baton.Candidate, now int64) time.Duration {
	if st.record.Last == nil || st.ahead(c) == 0 {
		return 0
	}
	since := time.Duration(now-st.record.Last.Ended) * time.Millisecond
	if since < 0 || since >= turnKept {
		return 0
	}
	return turnKept - since
}

// Await takes a place in line and returns when it is c's turn: at once when the
// group is vacant and nobody is ahead, and a second later for each who is ahead
// and does not come. So one who died costs a second, and one vacancy calls one.
// For the holder it is always its turn.
func (s *Store) Await(ctx context.Context, group string, c baton.Candidate) error {
	if err := baton.ValidateID("group", group); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	inner, cancel := s.calls.BeginWait(ctx)
	defer cancel()
	return s.calls.Fail(ctx, "await", s.await(inner, group, c))
}

func (s *Store) await(ctx context.Context, group string, c baton.Candidate) error {
	w := &waiter{s: s, group: group, c: c}
	st, err := w.look(ctx)
	if err != nil || st.callsFirst(c) {
		return err
	}
	for {
		if err := w.showLife(ctx, st); err != nil {
			return err
		}
		if st, err = w.look(ctx); err != nil {
			return err
		}
		if st.placeOf(c).session == "" && !st.heldBy(c) {
			// The place was lost while Consul could not be reached.
			if err := storecall.Pause(ctx, storecall.RetryPause); err != nil {
				return err
			}
			continue
		}
		called, later := w.turn(st, time.Now())
		if called {
			return nil
		}
		if err := w.sleep(ctx, st, min(later, signEvery)); err != nil {
			return err
		}
	}
}

// callsFirst reports whether c may go at once, without a place.
func (st *state) callsFirst(c baton.Candidate) bool {
	return st.heldBy(c) || !st.held() && st.ahead(c) == 0
}

type waiter struct {
	s     *Store
	group string
	c     baton.Candidate

	vacant baton.Term // the term after which the group is vacant
	since  time.Time  // when that was first seen; zero while the group is held
	signed time.Time  // when it last gave a sign of life
}

// look reads the group and its line, in bounded time. That its lease has run out
// is written down by the second in line, since the first may be dead, and later
// by whoever still finds it so: the turns of those who Acquire count from that moment.
func (w *waiter) look(ctx context.Context) (*state, error) {
	ctx, cancel := context.WithTimeout(ctx, w.s.timeout)
	defer cancel()
	st, err := w.s.read(ctx, w.group, with{line: true})
	if err != nil || !st.lapsed() || st.ahead(w.c) != 1 && w.since.IsZero() {
		return st, err
	}
	return w.s.load(ctx, w.group, with{line: true})
}

// turn decides whether c is called. If not, later is when that may change by
// itself.
func (w *waiter) turn(st *state, now time.Time) (called bool, later time.Duration) {
	if st.heldBy(w.c) {
		return true, 0
	}
	if st.held() {
		w.since = time.Time{}
		return false, signEvery
	}
	if last := st.last(); w.since.IsZero() || last != w.vacant {
		w.vacant, w.since = last, now
	}
	later = time.Duration(st.ahead(w.c))*turnKept - now.Sub(w.since)
	return later <= 0, later
}

// sleep returns when the group may be vacant, and was not in st; when it is led
// by another, and was vacant; or when d has passed.
func (w *waiter) sleep(ctx context.Context, st *state, d time.Duration) error {
	if st.index == 0 {
		return storecall.Pause(ctx, min(d, turnKept/10)) // there is no record to wait at yet
	}
	index, until := st.index, time.Now().Add(d)
	for left := d; left > 0; left = time.Until(until) {
		pair, next, err := w.s.block(ctx, w.s.keys.lease(w.group), index, left)
		switch {
		case refused(err):
			return err
		case err != nil || next < index || pair == nil:
			return storecall.Pause(ctx, turnKept/10) // a look, which is patient, tells what is wrong
		case (pair.Session != "") != st.held():
			return nil
		}
		index = next // it was renewed
	}
	return nil
}

// showLife keeps the place of c, or takes one. A key keeps the index at which it
// was made.
func (w *waiter) showLife(ctx context.Context, st *state) error {
	session := st.placeOf(w.c).session
	if session != "" && time.Since(w.signed) < signEvery/2 {
		return nil
	}
	w.signed = time.Now()
	// A caller who polls may be gone before this is done. Its place counts all the same.
	done := make(chan error, 1)
	w.s.calls.Chore(func(ctx context.Context) { done <- w.s.keepPlace(ctx, w.group, w.c, session) })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Store) keepPlace(ctx context.Context, group string, c baton.Candidate, session string) error {
	if session != "" {
		alive, err := ask(ctx, s, func(ctx context.Context) (*api.SessionEntry, error) {
			entry, _, err := s.consul.Session().Renew(session, (&api.WriteOptions{}).WithContext(ctx))
			return entry, err
		})
		if err != nil || alive != nil {
			return err
		}
	}
	session, err := s.newSession(ctx, "baton line "+group, placeKept, remover)
	if err != nil {
		return err
	}
	// If another call for the same candidate was faster, that is as good.
	_, done, err := s.commit(ctx, lock(s.keys.place(group, c), session, nil))
	if !done && (err == nil || refused(err)) {
		s.destroy(session)
	}
	return err
}
