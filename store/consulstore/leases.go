package consulstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"

	"baton"
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
	failed, lost := storecall.ErrBusy, attempts{}
	for ctx.Err() == nil {
		st, err := s.load(ctx, group, with{line: true})
		if err != nil {
			return baton.Lease{}, lost.settle(err)
		}
		var lease baton.Lease
		var done bool
		if st.heldBy(c) {
			lease, done, err = s.renew(ctx, st, 0)
		} else if refusal := s.refusal(st, c); refusal != nil {
			if done, err = s.current(ctx, st); done {
				if err = refusal; lost[st.index] {
					err = errLost // it would win yet
				}
			}
		} else {
			lease, done, err = s.grant(ctx, st, c, ttl)
		}
		if done {
			return lease, err
		}
		if refused(err) {
			return lease, lost.settle(err)
		}
		if err != nil {
			failed, lost[st.index] = err, true
		}
		// Somebody was faster; or the answer was lost, and then the record
		// tells. A transaction that is still on its way finds another record
		// than the one that it was made for, or it is the one that counts.
		_ = storecall.Pause(ctx, storecall.RetryPause)
	}
	return baton.Lease{}, failed
}

// refusal is why the group, as it is, is not for c.
func (s *Store) refusal(st *state, c baton.Candidate) error {
	switch {
	case st.endedLast(c):
		return &baton.ConflictError{
			Reason:  baton.ConflictInstanceEnded,
			Message: fmt.Sprintf("instance %s of node %q has led group %q and its leadership ended: campaign with a new instance", c.InstanceID, c.NodeID, st.group),
		}
	case st.held():
		lease := s.forLooks(st)
		return &baton.HeldError{Lease: lease, RetryAfter: lease.Remaining}
	case max(st.last(), st.floor) >= baton.MaxTerm:
		return &baton.ConflictError{
			Reason:  baton.ConflictTermsExhausted,
			Message: fmt.Sprintf("group %q has used up its terms: the last one is %d", st.group, max(st.last(), st.floor)),
		}
	}
	if left := st.turnLeft(c, stamp()); left > 0 {
		return &baton.HeldError{Lease: st.lease(), RetryAfter: left}
	}
	return nil
}

// grant tries to make c the holder of a group that was seen vacant.
func (s *Store) grant(ctx context.Context, st *state, c baton.Candidate, ttl time.Duration) (lease baton.Lease, granted bool, err error) {
	sent := s.clock.Now() // the session cannot begin before
	session, err := s.newSession(ctx, "baton lease "+st.group, seconds(ttl), release)
	if err != nil {
		return baton.Lease{}, false, err
	}
	h := holder{
		Term: max(st.last(), st.floor) + 1, Node: c.NodeID, Instance: c.InstanceID, Metadata: c.Metadata,
		TTL: seconds(ttl), Elected: stamp(),
	}
	next := st.record.grant(h)
	value, err := json.Marshal(next)
	if err != nil {
		return baton.Lease{}, false, err
	}
	key := s.keys.lease(st.group)
	ops := api.TxnOps{
		unchanged(key, st.index),
		lock(key, session, value),
		swap(s.keys.term(st.group), formatTerm(h.Term), st.termIndex),
		kv(api.KVDelete, s.keys.place(st.group, c)),
	}
	if st.termIndex == 0 {
		// The group may have come and gone since it was read: then the floor has moved.
		ops = append(ops, unchanged(s.keys.floor(), st.floorIndex))
	}
	_, granted, err = s.commit(ctx, ops...)
	switch {
	case granted:
		s.destroy(st.placeOf(c).session)
		lease = next.Holder.lease(st.group)
		lease.Remaining = s.promised(st.group, session, lease.TTL, sent)
	case err == nil || refused(err):
		s.destroy(session) // of any other error the grant may come yet
	}
	return lease, granted, err
}

// Release ends exactly this leadership.
func (s *Store) Release(ctx context.Context, id baton.LeaseID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	return s.change(ctx, "release", id, func(st *state) (record, error) {
		if !st.leads(id) {
			return record{}, errNotLeader
		}
		return st.record.over(baton.Resigned, nil, stamp()), nil
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
	return s.change(ctx, "end", baton.LeaseID{Group: group, Term: term}, func(st *state) (record, error) {
		if !st.held() || st.record.Holder.Term != term {
			return record{}, errNotLeader
		}
		if e.Successor != "" && !st.waits(e.Successor) {
			return record{}, &baton.ConflictError{
				Reason:  baton.ConflictNotInLine,
				Message: fmt.Sprintf("node %q does not wait for group %q: it cannot succeed", e.Successor, group),
			}
		}
		asked := &ending{Reason: e.Reason, Note: e.Note, Successor: e.Successor}
		if e.Immediate {
			return st.record.over(e.Reason, asked, stamp()), nil
		}
		h := *st.record.Holder
		h.Ending = asked
		next := st.record
		next.Holder = &h
		return next, nil
	})
}

// change replaces the record of a group that is held, by one transaction on
// exactly what decide has seen. An answer that is lost is not asked for again:
// the second attempt could not tell its own success from another's.
func (s *Store) change(ctx context.Context, op string, id baton.LeaseID, decide func(*state) (record, error)) error {
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
