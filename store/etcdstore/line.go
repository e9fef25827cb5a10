package etcdstore

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"baton"
	"baton/internal/bound"
	"baton/internal/storecall"
)

const (
	// placeKept is how long a place outlives its owner's last sign of life, in
	// seconds. A place that is given up between polls has at least 5 left.
	placeKept = 7
	// signEvery is how often one who waits gives a sign of life, and looks
	// whether a vacancy escaped its watch.
	signEvery = 1500 * time.Millisecond
)

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
	if err != nil || st.CallsFirst(c) {
		return err
	}
	w := &waiter{s: s, group: group, Waiter: bound.Waiter{Candidate: c}}
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
		if !st.InLine(c) && !st.HeldBy(c) {
			// The place was lost while etcd could not be reached.
			if err := w.takePlace(ctx); err != nil {
				return err
			}
			continue
		}
		called, later := w.Turn(&st.State, time.Now())
		if called {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case resp, ok := <-vacancies.C:
			if !ok || resp.Err() != nil {
				// No leader, or a revision that was compacted: a look tells what matters.
				if err := storecall.Pause(ctx, bound.TurnKept/10); err != nil {
					return err
				}
				again()
			}
		case <-time.After(later):
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

type waiter struct {
	s     *Store
	group string
	lease clientv3.LeaseID
	bound.Waiter
}

// look reads the group, and writes down that its lease has run out if that is for this one.
func (w *waiter) look(ctx context.Context) (*state, error) {
	st, err := w.s.look(ctx, w.group)
	if err != nil || !w.WritesDown(&st.State) {
		return st, err
	}
	ctx, cancel := context.WithTimeout(ctx, w.s.timeout)
	defer cancel()
	return w.s.load(ctx, w.group, true)
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
		clientv3.OpPut(w.s.keys.Place(w.group, w.Candidate), "", clientv3.WithLease(granted.ID)),
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
