package consulstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/hashicorp/consul/api"

	"baton"
)

// state is a group at one moment.
type state struct {
	group   string
	record  record
	session string // that has locked the record; empty if none has
	index   uint64 // at which the record was changed last; 0 if there is none

	counter               baton.Term // 0 if the group was never led
	floor                 baton.Term
	termIndex, floorIndex uint64
	line                  []place
	past                  []past // oldest first
}

// held reports whether somebody leads. A leadership whose session is gone is over.
func (st *state) held() bool { return st.record.Holder != nil && st.session != "" }

// lapsed: the lease ran out, and nobody has written that down yet.
func (st *state) lapsed() bool { return st.record.Holder != nil && st.session == "" }

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

func (st *state) readRecord(pair *api.KVPair) error {
	st.record, st.session, st.index = record{}, pair.Session, pair.ModifyIndex
	if pair.ModifyIndex > 0 {
		if err := json.Unmarshal(pair.Value, &st.record); err != nil {
			return fmt.Errorf("read %s: %w", pair.Key, err)
		}
	}
	if st.session != "" && st.record.Holder == nil {
		return fmt.Errorf("group %q: %w", st.group, errTorn)
	}
	return nil
}

func readTerm(pair *api.KVPair) (baton.Term, error) {
	if pair.ModifyIndex == 0 {
		return 0, nil
	}
	n, err := strconv.ParseUint(string(pair.Value), 10, 64)
	if err != nil || n > uint64(baton.MaxTerm) {
		return 0, fmt.Errorf("read %s: %q is no term", pair.Key, pair.Value)
	}
	return baton.Term(n), nil
}

func formatTerm(t baton.Term) []byte { return strconv.AppendUint(nil, uint64(t), 10) }

// with says what is read besides the record.
type with struct{ line, past bool }

// read reads a group, all at one moment.
func (s *Store) read(ctx context.Context, group string, and with) (*state, error) {
	record, term, floor := s.keys.lease(group), s.keys.term(group), s.keys.floor()
	var trees []string
	if and.line {
		trees = append(trees, s.keys.line(group))
	}
	if and.past {
		trees = append(trees, s.keys.past(group))
	}
	f, err := s.readTogether(ctx, []string{record, term, floor}, trees...)
	if err != nil {
		return nil, err
	}
	st := &state{group: group, termIndex: f.keys[term].ModifyIndex, floorIndex: f.keys[floor].ModifyIndex}
	if err := st.readRecord(f.keys[record]); err != nil {
		return nil, err
	}
	if st.counter, err = readTerm(f.keys[term]); err != nil {
		return nil, err
	}
	if st.floor, err = readTerm(f.keys[floor]); err != nil {
		return nil, err
	}
	st.line = readLine(f.tree[s.keys.line(group)])
	for _, pair := range f.tree[s.keys.past(group)] {
		var p past
		if err := json.Unmarshal(pair.Value, &p); err != nil {
			return nil, fmt.Errorf("read %s: %w", pair.Key, err)
		}
		st.past = append(st.past, p)
	}
	slices.SortFunc(st.past, func(a, b past) int { return cmp.Compare(a.Term, b.Term) })
	return st, nil
}

// load reads a group, after writing down that its lease ran out if that is what
// is found. So the others see a leadership that stands, or one that has ended
// with a reason and a time.
func (s *Store) load(ctx context.Context, group string, and with) (*state, error) {
	for {
		st, err := s.read(ctx, group, and)
		if err != nil || !st.lapsed() {
			return st, err
		}
		next := st.record.over(baton.Expired, nil, stamp())
		_, err = s.replace(ctx, st, next)
		if refused(err) { // who may only read is told the same
			st.record, st.past = next, append(st.past, *next.Last)
			return st, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// replace writes a record over the one that was read, unless it or its lock has
// changed since. If the new one ends a leadership, that goes into the ring, and
// the record is unlocked.
func (s *Store) replace(ctx context.Context, st *state, next record) (done bool, err error) {
	value, err := json.Marshal(next)
	if err != nil {
		return false, err
	}
	key := s.keys.lease(st.group)
	ops := api.TxnOps{swap(key, value, st.index)}
	if next.Ended != st.record.Ended {
		line, err := json.Marshal(next.Last)
		if err != nil {
			return false, err
		}
		if st.session != "" {
			ops = api.TxnOps{unchanged(key, st.index), unlock(key, st.session, value)}
		}
		ops = append(ops, set(s.keys.slot(st.group, next.slot()), line))
	}
	_, done, err = s.commit(ctx, ops...)
	return done, err
}

// current reports whether the record is still the one that was read, by an entry
// of the log that changes nothing.
//
// A read alone is answered by a server that believes it leads. Consul makes sure of
// that by asking the others, and counts answers to what it asked before: so one
// that was frozen and replaced tells, when it wakes up, what was.
func (s *Store) current(ctx context.Context, st *state) (bool, error) {
	_, done, err := s.commit(ctx, unchanged(s.keys.lease(st.group), st.index), kv(api.KVDelete, s.keys.nothing()))
	return done, err
}
