package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

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
		st, err := s.load(ctx, group, true)
		if err != nil {
			return baton.Lease{}, open.settle(err)
		}
		for _, idle := range open.close(st) {
			s.revoke(idle)
		}
		if st.HeldBy(c) {
			lease, err := s.renew(ctx, st, st.Lease().ID())
			if errors.Is(err, baton.ErrNotLeader) {
				continue // it ended just now, which is another answer
			}
			return lease, open.settle(err)
		}
		refusal := st.Refusal(c, func() (baton.Lease, error) { return s.withRemaining(ctx, st) })
		if refusal != nil {
			if len(open) > 0 {
				refusal = errLost // one would win yet
			}
			return baton.Lease{}, refusal
		}
		lease, granted, err := s.grant(ctx, st, c, ttl, open)
		if granted || refused(err) {
			return lease, open.settle(err)
		}
		if err != nil {
			failed = err
			_ = storecall.Pause(ctx, storecall.RetryPause)
		}
		// Somebody was faster; or the answer was lost, or was that to a copy of
		// what had been done before, and then the record tells. A transaction that
		// is still on its way finds another record than the one that it was made
		// for, or it is the one that counts.
	}
	return baton.Lease{}, failed
}

// grant tries to make c the holder of a group that was seen vacant. If that may
// have been done, or may be yet, it is one of open afterwards.
func (s *Store) grant(ctx context.Context, st *state, c baton.Candidate, ttl time.Duration, open attempts) (lease baton.Lease, granted bool, err error) {
	sent := s.clock.Now() // the etcd lease cannot begin before
	fresh, err := s.newLease(ctx, bound.Seconds(ttl))
	if err != nil {
		return baton.Lease{}, false, err
	}
	next := st.Granted(c, fresh.TTL)
	next.Holder.Lease = formatLease(fresh.ID)
	value, err := json.Marshal(next)
	if err != nil {
		return baton.Lease{}, false, err
	}
	conditions := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(s.keys.record(st.Group)), "=", st.recordRev),
		clientv3.Compare(clientv3.CreateRevision(s.keys.bound(st.Group)), "=", 0),
		clientv3.Compare(clientv3.ModRevision(s.keys.Term(st.Group)), "=", st.termRev),
	}
	if st.termRev == 0 {
		// The group may have come and gone since it was read: then the floor has moved.
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(s.keys.Floor()), "=", st.floorRev))
	}
	term := bound.FormatTerm(next.Holder.Term)
	resp, err := s.commit(ctx, conditions, []clientv3.Op{
		clientv3.OpPut(s.keys.record(st.Group), string(value)),
		clientv3.OpPut(s.keys.bound(st.Group), term, clientv3.WithLease(fresh.ID)),
		clientv3.OpPut(s.keys.Term(st.Group), term),
		clientv3.OpDelete(s.keys.Place(st.Group, c)),
	})
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return baton.Lease{}, false, nil // it ran out on the way: a new one is needed
	case refused(err):
		return baton.Lease{}, false, s.abandon(ctx, st, fresh.ID, err, open)
	case err != nil || !resp.Succeeded:
		open[fresh.ID] = st.recordRev
		return baton.Lease{}, false, err
	}
	lease = next.Holder.InGroup(st.Group)
	lease.Remaining = max(0, lease.TTL-(s.clock.Now()-sent))
	return lease, true, nil
}

// Release ends exactly this leadership.
func (s *Store) Release(ctx context.Context, id baton.LeaseID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	return s.change(ctx, "release", id.Group, func(ctx context.Context, st *state) (bound.Record, error) {
		if !st.Leads(id) {
			return bound.Record{}, s.notLeader(ctx, st, id)
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
	return s.change(ctx, "end", group, func(ctx context.Context, st *state) (bound.Record, error) {
		if !st.HeldIn(term) {
			return bound.Record{}, s.notLeader(ctx, st, baton.LeaseID{Group: group, Term: term})
		}
		return st.Ended(e)
	})
}

// change replaces the record of a group that is held, by one transaction on
// exactly what decide has seen. An answer that is lost is not asked for again:
// the second attempt could not tell its own success from another's.
func (s *Store) change(ctx context.Context, op, group string, decide func(context.Context, *state) (bound.Record, error)) error {
	return s.calls.Until(ctx, op, func(ctx context.Context) (done bool, err error) {
		st, err := s.load(ctx, group, true)
		if err != nil {
			return false, err
		}
		next, err := decide(ctx, st)
		if err != nil {
			return false, err
		}
		done, _, err = s.replace(ctx, st, next, s.stands(group))
		if done && next.Holder == nil {
			s.revoke(st.lease)
		}
		return done, err
	})
}

// notLeader is the answer to one that does not lead in st. How long the present
// holder has left is a courtesy: the answer stands without it.
func (s *Store) notLeader(ctx context.Context, st *state, id baton.LeaseID) error {
	current, err := s.withRemaining(ctx, st)
	if err != nil {
		current = st.Lease()
	}
	return &baton.NotLeaderError{ID: id, Current: &current}
}

// Get reads the group.
func (s *Store) Get(ctx context.Context, group string) (baton.Lease, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return baton.Lease{}, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	st, err := s.load(bounded, group, false)
	if err != nil {
		return baton.Lease{}, s.calls.Fail(ctx, "get", err)
	}
	lease, err := s.withRemaining(bounded, st)
	return lease, s.calls.Fail(ctx, "get", err)
}

// withRemaining adds what etcd says is left, rounded down to seconds. It is
// meant for those who look, not for the holder: no quorum stands behind it.
func (s *Store) withRemaining(ctx context.Context, st *state) (baton.Lease, error) {
	lease := st.Lease()
	if !lease.Held() {
		return lease, nil
	}
	left, err := s.left(ctx, st)
	if err != nil {
		return baton.Lease{}, err
	}
	lease.Remaining = left.remaining
	return lease, nil
}

type left struct {
	remaining time.Duration
	raftTerm  uint64
}

func (s *Store) left(ctx context.Context, st *state) (left, error) {
	resp, err := ask(ctx, s, func(ctx context.Context, c *clientv3.Client) (*clientv3.LeaseTimeToLiveResponse, error) {
		return c.TimeToLive(ctx, st.lease)
	})
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return left{}, nil // it was there a moment ago
	}
	if err != nil {
		return left{}, err
	}
	return left{
		remaining: min(max(0, time.Duration(resp.TTL)*time.Second), st.Record.Holder.TTL()),
		raftTerm:  resp.GetRaftTerm(),
	}, nil
}
