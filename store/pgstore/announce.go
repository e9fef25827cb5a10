package pgstore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// announcer has the database give hints, for all groups that have changed since
// it did so last, in one request behind the others.
type announcer struct {
	life context.Context
	send func(groups []string)
	work sync.WaitGroup
	wake chan struct{}

	mu      sync.Mutex
	changed map[string]struct{}
	told    chan struct{} // closed when what is in changed was told
}

func newAnnouncer(life context.Context, send func(groups []string)) *announcer {
	a := &announcer{life: life, send: send, wake: make(chan struct{}, 1)}
	a.reset()
	a.work.Go(a.run)
	return a
}

func (a *announcer) reset() { a.changed, a.told = map[string]struct{}{}, make(chan struct{}) }

// wait returns when the announcer has ended, after life has.
func (a *announcer) wait() { a.work.Wait() }

// tell has a hint given soon; told is closed when it was, or could not be.
func (a *announcer) tell(group string) (told <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.changed[group] = struct{}{}
	select {
	case a.wake <- struct{}{}:
	default:
	}
	return a.told
}

func (a *announcer) run() {
	for {
		select {
		case <-a.life.Done():
			return
		case <-a.wake:
		}
		a.mu.Lock()
		groups, told := slices.Collect(maps.Keys(a.changed)), a.told
		a.reset()
		a.mu.Unlock()
		if len(groups) > 0 {
			a.send(groups)
		}
		close(told)
	}
}

// announce is one request. If it fails, those who wait find out by themselves.
func (s *Store) announce(groups []string) {
	_ = s.look(s.calls.Life(), func(ctx context.Context) error {
		_, err := s.waits.Exec(ctx, s.schema.in(`SELECT baton.hint($1)`), groups)
		return err
	})
}

// tellBefore waits until a hint was given, if that does not take long: whoever gives up
// a leadership may end right after. The call that began then is not to exceed its timeout by it.
func (s *Store) tellBefore(ctx context.Context, group string, begun time.Time) {
	ctx, cancel := context.WithTimeout(ctx, min(turnKept, s.timeout-time.Since(begun)))
	defer cancel()
	select {
	case <-s.announcer.tell(group):
	case <-ctx.Done():
	case <-s.calls.Life().Done():
	}
}
