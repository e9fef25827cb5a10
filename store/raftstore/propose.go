package raftstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"baton"
	"baton/internal/leasefsm"
)

const (
	// maxBatch bounds the commands in one entry, maxAhead the entries that are under way.
	maxBatch = 512
	maxAhead = 16
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

// flight is an entry that raft has taken.
type flight struct {
	future raft.ApplyFuture
	batch  []proposal
	sent   time.Time
}

var errNotProposed = errors.New("too much is waiting to be written")

// propose hands a command to the batcher. The result's Err is an answer of the
// record, or *baton.UnavailableError if what became of it is not known.
func (r *reign) propose(ctx context.Context, c leasefsm.Command, settle func(error)) <-chan leasefsm.Result {
	p := proposal{command: c, settle: settle, done: make(chan leasefsm.Result, 1)}
	select {
	case r.proposals <- p:
	case <-ctx.Done():
		p.land(leasefsm.Result{Err: unavailable("propose", fmt.Errorf("%w: %w", errNotProposed, ctx.Err()))})
	case <-r.life.Done():
		p.land(leasefsm.Result{Err: unavailable("propose", errReignOver)})
	}
	return p.done
}

// commit proposes and waits.
func (r *reign) commit(ctx context.Context, op string, c leasefsm.Command, settle func(error)) leasefsm.Result {
	done := r.propose(ctx, c, settle)
	select {
	case result := <-done:
		r.s.cfg.trial.holdUp()
		return result
	case <-ctx.Done():
		return leasefsm.Result{Err: unavailable(op, ctx.Err())}
	case <-r.landed:
	}
	// One that was handed over as the reign ended may have been left behind.
	select {
	case result := <-done:
		return result
	default:
		return leasefsm.Result{Err: unavailable(op, errReignOver)}
	}
}

// batch packs whatever is waiting into one entry, again and again. Entries
// follow each other without waiting for the one before to be committed.
func (r *reign) batch() {
	defer close(r.flights)
	for {
		var batch []proposal
		select {
		case p := <-r.proposals:
			batch = append(batch, p)
		case <-r.life.Done():
			r.refuseRest()
			return
		}
	more:
		for len(batch) < maxBatch {
			select {
			case p := <-r.proposals:
				batch = append(batch, p)
			default:
				break more
			}
		}
		e := entry{term: r.term, commands: make([]leasefsm.Command, len(batch))}
		for i, p := range batch {
			e.commands[i] = p.command
		}
		r.flights <- flight{future: r.s.raft.Apply(e.encode(), r.s.cfg.ElectionTimeout), batch: batch, sent: time.Now()}
	}
}

func (r *reign) refuseRest() {
	for {
		select {
		case p := <-r.proposals:
			p.land(leasefsm.Result{Err: unavailable("propose", errReignOver)})
		default:
			return
		}
	}
}

// land tells proposers what became of their commands.
func (r *reign) land() {
	defer close(r.landed)
	for f := range r.flights {
		results, err := resultsOf(f.future)
		r.s.metrics.committed(time.Since(f.sent), len(f.batch), err)
		for i, p := range f.batch {
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
