package fence

import (
	"context"
	"slices"
	"sync"
)

// queueLock is held by many or by one, in the order of arrival: whoever waits
// to be alone is not overtaken by a crowd. Waiting ends with the context.
type queueLock struct {
	mu      sync.Mutex
	shared  int
	alone   bool
	waiting []*waiter
}

type waiter struct {
	alone bool
	ready chan struct{}
}

func (q *queueLock) lock(ctx context.Context, alone bool) error {
	q.mu.Lock()
	if len(q.waiting) == 0 && q.free(alone) {
		q.take(alone)
		q.mu.Unlock()
		return nil
	}
	w := &waiter{alone: alone, ready: make(chan struct{})}
	q.waiting = append(q.waiting, w)
	q.mu.Unlock()

	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	i := slices.Index(q.waiting, w)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.admit() // those behind may have waited for w alone
	}
	q.mu.Unlock()
	if i < 0 {
		q.unlock(alone) // it was given to us at the last moment
	}
	return context.Cause(ctx)
}

func (q *queueLock) unlock(alone bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if alone {
		q.alone = false
	} else {
		q.shared--
	}
	q.admit()
}

func (q *queueLock) free(alone bool) bool { return !q.alone && (!alone || q.shared == 0) }

func (q *queueLock) take(alone bool) {
	if alone {
		q.alone = true
	} else {
		q.shared++
	}
}

func (q *queueLock) admit() {
	for len(q.waiting) > 0 && q.free(q.waiting[0].alone) {
		w := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.take(w.alone)
		close(w.ready)
	}
}
