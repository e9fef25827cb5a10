package consulstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hashicorp/consul/api"

	"baton"
	"baton/internal/bound"
	"baton/internal/storecall"
)

const (
	// placeKept is how long a place outlives its owner's last sign of life at
	// least, in seconds. Consul knows no shorter time, and takes up to twice as much.
	placeKept = 10
	// signEvery is how often one who waits gives a sign of life, and looks
	// whether a vacancy escaped it.
	signEvery = 3 * time.Second
)

// readLine reads those who wait, in the order in which they came.
func (st *state) readLine(pairs []*api.KVPair) {
	slices.SortFunc(pairs, func(a, b *api.KVPair) int { return cmp.Compare(a.CreateIndex, b.CreateIndex) })
	st.places = map[bound.Place]string{}
	for _, pair := range pairs {
		if pair.Session == "" {
			continue // a place that nobody keeps
		}
		place := bound.ReadPlace(pair.Key)
		st.Line = append(st.Line, place)
		st.places[place] = pair.Session
	}
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
	w := &waiter{s: s, group: group, Waiter: bound.Waiter{Candidate: c}}
	st, err := w.look(ctx)
	if err != nil || st.CallsFirst(c) {
		return err
	}
	for {
		if err := w.showLife(ctx, st); err != nil {
			return err
		}
		if st, err = w.look(ctx); err != nil {
			return err
		}
		if !st.InLine(c) && !st.HeldBy(c) {
			// The place was lost while Consul could not be reached.
			if err := storecall.Pause(ctx, storecall.RetryPause); err != nil {
				return err
			}
			continue
		}
		called, later := w.Turn(&st.State, time.Now())
		if called {
			return nil
		}
		if err := w.sleep(ctx, st, min(later, signEvery)); err != nil {
			return err
		}
	}
}

type waiter struct {
	s     *Store
	group string
	bound.Waiter
	signed time.Time // when it last gave a sign of life
}

// look reads the group and its line, in bounded time, and writes down that its
// lease has run out if that is for this one.
func (w *waiter) look(ctx context.Context) (*state, error) {
	ctx, cancel := context.WithTimeout(ctx, w.s.timeout)
	defer cancel()
	st, err := w.s.read(ctx, w.group, with{line: true})
	if err != nil || !w.WritesDown(&st.State) {
		return st, err
	}
	return w.s.load(ctx, w.group, with{line: true})
}

// sleep returns when the group may be vacant, and was not in st; when it is led
// by another, and was vacant; or when d has passed.
func (w *waiter) sleep(ctx context.Context, st *state, d time.Duration) error {
	if st.index == 0 {
		return storecall.Pause(ctx, min(d, bound.TurnKept/10)) // there is no record to wait at yet
	}
	index, until := st.index, time.Now().Add(d)
	for left := d; left > 0; left = time.Until(until) {
		pair, next, err := w.s.block(ctx, w.s.keys.lease(w.group), index, left)
		switch {
		case refused(err):
			return err
		case err != nil || next < index || pair == nil:
			return storecall.Pause(ctx, bound.TurnKept/10) // a look, which is patient, tells what is wrong
		case (pair.Session != "") != st.Held():
			return nil
		}
		index = next // it was renewed
	}
	return nil
}

// showLife keeps the place of c, or takes one. A key keeps the index at which it
// was made.
func (w *waiter) showLife(ctx context.Context, st *state) error {
	session := st.places[bound.PlaceOf(w.Candidate)]
	if session != "" && time.Since(w.signed) < signEvery/2 {
		return nil
	}
	w.signed = time.Now()
	// A caller who polls may be gone before this is done. Its place counts all the same.
	done := make(chan error, 1)
	w.s.calls.Chore(func(ctx context.Context) { done <- w.s.keepPlace(ctx, w.group, w.Candidate, session) })
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
	_, done, err := s.commit(ctx, lock(s.keys.Place(group, c), session, nil))
	if !done && (err == nil || refused(err)) {
		s.destroy(session)
	}
	return err
}
