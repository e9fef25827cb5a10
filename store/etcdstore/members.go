package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"baton/internal/storecall"
)

// members is a connection to each member that was needed so far, and which of
// them is used. etcd's own client takes members in turn, and so keeps coming
// back to one that hangs: a renewal, which is three requests, rarely gets by. Here
// all requests go to one member until it fails one of them.
type members struct {
	connect func(endpoint string) (*clientv3.Client, error)

	mu        sync.Mutex
	endpoints []string
	clients   []*clientv3.Client // nil where not connected yet
	at        int
}

// connectTo begins at a random member, so that stores spread over them.
func connectTo(endpoints []string, connect func(string) (*clientv3.Client, error)) (*members, error) {
	m := &members{connect: connect, endpoints: endpoints, clients: make([]*clientv3.Client, len(endpoints)), at: rand.IntN(len(endpoints))}
	for range endpoints {
		_, at, err := m.current()
		if err == nil {
			return m, nil
		}
		if refused(err) {
			return nil, err
		}
		m.leave(at)
	}
	_, _, err := m.current()
	return m, err
}

// given uses a client that somebody else made, with all its endpoints.
func given(c *clientv3.Client) *members {
	return &members{clients: []*clientv3.Client{c}}
}

// current is the client to use now, and its number.
func (m *members) current() (c *clientv3.Client, at int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.clients[m.at] == nil {
		if m.clients[m.at], err = m.connect(m.endpoints[m.at]); err != nil {
			m.clients[m.at] = nil
			return nil, m.at, fmt.Errorf("connect to %s: %w", m.endpoints[m.at], err)
		}
	}
	return m.clients[m.at], m.at, nil
}

// leave lets the next member be used, if at still is the one.
func (m *members) leave(at int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == at {
		m.at = (at + 1) % len(m.clients)
	}
}

// uses reports whether at is the one to use.
func (m *members) uses(at int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at == at
}

func (m *members) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, c := range m.clients {
		if c == nil {
			continue
		}
		if err := c.Close(); err != nil && !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// once makes one request of the present member. If that does not answer, the
// next request goes to another.
func once[R any](ctx context.Context, s *Store, limit time.Duration, call func(context.Context, *clientv3.Client) (R, error)) (R, error) {
	c, at, err := s.members.current()
	if err != nil {
		s.members.leave(at)
		var none R
		return none, err
	}
	attempt, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	sent := time.Now()
	r, err := call(attempt, c)
	// A caller in a hurry is no sign of a member that hangs. One that waited and
	// then gave up is, whether its context was cancelled or ran out.
	const hurry = 200 * time.Millisecond
	if err != nil && !refused(err) && (ctx.Err() == nil || time.Since(sent) > hurry) {
		s.members.leave(at)
	}
	return r, err
}

// ask repeats what changes nothing, or nothing more the second time, until it
// is answered or ctx ends. Each attempt has a part of the time.
func ask[R any](ctx context.Context, s *Store, call func(context.Context, *clientv3.Client) (R, error)) (R, error) {
	for {
		r, err := once(ctx, s, s.timeout/5, call)
		if err == nil || refused(err) {
			return r, err
		}
		if storecall.Pause(ctx, storecall.RetryPause) != nil {
			return r, err
		}
	}
}

// commit sends a transaction once. Whether one that failed took effect is not known.
func (s *Store) commit(ctx context.Context, conditions []clientv3.Cmp, changes []clientv3.Op) (*clientv3.TxnResponse, error) {
	return once(ctx, s, s.timeout/2, func(ctx context.Context, c *clientv3.Client) (*clientv3.TxnResponse, error) {
		return c.Txn(ctx).If(conditions...).Then(changes...).Commit()
	})
}

// readTogether reads several keys or ranges at one revision, linearizably.
func (s *Store) readTogether(ctx context.Context, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return ask(ctx, s, func(ctx context.Context, c *clientv3.Client) (*clientv3.TxnResponse, error) {
		return c.Txn(ctx).Then(ops...).Commit()
	})
}

// newLease asks etcd for a lease. One whose answer was lost runs out by itself.
func (s *Store) newLease(ctx context.Context, seconds int64) (*clientv3.LeaseGrantResponse, error) {
	return once(ctx, s, s.timeout/2, func(ctx context.Context, c *clientv3.Client) (*clientv3.LeaseGrantResponse, error) {
		return c.Grant(ctx, seconds)
	})
}

// revoke gives an etcd lease back that nothing depends on. If that fails it
// runs out by itself.
func (s *Store) revoke(id clientv3.LeaseID) {
	s.calls.Chore(func(ctx context.Context) {
		_, _ = once(ctx, s, s.timeout, func(ctx context.Context, c *clientv3.Client) (*clientv3.LeaseRevokeResponse, error) {
			return c.Revoke(ctx, id)
		})
	})
}

// stream is a watch of etcd that can be left at any moment: the client's own
// call to begin one blocks for as long as the member does not answer. It ends
// with an error when that member is without a leader.
type stream struct {
	C    <-chan clientv3.WatchResponse
	stop func()
	at   int
}

func (s *Store) stream(ctx context.Context, key string, opts ...clientv3.OpOption) *stream {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	out := make(chan clientv3.WatchResponse)
	done := make(chan struct{})
	c, at, err := s.members.current()
	go func() {
		defer close(done)
		defer close(out)
		if err != nil {
			return
		}
		for resp := range c.Watch(ctx, key, opts...) {
			select {
			case out <- resp:
			case <-ctx.Done():
				return
			}
		}
	}()
	return &stream{C: out, stop: func() { cancel(); <-done }, at: at}
}
