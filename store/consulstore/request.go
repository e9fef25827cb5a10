package consulstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"baton"
	"baton/internal/storecall"
)

// An agent takes 200 connections from one address unless it is told otherwise,
// and a request that it holds open takes one. Waits beyond maxBlocking look
// every second.
const maxConnections, maxBlocking = 75, 50

// ask repeats what changes nothing until it is answered or ctx ends. Each
// attempt has a part of the time.
func ask[R any](ctx context.Context, s *Store, call func(context.Context) (R, error)) (R, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, s.timeout*2/5)
		r, err := call(attempt)
		cancel()
		if err == nil || refused(err) {
			return r, err
		}
		if storecall.Pause(ctx, storecall.RetryPause) != nil {
			return r, err
		}
	}
}

// found are keys of one transaction that only reads, by name.
type found struct {
	keys map[string]*api.KVPair
	tree map[string][]*api.KVPair
}

// readTogether reads keys and trees at one moment, after the server that
// answers has made sure that it leads.
func (s *Store) readTogether(ctx context.Context, keys []string, trees ...string) (found, error) {
	var ops api.TxnOps
	for _, key := range keys {
		ops = append(ops, kv(api.KVGetOrEmpty, key))
	}
	for _, tree := range trees {
		ops = append(ops, kv(api.KVGetTree, tree))
	}
	return ask(ctx, s, func(ctx context.Context) (found, error) {
		ok, resp, _, err := s.consul.Txn().Txn(ops, (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx))
		if err != nil {
			return found{}, err
		}
		if !ok {
			return found{}, conflict(resp.Errors)
		}
		f := found{keys: map[string]*api.KVPair{}, tree: map[string][]*api.KVPair{}}
		for _, r := range resp.Results {
			f.keys[r.KV.Key] = r.KV
			for _, tree := range trees {
				if strings.HasPrefix(r.KV.Key, tree) {
					f.tree[tree] = append(f.tree[tree], r.KV)
				}
			}
		}
		for _, key := range keys {
			// What may not be read is left out without a word. It must not look as if it were not there.
			if f.keys[key] == nil {
				return found{}, &refusalError{kind: baton.ErrNotAllowed, text: fmt.Sprintf("%s: %v", key, errHidden)}
			}
		}
		return f, nil
	})
}

func kv(verb api.KVOp, key string) *api.TxnOp {
	return &api.TxnOp{KV: &api.KVTxnOp{Verb: verb, Key: key}}
}

func set(key string, value []byte) *api.TxnOp {
	return &api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVSet, Key: key, Value: value}}
}

// swap replaces a key that was last changed at index; 0 means that there is none.
func swap(key string, value []byte, index uint64) *api.TxnOp {
	return &api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVCAS, Key: key, Value: value, Index: index}}
}

func lock(key, session string, value []byte) *api.TxnOp {
	return &api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVLock, Key: key, Session: session, Value: value}}
}

func unlock(key, session string, value []byte) *api.TxnOp {
	return &api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVUnlock, Key: key, Session: session, Value: value}}
}

// unchanged is the condition that a key was last changed at index. A lock that
// is taken or lost is a change.
func unchanged(key string, index uint64) *api.TxnOp {
	if index == 0 {
		return kv(api.KVCheckNotExists, key)
	}
	return &api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVCheckIndex, Key: key, Index: index}}
}

// remove deletes a key that was last changed at index.
func remove(key string, index uint64) *api.TxnOp {
	if index == 0 {
		return kv(api.KVCheckNotExists, key)
	}
	return &api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVDeleteCAS, Key: key, Index: index}}
}

// commit sends a transaction once, which goes through Consul's log. Whether one
// that failed took effect is not known; one that is not done has changed nothing.
func (s *Store) commit(ctx context.Context, ops ...*api.TxnOp) (results api.TxnResults, done bool, err error) {
	attempt, cancel := context.WithTimeout(ctx, s.timeout/2)
	defer cancel()
	ok, resp, _, err := s.consul.Txn().Txn(ops, (&api.QueryOptions{}).WithContext(attempt))
	if err != nil {
		return nil, false, err
	}
	if ok {
		return resp.Results, true, nil
	}
	if err := conflict(resp.Errors); refused(err) {
		return nil, false, err
	}
	return nil, false, nil
}

// conflict is why a transaction was not done. Consul says that only in words.
func conflict(errs api.TxnErrors) error {
	var all []string
	for _, e := range errs {
		if strings.HasPrefix(e.What, "Permission denied") {
			return &refusalError{kind: baton.ErrNotAllowed, text: e.What}
		}
		all = append(all, e.What)
	}
	return fmt.Errorf("transaction not done: %s", strings.Join(all, "; "))
}

// behaviour is what a session does to the keys that it has locked when it ends.
type behaviour string

const (
	release behaviour = api.SessionBehaviorRelease
	remover behaviour = api.SessionBehaviorDelete
)

// lockDelay is the shortest that Consul knows. It would keep a key closed for
// some time after its session ended; our holders have stopped by then.
const lockDelay = time.Millisecond

// newSession makes a session that depends on nothing but its TTL. One whose
// answer was lost runs out by itself.
func (s *Store) newSession(ctx context.Context, name string, seconds int64, then behaviour) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout/2)
	defer cancel()
	options := (&api.WriteOptions{}).WithContext(ctx)
	session := &api.SessionEntry{
		Name: name, Node: s.node, TTL: fmt.Sprintf("%ds", seconds), Behavior: string(then), LockDelay: lockDelay,
	}
	id, _, err := s.consul.Session().CreateNoChecks(session, options)
	var failed api.StatusError
	if !errors.As(err, &failed) {
		return id, err
	}
	// Most likely the node that sessions belong to is missing, as it is at first.
	_, err = s.consul.Catalog().Register(&api.CatalogRegistration{
		Node: s.node, Address: "192.0.2.1", // an address that no machine has
	}, options)
	if err != nil {
		return "", fmt.Errorf("register the node %q, after %w: %w", s.node, failed, err)
	}
	id, _, err = s.consul.Session().CreateNoChecks(session, options)
	return id, err
}

// destroy gives sessions back that nothing depends on. Those that are not
// destroyed run out by themselves.
func (s *Store) destroy(sessions ...string) {
	for _, session := range sessions {
		if session == "" {
			continue
		}
		s.calls.Chore(func(ctx context.Context) {
			_, _ = s.consul.Session().Destroy(session, (&api.WriteOptions{}).WithContext(ctx))
		})
	}
}

// block returns what a key holds and its index when it has changed since index,
// or when wait has passed, roughly.
func (s *Store) block(ctx context.Context, key string, index uint64, wait time.Duration) (*api.KVPair, uint64, error) {
	options := &api.QueryOptions{RequireConsistent: true}
	select {
	case s.blocking <- struct{}{}:
		defer func() { <-s.blocking }()
		options.WaitIndex, options.WaitTime = index, wait
	default:
		const lookEvery = time.Second
		if err := storecall.Pause(ctx, min(wait, lookEvery)); err != nil {
			return nil, 0, err
		}
		wait = 0
	}
	// Consul adds up to a sixteenth, lest all come back at once.
	ctx, cancel := context.WithTimeoutCause(ctx, wait+wait/16+s.timeout/2, errTimeout)
	defer cancel()
	pair, meta, err := s.consul.KV().Get(key, options.WithContext(ctx))
	if err != nil {
		return nil, 0, err
	}
	return pair, meta.LastIndex, nil
}
