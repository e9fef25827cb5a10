package consulstore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hashicorp/consul/api"

	"baton"
	"baton/internal/bound"
)

// state is a group at one moment. It is bound by the session that has locked the record.
type state struct {
	bound.State
	session string // empty if none has
	index   uint64 // at which the record was changed last; 0 if there is none

	termIndex, floorIndex uint64
	places                map[bound.Place]string // the sessions of those in line
	past                  []bound.Past           // oldest first
}

func (st *state) readRecord(pair *api.KVPair) (err error) {
	st.Record, st.session, st.index = bound.Record{}, pair.Session, pair.ModifyIndex
	st.Bound = st.session != ""
	if pair.ModifyIndex > 0 {
		if st.Record, err = bound.Read[bound.Record](entry(pair)); err != nil {
			return err
		}
	}
	if st.Bound && st.Record.Holder == nil {
		return fmt.Errorf("group %q: %w", st.Group, errTorn)
	}
	return nil
}

func readTerm(pair *api.KVPair) (baton.Term, error) {
	if pair.ModifyIndex == 0 {
		return 0, nil
	}
	return bound.ReadTerm(entry(pair))
}

func entry(pair *api.KVPair) bound.Entry {
	return bound.Entry{Key: pair.Key, Value: pair.Value, Version: pair.ModifyIndex}
}

func entries(pairs []*api.KVPair) []bound.Entry {
	all := make([]bound.Entry, len(pairs))
	for i, pair := range pairs {
		all[i] = entry(pair)
	}
	return all
}

// with says what is read besides the record.
type with struct{ line, past bool }

// read reads a group, all at one moment.
func (s *Store) read(ctx context.Context, group string, and with) (*state, error) {
	record, term, floor := s.keys.lease(group), s.keys.Term(group), s.keys.Floor()
	var trees []string
	if and.line {
		trees = append(trees, s.keys.Line(group))
	}
	if and.past {
		trees = append(trees, s.keys.Past(group))
	}
	f, err := s.readTogether(ctx, []string{record, term, floor}, trees...)
	if err != nil {
		return nil, err
	}
	st := &state{
		State:     bound.State{Group: group},
		termIndex: f.keys[term].ModifyIndex, floorIndex: f.keys[floor].ModifyIndex,
	}
	if err := st.readRecord(f.keys[record]); err != nil {
		return nil, err
	}
	if st.Counter, err = readTerm(f.keys[term]); err != nil {
		return nil, err
	}
	if st.Floor, err = readTerm(f.keys[floor]); err != nil {
		return nil, err
	}
	st.readLine(f.tree[s.keys.Line(group)])
	for _, pair := range f.tree[s.keys.Past(group)] {
		p, err := bound.Read[bound.Past](entry(pair))
		if err != nil {
			return nil, err
		}
		st.past = append(st.past, p)
	}
	slices.SortFunc(st.past, func(a, b bound.Past) int { return cmp.Compare(a.Term, b.Term) })
	return st, nil
}

// load reads a group, after writing down that its lease ran out if that is what
// is found. So the others see a leadership that stands, or one that has ended
// with a reason and a time.
func (s *Store) load(ctx context.Context, group string, and with) (*state, error) {
	for {
		st, err := s.read(ctx, group, and)
		if err != nil || !st.Lapsed() {
			return st, err
		}
		next := st.Expired()
		_, err = s.replace(ctx, st, next)
		if refused(err) { // who may only read is told the same
			st.Record, st.past = next, append(st.past, *next.Last)
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
func (s *Store) replace(ctx context.Context, st *state, next bound.Record) (done bool, err error) {
	value, err := json.Marshal(next)
	if err != nil {
		return false, err
	}
	key := s.keys.lease(st.Group)
	ops := api.TxnOps{swap(key, value, st.index)}
	if next.Ended != st.Record.Ended {
		line, err := json.Marshal(next.Last)
		if err != nil {
			return false, err
		}
		if st.session != "" {
			ops = api.TxnOps{unchanged(key, st.index), unlock(key, st.session, value)}
		}
		ops = append(ops, set(s.keys.Slot(st.Group, next), line))
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
	_, done, err := s.commit(ctx, unchanged(s.keys.lease(st.Group), st.index), kv(api.KVDelete, s.keys.nothing()))
	return done, err
}
