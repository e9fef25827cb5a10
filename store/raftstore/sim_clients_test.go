package raftstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"baton"
	"baton/internal/raftnode/raftsim"
)

const simGroups = 3

func groupName(i int) string { return fmt.Sprintf("g%d", i) }

// simLink is the cluster as a client sees it: each request goes to any server,
// and it or its answer takes its time.
type simLink struct {
	c   *simCluster
	rng *rand.Rand
}

var errNoAnswer = errors.New("no answer")

func through[T any](ctx context.Context, l *simLink, ask func(ctx context.Context, s *Store) (T, error)) (none T, err error) {
	p := l.c.nodes[l.rng.IntN(len(l.c.nodes))].process()
	if p == nil {
		_ = raftsim.Sleep(ctx, 10*time.Millisecond)
		return none, unavailable("ask", raftsim.ErrRefused)
	}
	type answer struct {
		value T
		err   error
	}
	answered := make(chan answer, 1)
	there, back := l.c.net.Delay(), l.c.net.Delay()
	go func() {
		time.Sleep(there)
		p.Gate.Pass()
		value, err := ask(ctx, p.store)
		p.Gate.Pass()
		if p.Dead.Err() == nil {
			time.Sleep(back)
			answered <- answer{value, err}
		}
	}()
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		return none, unavailable("ask", errNoAnswer)
	}
}

func (l *simLink) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	return through(ctx, l, func(ctx context.Context, s *Store) (baton.Lease, error) { return s.Acquire(ctx, group, c, ttl) })
}

func (l *simLink) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	return through(ctx, l, func(ctx context.Context, s *Store) (baton.Lease, error) { return s.Renew(ctx, id, extend) })
}

func (l *simLink) Release(ctx context.Context, id baton.LeaseID) error {
	_, err := through(ctx, l, func(ctx context.Context, s *Store) (struct{}, error) { return struct{}{}, s.Release(ctx, id) })
	return err
}

func (l *simLink) Get(ctx context.Context, group string) (baton.Lease, error) {
	return through(ctx, l, func(ctx context.Context, s *Store) (baton.Lease, error) { return s.Get(ctx, group) })
}

func (l *simLink) End(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	_, err := through(ctx, l, func(ctx context.Context, s *Store) (struct{}, error) {
		return struct{}{}, s.End(ctx, group, term, e)
	})
	return err
}

func (l *simLink) Await(ctx context.Context, group string, c baton.Candidate) error {
	_, err := through(ctx, l, func(ctx context.Context, s *Store) (struct{}, error) {
		return struct{}{}, s.Await(ctx, group, c)
	})
	return err
}

func (l *simLink) Watch(context.Context, string, baton.Cursor) iter.Seq2[baton.Event, error] {
	return nil
}
func (l *simLink) Guarantees() baton.Guarantees { return guarantees }
func (l *simLink) Close() error                 { return nil }

// simClient campaigns and leads, one group after the other.
type simClient struct {
	c     *simCluster
	name  string
	rng   *rand.Rand
	store baton.Store
	line  baton.Line
	ender baton.Ender
	count int
}

func newSimClient(c *simCluster, name string, rng *rand.Rand) *simClient {
	link := &simLink{c, rng}
	store := c.log.Record(name, link)
	return &simClient{c: c, name: name, rng: rng, store: store, line: link, ender: store.(baton.Ender)}
}

func (n *simClient) between(least, most time.Duration) time.Duration {
	return least + time.Duration(n.rng.Int64N(int64(most-least)))
}

func (n *simClient) live(ctx context.Context) {
	for ctx.Err() == nil {
		group := groupName(n.rng.IntN(simGroups))
		n.count++
		me := baton.Candidate{NodeID: n.name, InstanceID: fmt.Sprintf("%s-%d", n.name, n.count)}
		if n.rng.IntN(2) == 0 {
			wait, cancel := context.WithTimeout(ctx, n.between(100*time.Millisecond, 2*time.Second))
			_ = n.line.Await(wait, group, me)
			cancel()
		}
		ttl := n.between(100*time.Millisecond, 1200*time.Millisecond)
		for range 3 {
			lease, until, err := n.lease(ctx, func(ctx context.Context) (baton.Lease, error) {
				return n.store.Acquire(ctx, group, me, ttl)
			})
			if err == nil {
				n.lead(ctx, lease, until)
				break
			}
			if baton.IsAnswer(err) {
				break
			}
		}
		_ = raftsim.Sleep(ctx, n.between(0, 200*time.Millisecond))
	}
}

// lease asks for one, and believes what it is told.
func (n *simClient) lease(ctx context.Context, ask func(ctx context.Context) (baton.Lease, error)) (baton.Lease, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, n.between(100*time.Millisecond, 1500*time.Millisecond))
	defer cancel()
	sent := time.Now()
	lease, err := ask(ctx)
	if err != nil {
		return lease, time.Time{}, err
	}
	until := n.c.trust(sent, time.Now(), lease.Remaining)
	n.c.check.believe(n.name, lease, until)
	return lease, until, nil
}

func (n *simClient) lead(ctx context.Context, lease baton.Lease, until time.Time) {
	id := lease.ID()
	for ctx.Err() == nil && time.Now().Before(until) {
		left := time.Until(until)
		pause := n.between(0, left/2+1)
		if n.rng.IntN(4) == 0 {
			// As late as can be: that is where expiry and renewal meet.
			pause = left - n.between(0, 20*time.Millisecond)
		}
		_ = raftsim.Sleep(ctx, pause)
		switch dice := n.rng.IntN(100); {
		case dice < 70:
			extend := lease.TTL
			switch n.rng.IntN(6) {
			case 0:
				extend = lease.TTL/2 + 1
			case 1:
				extend = min(2*lease.TTL, 4*time.Second)
			}
			renewed, trusted, err := n.lease(ctx, func(ctx context.Context) (baton.Lease, error) { return n.store.Renew(ctx, id, extend) })
			switch {
			case err == nil:
				if extend > lease.TTL && n.rng.IntN(4) == 0 {
					if leader := n.c.leader(); leader != nil {
						n.c.crashFor(leader, 800*time.Millisecond)
					}
				}
				lease = renewed
				if trusted.After(until) {
					until = trusted
				}
				if lease.Ending != nil {
					n.release(ctx, id)
					return
				}
			case baton.IsAnswer(err):
				n.c.check.disbelieve(id)
				return
			}
		case dice < 78:
			n.release(ctx, id)
			return
		case dice < 82:
			return // it died: what it believes, it believes to the end
		case dice < 86:
			n.end(ctx, id, baton.Ending{Reason: baton.SteppedDown, Immediate: dice == 82})
		default:
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			_, _ = n.store.Get(ctx, id.Group)
			cancel()
		}
	}
}

func (n *simClient) release(ctx context.Context, id baton.LeaseID) {
	n.c.check.disbelieve(id)
	n.c.check.askedFor(id.Group, id.Term)
	for range 2 {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		err := n.store.Release(ctx, id)
		cancel()
		if err == nil || baton.IsAnswer(err) {
			return
		}
	}
}

func (n *simClient) end(ctx context.Context, id baton.LeaseID, e baton.Ending) {
	if e.Immediate {
		n.c.check.askedFor(id.Group, id.Term)
		n.c.check.disbelieve(id)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = n.ender.End(ctx, id.Group, id.Term, e)
}
