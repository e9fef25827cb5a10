package etcdstore

import (
	"context"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"baton"
	"baton/internal/storecall"
)

const (
	// turnKept is how long each in line has before the next one is called.
	turnKept = time.Second
	// placeKept is how long a place outlives its owner's last sign of life, in
	// seconds. A place that is given up between polls has at least 5 left.
	placeKept = 7
	// signEvery is how often one who waits gives a sign of life, and looks
	// whether a vacancy escaped its watch.
	signEvery = 1500 * time.Millisecond
)

// place is one who waits. The line is in the order of the revisions at which
// the places were taken.
type place struct{ node, instance string }

func placeOf(key string) place {
	elements := strings.Split(key, "/")
	if len(elements) < 2 {
		return place{}
	}
	return place{node: elements[len(elements)-2], instance: elements[len(elements)-1]}
}

func (p place) is(c baton.Candidate) bool { return p.node == c.NodeID && p.instance == c.InstanceID }

func (st *state) waits(node string) bool {
	return slices.ContainsFunc(st.line, func(p place) bool { return p.node == node })
}

func (st *state) inLine(c baton.Candidate) bool {
	return slices.ContainsFunc(st.line, func(p place) bool { return p.is(c) })
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
	st, err := s.look(ctx, group)
	if err != nil || st.callsFirst(c) {
		return err
	}
	w := &waiter{s: s, group: group, c: c}
	if err := w.takePlace(ctx); err != nil {
		return err
	}
	// The watch begins at the first look, so it misses nothing.
	vacancies := s.stream(ctx, s.keys.bound(group), clientv3.WithRev(st.revision+1), clientv3.WithFilterPut())
	defer func() { vacancies.stop() }()
	again := func() {
		vacancies.stop()
		vacancies = s.stream(ctx, s.keys.bound(group), clientv3.WithRev(st.revision+1), clientv3.WithFilterPut())
	}
	sign := time.NewTicker(signEvery)
	defer sign.Stop()
	for {
		if st, err = w.look(ctx); err != nil {
			return err
		}
		if !st.inLine(c) && !st.heldBy(c) {
			// The place was lost while etcd could not be reached.
			if err := w.takePlace(ctx); err != nil {
				return err
			}
			continue
		}
		called, later := w.turn(st, time.Now())
		if called {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case resp, ok := <-vacancies.C:
			if !ok || resp.Err() != nil {
				// No leader, or a revision that was compacted: a look tells what matters.
				if err := storecall.Pause(ctx, turnKept/10); err != nil {
					return err
				}
				again()
			}
		case <-later:
		case <-sign.C:
			if err := w.showLife(ctx); err != nil {
				return err
			}
			if !s.members.uses(vacancies.at) {
				again()
			}
		}
	}
}

// look reads a group and its line, in bounded time.
func (s *Store) look(ctx context.Context, group string) (*state, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.read(ctx, group, true)
}

// callsFirst reports whether c may go at once, without a place.
func (st *state) callsFirst(c baton.Candidate) bool {
	return st.heldBy(c) || !st.held() && st.ahead(c) == 0
}

type waiter struct {
	s     *Store
	group string
	c     baton.Candidate
	lease clientv3.LeaseID

	vacant baton.Term // the term after which the group is vacant
	since  time.Time  // when that was first seen; zero while the group is held
}

// look reads the group. That its lease has run out is written down by the second
// in line, since the first may be dead, and later by whoever still finds it
// so: the turns of those who Acquire count from that moment.
func (w *waiter) look(ctx context.Context) (*state, error) {
	st, err := w.s.look(ctx, w.group)
	if err != nil || !st.lapsed() || st.ahead(w.c) != 1 && w.since.IsZero() {
		return st, err
	}
	ctx, cancel := context.WithTimeout(ctx, w.s.timeout)
	defer cancel()
	return w.s.load(ctx, w.group, true)
}

// turn decides whether c is called. If not, again fires when that may change by
// itself.
func (w *waiter) turn(st *state, now time.Time) (called bool, again <-chan time.Time) {
	if st.heldBy(w.c) {
		return true, nil
	}
	if st.held() {
		w.since = time.Time{}
		return false, nil
	}
	if last := st.last(); w.since.IsZero() || last != w.vacant {
		w.vacant, w.since = last, now
	}
	wait := time.Duration(st.ahead(w.c))*turnKept - now.Sub(w.since)
	if wait <= 0 {
		return true, nil
	}
	return false, time.After(wait)
}

// takePlace takes a place, or keeps the one that there is: a key keeps the
// revision at which it was made.
func (w *waiter) takePlace(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.s.timeout)
	defer cancel()
	granted, err := w.s.newLease(ctx, placeKept)
	if err != nil {
		return err
	}
	w.lease = granted.ID
	_, err = w.s.commit(ctx, nil, []clientv3.Op{
		clientv3.OpPut(w.s.keys.place(w.group, w.c), "", clientv3.WithLease(granted.ID)),
	})
	return err
}

func (w *waiter) showLife(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.s.timeout)
	defer cancel()
	_, err := ask(ctx, w.s, func(ctx context.Context, c *clientv3.Client) (*pb.LeaseKeepAliveResponse, error) {
		return w.s.keepAlives.once(ctx, c, w.lease)
	})
	if refused(err) {
		return nil // the place is gone, and the next look finds that out
	}
	return err
}
