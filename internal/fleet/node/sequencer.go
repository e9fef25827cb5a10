package node

import (
	"context"
	"errors"
	"sync"

	"baton"
	"baton/fenced/fencedclient"
)

var (
	errOverloaded = errors.New("too many requests wait for a number")
	errStopped    = errors.New("this node has stopped leading")
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
	waiting []chan<- allotted
	closed  bool
}

type allotted struct {
	seq int64
	err error
}

func newSequencer(term baton.Term, commit func(count int64) (fencedclient.Numbers, error)) *sequencer {
	return &sequencer{term: term, commit: commit, arrived: make(chan struct{}, 1)}
}

// next waits for a number. After an error none was given out.
func (s *sequencer) next(ctx context.Context) (int64, error) {
	answer := make(chan allotted, 1)
	if err := s.enter(answer); err != nil {
		return 0, err
	}
	select {
	case a := <-answer:
		return a.seq, a.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

func (s *sequencer) enter(answer chan<- allotted) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errStopped
	case len(s.waiting) >= maxWaiting:
		return errOverloaded
	}
	s.waiting = append(s.waiting, answer)
	select {
	case s.arrived <- struct{}{}:
	default:
	}
	return nil
}

func (s *sequencer) take() []chan<- allotted {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := s.waiting
	s.waiting = nil
	return batch
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
		batch := s.take()
		if len(batch) == 0 {
			continue
		}
		if mayWrite() != nil {
			fail(batch, errStopped)
			return nil
		}
		numbers, err := s.commit(int64(len(batch)))
		if err != nil {
			fail(batch, err)
			if fatal(err) {
				return err
			}
			continue
		}
		for i, answer := range batch {
			answer <- allotted{seq: numbers.First + int64(i)}
		}
	}
}

// close lets nobody in any more and sends away those that wait.
func (s *sequencer) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	fail(s.take(), errStopped)
}

func fail(batch []chan<- allotted, err error) {
	for _, answer := range batch {
		answer <- allotted{err: err}
	}
}
