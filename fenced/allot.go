package fenced

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"baton"
	"baton/fence"
	"baton/fenced/fencedclient"
)

// allotter gives out numbers to callers that leave the choice to it, by group
// commit: while one transaction is under way those that come wait together, and
// the first of them to get its turn commits for all.
type allotter struct {
	// within bounds a commit, which outlives the request of whoever makes it:
	// it is made for others, too.
	within time.Duration

	mu     sync.Mutex
	queues map[string]*queue
}

// queue is of one resource, and there only while someone waits or commits.
type queue struct {
	users   int // guarded by allotter.mu
	turn    chan struct{}
	waiting []*order // guarded by allotter.mu
	last    int64    // where the numbers stood last, as a guess; guarded by turn
}

type order struct {
	token baton.Token
	count int64
	done  chan struct{} // closed when the rest is set
	got   fencedclient.Numbers
	fell  bool
	err   error
}

func (a *allotter) numbers(ctx context.Context, s *Store, resource string, t baton.Token, count int64) (fencedclient.Numbers, Accepted, error) {
	if _, err := (fence.Record{}).Adopt(resource, t); err != nil { // validates
		return fencedclient.Numbers{}, Accepted{}, err
	}
	o := &order{token: t, count: count, done: make(chan struct{})}
	q := a.enter(resource, o)
	defer a.leave(resource, q, o)
	select {
	case <-o.done:
	case <-ctx.Done():
		return fencedclient.Numbers{}, Accepted{}, context.Cause(ctx)
	case q.turn <- struct{}{}:
		a.commit(context.WithoutCancel(ctx), s, resource, q)
		<-q.turn
		<-o.done
	}
	return o.got, Accepted{Fell: o.fell}, o.err
}

func (a *allotter) enter(resource string, o *order) *queue {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.queues == nil {
		a.queues = make(map[string]*queue)
	}
	q := a.queues[resource]
	if q == nil {
		q = &queue{turn: make(chan struct{}, 1)}
		a.queues[resource] = q
	}
	q.users++
	q.waiting = append(q.waiting, o)
	return q
}

func (a *allotter) leave(resource string, q *queue, o *order) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(q.waiting, o); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
	if q.users--; q.users == 0 {
		delete(a.queues, resource)
	}
}

// commit serves all that wait, one transaction per leadership.
func (a *allotter) commit(ctx context.Context, s *Store, resource string, q *queue) {
	a.mu.Lock()
	waiting := q.waiting
	q.waiting = nil
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, a.within)
	defer cancel()
	for len(waiting) > 0 {
		t, total := waiting[0].token, int64(0)
		n := 0
		for n < len(waiting) && waiting[n].token == t {
			total += waiting[n].count
			n++
		}
		last, accepted, err := q.take(ctx, s, resource, t, total)
		first := last - total + 1
		for _, o := range waiting[:n] {
			o.got, o.fell, o.err = fencedclient.Numbers{First: first, Last: first + o.count - 1}, accepted.Fell, err
			first += o.count
			close(o.done)
		}
		waiting = waiting[n:]
	}
}

// take gives out the next numbers. Its guess of where they stand is corrected
// for as long as others, such as a replica of this process, get ahead of it.
func (q *queue) take(ctx context.Context, s *Store, resource string, t baton.Token, total int64) (last int64, accepted Accepted, err error) {
	if q.last == 0 {
		r, err := s.ledger.Read(ctx, resource)
		if err != nil {
			return 0, Accepted{}, err
		}
		q.last = r.LastSeq
	}
	for ctx.Err() == nil {
		if q.last > fence.MaxSeq-total {
			return 0, Accepted{}, &baton.InvalidArgumentError{Field: "count", Value: total, Want: fmt.Sprintf("numbers up to %d", fence.MaxSeq)}
		}
		last = q.last + total
		accepted, err = s.take(ctx, resource, fence.Ordered(t, last), total)
		var repeat *fence.RepeatError
		switch {
		case err == nil:
			q.last = last
			return last, accepted, nil
		case errors.As(err, &repeat):
			q.last = repeat.Held.LastSeq // somebody chose numbers of their own
		default:
			q.last = 0
			return 0, Accepted{}, err
		}
	}
	return 0, Accepted{}, &baton.UnavailableError{Op: "give out numbers", Err: errors.Join(context.Cause(ctx), err)}
}
