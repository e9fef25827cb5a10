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
	"baton/internal/bound"
)

// state is a group at one revision of etcd. It is bound by a key, on an etcd lease, that has its term.
type state struct {
	bound.State
	recordRev int64 // when the record was changed last; 0 if there is none
	lease     clientv3.LeaseID
	boundTerm baton.Term // of the bound key; 0 if there is none
	boundRev  int64
	termRev   int64
	floorRev  int64

	revision int64
	raftTerm uint64
	cluster  uint64
}

// check finds what no transaction of ours leaves behind.
func (st *state) check() error {
	if st.Bound && (st.Record.Holder == nil || st.Record.Holder.Term != st.boundTerm) {
		return fmt.Errorf("group %q: %w", st.Group, errTorn)
	}
	return nil
}

func (st *state) readRecord(kv *mvccpb.KeyValue) (err error) {
	if st.Record, err = bound.Read[bound.Record](entry(kv)); err != nil {
		return err
	}
	st.recordRev, st.lease = kv.ModRevision, 0
	if h := st.Record.Holder; h != nil && h.Lease != "" {
		if st.lease, err = parseLease(h.Lease); err != nil {
			return fmt.Errorf("read %s: %w", kv.Key, err)
		}
	}
	return nil
}

func (st *state) readBound(kv *mvccpb.KeyValue) (err error) {
	st.boundTerm, err = bound.ReadTerm(entry(kv))
	st.Bound, st.boundRev = st.boundTerm != 0, kv.ModRevision
	return err
}

func entry(kv *mvccpb.KeyValue) bound.Entry {
	return bound.Entry{Key: string(kv.Key), Value: kv.Value, Version: uint64(kv.ModRevision)}
}

func entries(kvs []*mvccpb.KeyValue) []bound.Entry {
	all := make([]bound.Entry, len(kvs))
	for i, kv := range kvs {
		all[i] = entry(kv)
	}
	return all
}

// formatLease writes the id of an etcd lease as etcdctl does.
func formatLease(id clientv3.LeaseID) string { return fmt.Sprintf("%016x", int64(id)) }

func parseLease(text string) (clientv3.LeaseID, error) {
	n, err := strconv.ParseInt(text, 16, 64)
	return clientv3.LeaseID(n), err
}

// read reads a group, linearizably and all at one revision.
func (s *Store) read(ctx context.Context, group string, withLine bool) (*state, error) {
	ops := []clientv3.Op{
		clientv3.OpGet(s.keys.record(group)), clientv3.OpGet(s.keys.bound(group)),
		clientv3.OpGet(s.keys.Term(group)), clientv3.OpGet(s.keys.Floor()),
	}
	if withLine {
		ops = append(ops, clientv3.OpGet(s.keys.Line(group), clientv3.WithPrefix(), clientv3.WithKeysOnly(),
			clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)))
	}
	resp, err := s.readTogether(ctx, ops...)
	if err != nil {
		return nil, err
	}
	st := &state{
		State:    bound.State{Group: group},
		revision: resp.Header.Revision, raftTerm: resp.Header.RaftTerm, cluster: resp.Header.ClusterId,
	}
	take := []func(*mvccpb.KeyValue) error{
		st.readRecord,
		st.readBound,
		func(kv *mvccpb.KeyValue) (err error) {
			st.Counter, err = bound.ReadTerm(entry(kv))
			st.termRev = kv.ModRevision
			return err
		},
		func(kv *mvccpb.KeyValue) (err error) {
			st.Floor, err = bound.ReadTerm(entry(kv))
			st.floorRev = kv.ModRevision
			return err
		},
		func(kv *mvccpb.KeyValue) error {
			st.Line = append(st.Line, bound.ReadPlace(string(kv.Key)))
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
		if err != nil || !st.Lapsed() {
			return st, err
		}
		next := st.Expired()
		done, rev, err := s.replace(ctx, st, next, clientv3.Compare(clientv3.CreateRevision(s.keys.bound(group)), "=", 0))
		if errors.Is(err, rpctypes.ErrPermissionDenied) {
			done, rev, err = true, st.recordRev, nil // who may only read is told the same
		}
		if err != nil {
			return nil, err
		}
		if done {
			st.Record, st.recordRev, st.lease = next, rev, 0
			return st, nil
		}
	}
}

// replace writes a record over the one that was read, unless it has changed
// since or the condition does not hold. If the new one ends a leadership, that
// goes into the ring, and the bound key goes away.
func (s *Store) replace(ctx context.Context, st *state, next bound.Record, condition clientv3.Cmp, more ...clientv3.Op) (done bool, rev int64, err error) {
	ends := next.Ended != st.Record.Ended
	if ends {
		next.Last.Metadata = nil // events are told from etcd's own past
	}
	value, err := json.Marshal(next)
	if err != nil {
		return false, 0, err
	}
	changes := append([]clientv3.Op{clientv3.OpPut(s.keys.record(st.Group), string(value))}, more...)
	if ends {
		line, err := json.Marshal(next.Last)
		if err != nil {
			return false, 0, err
		}
		changes = append(changes,
			clientv3.OpPut(s.keys.Slot(st.Group, next), string(line)),
			clientv3.OpDelete(s.keys.bound(st.Group)))
	}
	resp, err := s.commit(ctx, []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(s.keys.record(st.Group)), "=", st.recordRev), condition,
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
