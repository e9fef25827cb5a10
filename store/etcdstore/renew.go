package etcdstore

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"baton"
)

// Renew lets exactly this leadership last for its whole TTL from now, whatever
// less was asked for, unless it is being ended.
func (s *Store) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	if err := id.Validate(); err != nil {
		return baton.Lease{}, err
	}
	if err := guarantees.ValidateExtend(extend); err != nil {
		return baton.Lease{}, err
	}
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	st, err := s.load(bounded, id.Group, false)
	if err != nil {
		return baton.Lease{}, s.calls.Fail(ctx, "renew", err)
	}
	if st.Leads(id) && extend > st.Record.Holder.TTL() {
		return baton.Lease{}, &baton.InvalidTTLError{Field: "extend", TTL: extend, Min: time.Millisecond, Max: st.Record.Holder.TTL()}
	}
	lease, err := s.renew(bounded, st, id)
	return lease, s.calls.Fail(ctx, "renew", err)
}

// renew keeps alive the etcd lease of the leadership id, which was seen in st.
//
// etcd keeps leases' deadlines in the memory of its leader, and a leader that
// was deposed and does not know it yet answers keep-alives too. So the answer
// alone proves nothing. It is confirmed by a linearizable read that starts
// after it: if both carry the same raft term, then whoever kept the lease alive
// was still the leader afterwards, and its successors give every lease a whole
// TTL when they begin. If the record that was read still names this etcd lease
// and this term, the promise was made for this leadership.
func (s *Store) renew(ctx context.Context, st *state, id baton.LeaseID) (baton.Lease, error) {
	for {
		if !st.Leads(id) {
			return baton.Lease{}, s.notLeader(ctx, st, id)
		}
		if st.Record.Holder.Ending != nil {
			return s.unextended(ctx, st, id)
		}
		lease, after, err := s.keepAlive(ctx, st.lease, id)
		if after == nil || lease.Held() {
			return lease, err
		}
		// Once more, with what is there now, as long as there is time.
		if ctx.Err() != nil {
			return baton.Lease{}, err
		}
		st = after
	}
}

// keepAlive is one attempt. A lease without a holder means that it was not
// confirmed; after is then what was read, nil if nothing was.
func (s *Store) keepAlive(ctx context.Context, kept clientv3.LeaseID, id baton.LeaseID) (baton.Lease, *state, error) {
	var sent time.Duration
	alive, err := ask(ctx, s, func(ctx context.Context, c *clientv3.Client) (*pb.LeaseKeepAliveResponse, error) {
		sent = s.clock.Now() // before this very attempt
		return s.keepAlives.once(ctx, c, kept)
	})
	missing := errors.Is(err, rpctypes.ErrLeaseNotFound)
	if err != nil && !missing {
		return baton.Lease{}, nil, err
	}
	after, err := s.load(ctx, id.Group, false)
	if err != nil {
		return baton.Lease{}, nil, err
	}
	switch {
	case missing && after.Leads(id) && after.lease == kept:
		return baton.Lease{}, nil, errNotFound
	case missing, !after.Leads(id), after.lease != kept, after.raftTerm != alive.Header.RaftTerm:
		return baton.Lease{}, after, errConfirm
	}
	lease := after.Lease()
	// What was acknowledged before is a keep-alive too, of an earlier moment.
	granted := min(time.Duration(alive.TTL)*time.Second, lease.TTL)
	lease.Remaining = max(0, granted-(s.clock.Now()-sent))
	return lease, after, nil
}

// unextended is the answer about a lease that is being ended. Its holder counts
// on what it says is left, so that is confirmed as a keep-alive is, or 0: the
// holder keeps what it was promised before.
func (s *Store) unextended(ctx context.Context, st *state, id baton.LeaseID) (baton.Lease, error) {
	sent := s.clock.Now()
	left, err := s.left(ctx, st)
	if err != nil {
		return baton.Lease{}, err
	}
	after, err := s.load(ctx, id.Group, false)
	if err != nil {
		return baton.Lease{}, err
	}
	if !after.Leads(id) {
		return baton.Lease{}, s.notLeader(ctx, after, id)
	}
	lease := after.Lease()
	if st.raftTerm == left.raftTerm && left.raftTerm == after.raftTerm {
		lease.Remaining = max(0, left.remaining-(s.clock.Now()-sent))
	}
	return lease, nil
}
