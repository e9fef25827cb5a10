package consulstore

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/hashicorp/consul/api"

	"baton"
	"baton/internal/bound"
	"baton/internal/storecall"
)

// Acquire grants a vacant group. For a second after it became vacant, whoever
// is not the first in line is answered *baton.HeldError with the vacant state.
func (s *Store) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return baton.Lease{}, err
	}
	if err := c.Validate(); err != nil {
		return baton.Lease{}, err
	}
	if err := guarantees.ValidateTTL(ttl); err != nil {
		return baton.Lease{}, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	lease, err := s.acquire(bounded, group, c, ttl)
	return lease, s.calls.Fail(ctx, "acquire", err)
}

func (s *Store) acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	failed, open := storecall.ErrBusy, attempts{}
	for ctx.Err() == nil {
		st, err := s.load(ctx, group, with{line: true})
		if err != nil {
			return baton.Lease{}, open.settle(err)
		}
		s.destroy(open.close(st)...)
		lease, done := s.found(st, open)
		if done {
			return lease, nil
		}
		if st.HeldBy(c) {
			lease, done, err = s.renew(ctx, st, 0, open)
		} else if refusal := st.Refusal(c, func() (baton.Lease, error) { return s.forLooks(st), nil }); refusal != nil {
			if done, err = s.current(ctx, st); done {
				if err = refusal; len(open) > 0 {
					err = errLost // one would win yet
				}
			}
		} else {
			lease, done, err = s.grant(ctx, st, c, ttl, open)
		}
		if done {
			return lease, err
		}
		if refused(err) {
			return lease, open.settle(err)
		}
		if err != nil {
			failed = err
		}
		// Somebody was faster; or the answer was lost, or was that to a copy of
		// what had been done before, and then the record tells. A transaction that
		// is still on its way finds another record than the one that it was made
		// for, or it is the one that counts.
		_ = storecall.Pause(ctx, storecall.RetryPause)
	}
	return baton.Lease{}, failed
}

// grant tries to make c the holder of a group that was seen vacant. If that may
// have been done, or may be yet, it is one of open afterwards.
func (s *Store) grant(ctx context.Context, st *state, c baton.Candidate, ttl time.Duration, open attempts) (lease baton.Lease, granted bool, err error) {
	sent := s.clock.Now() // the session cannot begin before
	session, err := s.newSession(ctx, "baton lease "+st.Group, bound.Seconds(ttl), release)
	if err != nil {
		return baton.Lease{}, false, err
	}
	next := st.Granted(c, bound.Seconds(ttl))
	value, err := json.Marshal(next)
	if err != nil {
		return baton.Lease{}, false, err
	}
	key := s.keys.lease(st.Group)
	ops := api.TxnOps{
		unchanged(key, st.index),
		lock(key, session, value),
		swap(s.keys.Term(st.Group), []byte(bound.FormatTerm(next.Holder.Term)), st.termIndex),
		kv(api.KVDelete, s.keys.Place(st.Group, c)),
	}
	if st.termIndex == 0 {
		// The group may have come and gone since it was read: then the floor has moved.
		ops = append(ops, unchanged(s.keys.Floor(), st.floorIndex))
	}
	if _, granted, err = s.commit(ctx, ops...); !granted {
		return baton.Lease{}, false, s.undone(ctx, st, session, sent, err, open)
	}
	s.destroy(st.places[bound.PlaceOf(c)])
	lease = next.Holder.InGroup(st.Group)
	lease.Remaining = s.promised(st.Group, session, lease.TTL, sent)
	return lease, true, nil
}

// Release ends exactly this leadership.
func (s *Store) Release(ctx context.Context, id baton.LeaseID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	return s.change(ctx, "release", id, func(st *state) (bound.Record, error) {
		if !st.Leads(id) {
			return bound.Record{}, errNotLeader
		}
		return st.Released(), nil
	})
}

// End ends the leadership of exactly this term, or begins to.
func (s *Store) End(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	if err := baton.ValidateID("group", group); err != nil {
		return err
	}
	if err := e.Validate(); err != nil {
		return err
	}
	return s.change(ctx, "end", baton.LeaseID{Group: group, Term: term}, func(st *state) (bound.Record, error) {
		if !st.HeldIn(term) {
			return bound.Record{}, errNotLeader
		}
		return st.Ended(e)
	})
}

// change replaces the record of a group that is held, by one transaction on
// exactly what decide has seen. An answer that is lost is not asked for again:
// the second attempt could not tell its own success from another's.
func (s *Store) change(ctx context.Context, op string, id baton.LeaseID, decide func(*state) (bound.Record, error)) error {
	return s.calls.Until(ctx, op, func(ctx context.Context) (done bool, err error) {
		st, err := s.load(ctx, id.Group, with{line: true})
		if err != nil {
			return false, err
		}
		next, err := decide(st)
		if errors.Is(err, errNotLeader) {
			if done, err = s.current(ctx, st); done {
				err = s.notLeader(st, id)
			}
			return done, err
		}
		if err != nil {
			return false, err
		}
		done, err = s.replace(ctx, st, next)
		if done && next.Holder == nil {
			s.destroy(st.session)
		}
		return done, err
	})
}

// notLeader is the answer to one that does not lead in st.
func (s *Store) notLeader(st *state, id baton.LeaseID) error {
	current := s.forLooks(st)
	return &baton.NotLeaderError{ID: id, Current: &current}
}

// Get reads the group. Who may only read is told what a server knows that
// believes it leads, which may be out of date.
func (s *Store) Get(ctx context.Context, group string) (baton.Lease, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return baton.Lease{}, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	failed := storecall.ErrBusy
	for bounded.Err() == nil {
		st, err := s.load(bounded, group, with{})
		if err != nil {
			return baton.Lease{}, s.calls.Fail(ctx, "get", err)
		}
		sure, err := s.current(bounded, st)
		if sure || refused(err) {
			return s.forLooks(st), nil
		}
		if err != nil {
			failed = err
		}
		_ = storecall.Pause(bounded, storecall.RetryPause)
	}
	return baton.Lease{}, s.calls.Fail(ctx, "get", failed)
}
