package server

import (
	"context"
	"sync"
	"time"
)

// limited is context.WithDeadline for questions that are mostly answered on
// the spot: it sets its timer when somebody waits for it, which hardly anybody does.
type limited struct {
	context.Context // until somebody waits
	deadline        time.Time

	mu     sync.Mutex
	timed  context.Context // nil until somebody waits
	cancel context.CancelFunc
	ended  bool
}

// end releases what it holds.
func (l *limited) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.cancel != nil {
		l.cancel()
	}
}

func (l *limited) Deadline() (time.Time, bool) {
	if earlier, ok := l.Context.Deadline(); ok && earlier.Before(l.deadline) {
		return earlier, true
	}
	return l.deadline, true
}

func (l *limited) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed == nil {
		l.timed, l.cancel = context.WithDeadline(l.Context, l.deadline)
		if l.ended {
			l.cancel()
		}
	}
	return l.timed.Done()
}

func (l *limited) Err() error {
	if timed := l.waitedFor(); timed != nil {
		return timed.Err()
	}
	if err := l.Context.Err(); err != nil {
		return err
	}
	if l.over() {
		return context.Canceled
	}
	if !time.Now().Before(l.deadline) {
		<-l.Done()
		return l.waitedFor().Err()
	}
	return nil
}

// Value lets contexts that are derived from this one find what ends it.
func (l *limited) Value(key any) any {
	if timed := l.waitedFor(); timed != nil {
		return timed.Value(key)
	}
	return l.Context.Value(key)
}

func (l *limited) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

func (l *limited) waitedFor() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.timed
}
