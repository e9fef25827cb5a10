package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"baton"
)

// state is a group at one revision of etcd.
type state struct {
	group     string
	record    record
	recordRev int64 // when the record was changed last; 0 if there is none
	// bound is the term of the bound key; 0 if there is none.
	bound    baton.Term
	boundRev int64
	counter  baton.Term // 0 if the group was never led
	termRev  int64
	floor    baton.Term
	floorRev int64
	line     []place

	revision int64
	raftTerm uint64
	cluster  uint64
}

// held reports whether somebody leads. A leadership whose bound key is gone is over.
func (st *state) held() bool { return st.record.Holder != nil && st.bound != 0 }

// lapsed: the lease ran out, and nobody has written that down yet.
func (st *state) lapsed() bool { return st.record.Holder != nil && st.bound == 0 }

func (st *state) heldBy(c baton.Candidate) bool {
	return st.held() && st.record.Holder.is(c.NodeID, c.InstanceID)
}

// leads reports whether exactly this leadership stands.
func (st *state) leads(id baton.LeaseID) bool {
	return st.held() && st.record.Holder.Term == id.Term && st.record.Holder.is(id.NodeID, id.InstanceID)
}

// last is the last term; of a group that was never led the floor.
func (st *state) last() baton.Term {
	last := st.counter
	if h := st.record.Holder; h != nil {
		last = max(last, h.Term)
	}
	if p := st.record.Last; p != nil {
		last = max(last, p.Term)
	}
	if last == 0 {
		return st.floor
	}
	return last
}

// lease is the state as a lease, without what is left of it.
func (st *state) lease() baton.Lease {
	if st.held() {
		return st.record.Holder.lease(st.group)
	}
	return baton.Lease{Group: st.group, Term: st.last()}
}

// endedLast reports whether the leadership of this campaign ended last.
func (st *state) endedLast(c baton.Candidate) bool {
	p := st.record.Last
	return p != nil && p.Node == c.NodeID && p.Instance == c.InstanceID
}

// check finds what no transaction of ours leaves behind.
func (st *state) check() error {
	if st.bound != 0 && (st.record.Holder == nil || st.record.Holder.Term != st.bound) {
		return fmt.Errorf("group %q: %w", st.group, errTorn)
	}
	return nil
}

func (st *state) readRecord(kv *mvccpb.KeyValue) error {
	st.record, st.recordRev = record{}, kv.ModRevision
	if err := json.Unmarshal(kv.Value, &st.record); err != nil {
		return fmt.Errorf("read %s: %w", kv.Key, err)
	}
	return nil
}

func (st *state) readBound(kv *mvccpb.KeyValue) (err error) {
	st.bound, err = parseTerm(kv)
	st.boundRev = kv.ModRevision
	return err
}

func parseTerm(kv *mvccpb.KeyValue) (baton.Term, error) {
	n, err := strconv.ParseUint(string(kv.Value), 10, 64)
	if err != nil || n > uint64(baton.MaxTerm) {
		return 0, fmt.Errorf("read %s: %q is no term", kv.Key, kv.Value)
	}
	return baton.Term(n), nil
}

func formatTerm(t baton.Term) string { return strconv.FormatUint(uint64(t), 10) }

// read reads a group, linearizably and all at one revision.
func (s *Store) read(ctx context.Context, group string, withLine bool) (*state, error) {
	ops := []clientv3.Op{
		clientv3.OpGet(s.keys.record(group)), clientv3.OpGet(s.keys.bound(group)),
		clientv3.OpGet(s.keys.term(group)), clientv3.OpGet(s.keys.floor()),
	}
	if withLine {
		ops = append(ops, clientv3.OpGet(s.keys.line(group), clientv3.WithPrefix(), clientv3.WithKeysOnly(),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)))
	}
	resp, err := s.readTogether(ctx, ops...)
	if err != nil {
		return nil, err
	}
	st := &state{group: group, revision: resp.Header.Revision, raftTerm: resp.Header.RaftTerm, cluster: resp.Header.ClusterId}
	take := []func(*mvccpb.KeyValue) error{
		st.readRecord,
		st.readBound,
		func(kv *mvccpb.KeyValue) (err error) {
			st.counter, err = parseTerm(kv)
			st.termRev = kv.ModRevision
			return err
		},
		func(kv *mvccpb.KeyValue) (err error) {
			st.floor, err = parseTerm(kv)
			st.floorRev = kv.ModRevision
			return err
		},
		func(kv *mvccpb.KeyValue) error {
			st.line = append(st.line, placeOf(string(kv.Key)))
			return nil
		},
	}
	for i, r := range resp.Responses {
		for _, kv := range r.GetResponseRange().Kvs {
			if err := take[i](kv); err != nil {
				return nil, err
			}
		}
	}
	return st, st.check()
}

// load reads a group, after writing down that its lease ran out if that is what
// is found. So the others see a leadership that stands, or one that has ended
// with a reason and a time.
func (s *Store) load(ctx context.Context, group string, withLine bool) (*state, error) {
	for {
		st, err := s.read(ctx, group, withLine)
		if err != nil || !st.lapsed() {
			return st, err
		}
		next := st.record.over(baton.Expired, nil, stamp())
		done, rev, err := s.replace(ctx, st, next, clientv3.Compare(clientv3.CreateRevision(s.keys.bound(group)), "=", 0))
		if errors.Is(err, rpctypes.ErrPermissionDenied) {
			done, rev, err = true, st.recordRev, nil // who may only read is told the same
		}
		if err != nil {
			return nil, err
		}
		if done {
			st.record, st.recordRev = next, rev
			return st, nil
		}
	}
}

// replace writes a record over the one that was read, unless it has changed
// since or the condition does not hold. If the new one ends a leadership, that
// goes into the ring, and the bound key goes away.
func (s *Store) replace(ctx context.Context, st *state, next record, condition clientv3.Cmp, more ...clientv3.Op) (done bool, rev int64, err error) {
	value, err := json.Marshal(next)
	if err != nil {
		return false, 0, err
	}
	changes := append([]clientv3.Op{clientv3.OpPut(s.keys.record(st.group), string(value))}, more...)
	if next.Ended != st.record.Ended {
		line, err := json.Marshal(next.Last)
		if err != nil {
			return false, 0, err
		}
		changes = append(changes,
			clientv3.OpPut(s.keys.slot(st.group, next.slot()), string(line)),
			clientv3.OpDelete(s.keys.bound(st.group)))
	}
	resp, err := s.commit(ctx, []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(s.keys.record(st.group)), "=", st.recordRev), condition,
	}, changes)
	if err != nil {
		return false, 0, err
	}
	return resp.Succeeded, resp.Header.Revision, nil
}

// stands is the condition that the lease has not run out.
func (s *Store) stands(group string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(s.keys.bound(group)), ">", 0)
}
