package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"baton"
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
	if err := s.guarantees.ValidateTTL(ttl); err != nil {
		return baton.Lease{}, err
	}
	metadata, err := json.Marshal(c.Metadata)
	if err != nil {
		return baton.Lease{}, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	args := []any{c.NodeID, c.InstanceID, metadata, inMilliseconds(ttl), 0, requestID()}
	st, err := s.run(bounded, acquireScript, group, args...)
	if err == nil && st.outcome == "index" {
		// The first term of all. The index comes first, so that no group is missing in it.
		if err = s.index(bounded, group); err == nil {
			args[4] = 1
			st, err = s.run(bounded, acquireScript, group, args...)
		}
	}
	if err != nil {
		return baton.Lease{}, s.fail(ctx, "acquire", err)
	}
	return st.answerAcquire(c)
}

func (st *state) answerAcquire(c baton.Candidate) (baton.Lease, error) {
	lease := st.lease()
	switch st.outcome {
	case "granted":
		return lease, nil
	case "held":
		return baton.Lease{}, &baton.HeldError{Lease: lease, RetryAfter: lease.Remaining}
	case "turn":
		return baton.Lease{}, &baton.HeldError{Lease: lease, RetryAfter: milliseconds(st.numbers[0])}
	case "ended":
		return baton.Lease{}, &baton.ConflictError{
			Reason:  baton.ConflictInstanceEnded,
			Message: fmt.Sprintf("instance %s of node %q has led group %q and its leadership ended: campaign with a new instance", c.InstanceID, c.NodeID, st.group),
		}
	case "exhausted":
		return baton.Lease{}, &baton.ConflictError{
			Reason:  baton.ConflictTermsExhausted,
			Message: fmt.Sprintf("group %q has used up its terms: the last one is %d", st.group, st.last),
		}
	}
	return baton.Lease{}, st.unexpected("acquire")
}

// unexpected is the answer to an outcome that the script does not have.
func (st *state) unexpected(op string) error {
	return &baton.UnavailableError{Op: op, Err: fmt.Errorf("%w: %q", errReply, st.outcome)}
}

// Renew extends exactly this leadership; an extend above its TTL raises that for good.
func (s *Store) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	if err := id.Validate(); err != nil {
		return baton.Lease{}, err
	}
	if err := s.guarantees.ValidateExtend(extend); err != nil {
		return baton.Lease{}, err
	}
	args := []any{id.NodeID, id.InstanceID, formatTerm(id.Term), inMilliseconds(extend)}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	st, err := s.run(bounded, renewPlainly, id.Group, args...)
	if err == nil && st.outcome == "look" {
		st, err = s.run(bounded, renewScript, id.Group, args...)
	}
	switch {
	case err != nil:
		return baton.Lease{}, s.fail(ctx, "renew", err)
	case st.outcome == "renewed":
		return st.lease(), nil
	case st.outcome == "not_leader":
		return baton.Lease{}, st.notLeader(id)
	}
	return baton.Lease{}, st.unexpected("renew")
}

// Release ends exactly this leadership.
func (s *Store) Release(ctx context.Context, id baton.LeaseID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	st, err := s.call(ctx, "release", releaseScript, id.Group, id.NodeID, id.InstanceID, formatTerm(id.Term), requestID())
	switch {
	case err != nil:
		return err
	case st.outcome == "released":
		return nil
	case st.outcome == "not_leader":
		return st.notLeader(id)
	}
	return st.unexpected("release")
}

// End ends the leadership of exactly this term, or begins to.
func (s *Store) End(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	if err := baton.ValidateID("group", group); err != nil {
		return err
	}
	if err := e.Validate(); err != nil {
		return err
	}
	immediate := 0
	if e.Immediate {
		immediate = 1
	}
	st, err := s.call(ctx, "end", endScript, group, formatTerm(term), string(e.Reason), e.Note, e.Successor, immediate, requestID())
	switch {
	case err != nil:
		return err
	case st.outcome == "ended":
		return nil
	case st.outcome == "not_leader":
		return st.notLeader(baton.LeaseID{Group: group, Term: term})
	case st.outcome == "not_in_line":
		return &baton.ConflictError{
			Reason:  baton.ConflictNotInLine,
			Message: fmt.Sprintf("node %q does not wait for group %q: it cannot succeed", e.Successor, group),
		}
	}
	return st.unexpected("end")
}

// Get reads the group. That its lease has run out is written down by whoever sees it first.
func (s *Store) Get(ctx context.Context, group string) (baton.Lease, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return baton.Lease{}, err
	}
	st, err := s.call(ctx, "get", lookScript, group, 0)
	if err != nil {
		return baton.Lease{}, err
	}
	return st.lease(), nil
}

// History returns the last terms of a group, oldest first.
func (s *Store) History(ctx context.Context, group string) ([]baton.PastTerm, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return nil, err
	}
	st, err := s.call(ctx, "history", lookScript, group, maxPast)
	if err != nil {
		return nil, err
	}
	var history []baton.PastTerm
	for i := len(st.past) - 1; i >= 0; i-- {
		history = append(history, st.past[i].term())
	}
	if st.holder != nil {
		history = append(history, st.holder.term())
	}
	return history, nil
}
