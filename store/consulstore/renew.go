package consulstore

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"baton"
	"baton/internal/bound"
	"baton/internal/storecall"
)

// errNotLeader is said by those who have only read so far; notLeader makes an
// answer of it.
var errNotLeader = errors.New("this leadership does not stand")

// Renew lets exactly this leadership last for its whole TTL from now, whatever
// less was asked for, unless it is being ended. Asking for more raises the TTL.
func (s *Store) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	if err := id.Validate(); err != nil {
		return baton.Lease{}, err
	}
	if err := guarantees.ValidateExtend(extend); err != nil {
		return baton.Lease{}, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	failed, open := storecall.ErrBusy, attempts{}
	for bounded.Err() == nil {
		st, err := s.load(bounded, id.Group, with{})
		if err != nil {
			return baton.Lease{}, s.calls.Fail(ctx, "renew", open.settle(err))
		}
		s.destroy(open.close(st)...)
		lease, done := s.found(st, open)
		if done {
			return lease, nil
		}
		if !st.Leads(id) {
			if done, err = s.current(bounded, st); done {
				err = s.notLeader(st, id)
			}
		} else {
			lease, done, err = s.renew(bounded, st, extend, open)
		}
		if done {
			return lease, s.calls.Fail(ctx, "renew", err)
		}
		if refused(err) {
			return lease, s.calls.Fail(ctx, "renew", open.settle(err))
		}
		if err != nil {
			failed = err
		}
		_ = storecall.Pause(bounded, storecall.RetryPause) // once more, with what is there now, as long as there is time
	}
	return baton.Lease{}, s.calls.Fail(ctx, "renew", failed)
}

// renew gives the leadership that stands in st a whole TTL, or what is asked for
// if that is more, by a new session that takes the lock over from the old one.
//
// A session is made by an entry of Consul's log, and whoever leads Consul counts
// its time from that entry or from when it began to lead, if that is later. So no
// leader, present or future, ends it earlier than its TTL after this store has
// asked for it. That the record is locked by it is another entry. Once that is
// known, the promise holds.
//
// The lock always moves to a session that is younger, and its TTL is no shorter:
// it was made after the old one was read, and the transaction fails if another
// has come between.
//
// If that may have been done, or may be yet, it is one of open afterwards.
func (s *Store) renew(ctx context.Context, st *state, extend time.Duration, open attempts) (lease baton.Lease, renewed bool, err error) {
	if st.Record.Holder.Ending != nil {
		renewed, err = s.current(ctx, st)
		if !renewed {
			return baton.Lease{}, false, err
		}
		return s.forHolder(st), true, nil
	}
	h := *st.Record.Holder
	h.Seconds = max(h.Seconds, bound.Seconds(extend))
	next := st.Record
	next.Holder = &h
	value, err := json.Marshal(next)
	if err != nil {
		return baton.Lease{}, false, err
	}
	sent := s.clock.Now() // the session cannot begin before
	session, err := s.newSession(ctx, "baton lease "+st.Group, h.Seconds, release)
	if err != nil {
		return baton.Lease{}, false, err
	}
	key := s.keys.lease(st.Group)
	_, renewed, err = s.commit(ctx,
		unchanged(key, st.index), unlock(key, st.session, value), lock(key, session, value))
	if !renewed {
		return baton.Lease{}, false, s.undone(ctx, st, session, sent, err, open)
	}
	s.destroy(st.session)
	lease = h.InGroup(st.Group)
	lease.Remaining = s.promised(st.Group, session, lease.TTL, sent)
	return lease, true, nil
}
