package raftstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"baton"
	"baton/internal/leasefsm"
)

const (
	// maxBatch bounds the commands in one entry, maxAhead the entries that are
	// under way: while one is being written, the next is ready, and the rest collects in the one after.
	maxBatch = 512
	maxAhead = 3
	// maxQueued bounds what waits for an entry. Whoever proposed most of it has given up by then.
	maxQueued = 64 << 10
)

// proposal is one command on its way into the log.
type proposal struct {
	command leasefsm.Command
	settle  func(error)          // if not nil, is told first, whether or not anybody waits
	done    chan leasefsm.Result // receives once
}

func (p proposal) land(result leasefsm.Result) {
	if p.settle != nil {
		p.settle(result.Err)
	}
	p.done <- result
}

// proposals are what a reign has to write. There is no goroutine that writes
// it: whoever proposes takes off at once if few entries are under way, and else what has
// collected takes off when one of those lands.
type proposals struct {
	mu     sync.Mutex
	queue  []proposal
	ahead  int // entries that are under way
	closed bool
}

var errNotProposed = errors.New("too much is waiting to be written")

// propose has a command written. The result's Err is an answer of the
// record, or *baton.UnavailableError if what became of it is not known.
func (r *reign) propose(c leasefsm.Command, settle func(error)) <-chan leasefsm.Result {
	p := proposal{command: c, settle: settle, done: make(chan leasefsm.Result, 1)}
	q := &r.proposals
	q.mu.Lock()
	var refused error
	switch {
	case q.closed:
		refused = errReignOver
	case len(q.queue) >= maxQueued:
		refused = errNotProposed
	default:
		q.queue = append(q.queue, p)
		if q.ahead < maxAhead {
			q.ahead++
			r.takeOff()
		}
	}
	q.mu.Unlock()
	if refused != nil {
		p.land(leasefsm.Result{Err: unavailable("propose", refused)})
	}
	return p.done
}

// takeOff packs whatever is queued into one entry and hands it to raft. Called
// under proposals.mu, so that entries are in the order of their proposals.
func (r *reign) takeOff() {
	q := &r.proposals
	batch := q.queue
	if len(batch) > maxBatch {
		batch = batch[:maxBatch:maxBatch]
	}
	q.queue = slices.Clip(q.queue[len(batch):])
	e := entry{term: r.term, commands: make([]leasefsm.Command, len(batch))}
	for i, p := range batch {
		e.commands[i] = p.command
	}
	sent := time.Now()
	future := r.s.raft.Apply(e.encode(), r.s.cfg.ElectionTimeout)
	r.owned.Go(func() { r.land(future, batch, sent) })
}

// land tells proposers what became of their commands, and lets the next entry take off.
func (r *reign) land(future raft.ApplyFuture, batch []proposal, sent time.Time) {
	results, err := resultsOf(future)
	q := &r.proposals
	q.mu.Lock()
	if len(q.queue) > 0 && !q.closed {
		r.takeOff()
	} else {
		q.ahead--
	}
	q.mu.Unlock()
	r.s.metrics.committed(time.Since(sent), len(batch), err)
	for i, p := range batch {
		if err != nil {
			p.land(leasefsm.Result{Err: unavailable("commit", err)})
			continue
		}
		p.land(results[i])
	}
	if err != nil {
		r.s.kick()
	}
}

// refuseRest ends the proposing: what has not taken off never will.
func (r *reign) refuseRest() {
	q := &r.proposals
	q.mu.Lock()
	rest := q.queue
	q.queue, q.closed = nil, true
	q.mu.Unlock()
	for _, p := range rest {
		p.land(leasefsm.Result{Err: unavailable("propose", errReignOver)})
	}
}

// commit proposes and waits.
func (r *reign) commit(ctx context.Context, op string, c leasefsm.Command, settle func(error)) leasefsm.Result {
	select {
	case result := <-r.propose(c, settle):
		r.s.cfg.trial.holdUp()
		return result
	case <-ctx.Done():
		return leasefsm.Result{Err: unavailable(op, ctx.Err())}
	}
}

// resultsOf waits for an entry to be applied. An error of raft's leaves it
// open whether it will be; errDeposed means that it changed nothing.
func resultsOf(f raft.ApplyFuture) ([]leasefsm.Result, error) {
	if err := f.Error(); err != nil {
		return nil, fmt.Errorf("raft: %w", err)
	}
	a, ok := f.Response().(applied)
	if !ok {
		return nil, fmt.Errorf("raft answered %T", f.Response())
	}
	return a.results, a.err
}

// neverAppended: raft did not take the entry, so it will never be committed.
func neverAppended(err error) bool {
	return errors.Is(err, raft.ErrEnqueueTimeout) || errors.Is(err, raft.ErrNotLeader) ||
		errors.Is(err, raft.ErrLeadershipTransferInProgress) || errors.Is(err, errNotProposed) || errors.Is(err, errReignOver)
}

func unavailable(op string, err error) error {
	return &baton.UnavailableError{Op: op, Err: err}
}
