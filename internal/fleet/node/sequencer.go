package node

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"baton"
	"baton/fence"
	"baton/fenced/fencedclient"
)

var (
	errOverloaded = errors.New("too many requests wait for a number")
	errStopped    = errors.New("this node has stopped leading")
	errLate       = errors.New("the resource does not answer")
)

// maxWaiting bounds the requests that wait for a number.
const maxWaiting = 1 << 16

// sequencer gives out numbers under one leadership, by group commit: while one
// write to the resource is under way those that come wait together, and the
// next write covers them all. Nobody is answered before the write is known to
// be in.
type sequencer struct {
	term   baton.Term
	commit func(count int64) (fencedclient.Numbers, error)

	arrived chan struct{} // holds one value if somebody may be waiting

	mu      sync.Mutex
	waiting batch
	closed  bool
}

// batch are the requests that one write is for, by where each waits for its answer.
type batch map[chan allotted]struct{}

type allotted struct {
	seq int64
	err error
}

func newSequencer(term baton.Term, commit func(count int64) (fencedclient.Numbers, error)) *sequencer {
	return &sequencer{term: term, commit: commit, arrived: make(chan struct{}, 1), waiting: batch{}}
}

// next waits for a number, until ctx ends. After an error nobody gets one for this request: it
// was not written down, or, if the error is fence.ErrUnknown, it may have been.
func (s *sequencer) next(ctx context.Context) (int64, error) {
	answer := make(chan allotted, 1)
	if err := s.enter(answer); err != nil {
		return 0, err
	}
	select {
	case a := <-answer:
		return a.seq, a.err
	case <-ctx.Done():
	}
	if s.leave(answer) {
		return 0, context.Cause(ctx)
	}
	select {
	case a := <-answer:
		return a.seq, a.err
	default:
		return 0, fmt.Errorf("%w: a write is under way: %w", fence.ErrUnknown, context.Cause(ctx))
	}
}

func (s *sequencer) enter(answer chan allotted) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errStopped
	case len(s.waiting) >= maxWaiting:
		return errOverloaded
	}
	s.waiting[answer] = struct{}{}
	select {
	case s.arrived <- struct{}{}:
	default:
	}
	return nil
}

// leave reports whether no write was or will be for this request.
func (s *sequencer) leave(answer chan allotted) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, waits := s.waiting[answer]
	delete(s.waiting, answer)
	return waits
}

func (s *sequencer) take() batch {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.waiting
	s.waiting = batch{}
	return taken
}

// run serves until done is closed or a commit fails for good, as fatal
// judges. mayWrite is asked right before each commit.
func (s *sequencer) run(done <-chan struct{}, mayWrite func() error, fatal func(error) bool) error {
	defer s.close()
	for {
		select {
		case <-done:
			return nil
		case <-s.arrived:
		}
		taken := s.take()
		if len(taken) == 0 {
			continue
		}
		if mayWrite() != nil {
			taken.fail(errStopped)
			return nil
		}
		numbers, err := s.commit(int64(len(taken)))
		if err != nil {
			taken.fail(err)
			if fatal(err) {
				return err
			}
			continue
		}
		seq := numbers.First
		for answer := range taken {
			answer <- allotted{seq: seq}
			seq++
		}
	}
}

// close lets nobody in any more and sends away those that wait.
func (s *sequencer) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.take().fail(errStopped)
}

func (b batch) fail(err error) {
	for answer := range b {
		answer <- allotted{err: err}
	}
}
