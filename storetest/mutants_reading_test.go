package storetest

import (
	"context"
	"iter"
	"sync"

	"baton"
	"baton/store/memstore"
)

type watchFunc = func(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error]

// misreporting is a memory store with another Watch.
type misreporting struct {
	*memstore.Store
	watch watchFunc
}

func (s *misreporting) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	return s.watch(ctx, group, after)
}

func watching(change func(inner *memstore.Store) watchFunc) func(*memstore.Store) baton.Store {
	return func(inner *memstore.Store) baton.Store { return &misreporting{inner, change(inner)} }
}

// editing changes each event of a watch; nil drops it, several repeat it.
func editing(edit func(nth int, ev baton.Event) []baton.Event) func(*memstore.Store) baton.Store {
	return watching(func(inner *memstore.Store) watchFunc {
		return func(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
			return func(yield func(baton.Event, error) bool) {
				nth := 0
				for ev, err := range inner.Watch(ctx, group, after) {
					if err != nil {
						yield(ev, err)
						return
					}
					for _, ev := range edit(nth, ev) {
						if !yield(ev, nil) {
							return
						}
					}
					nth++
				}
			}
		}
	})
}

var readingMutants = []mutant{
	{"reads what was", func(inner *memstore.Store) baton.Store {
		var mu sync.Mutex
		before := map[string]baton.Lease{}
		s := &altered{Store: inner}
		s.get = func(ctx context.Context, group string) (baton.Lease, error) {
			now, err := inner.Get(ctx, group)
			mu.Lock()
			defer mu.Unlock()
			old, ok := before[group]
			if err == nil {
				before[group] = now
			}
			if ok && err == nil {
				return old, nil
			}
			return now, err
		}
		return s
	}, []string{"Read/SeesWhatWasAcknowledged", "Concurrency/HistoryIsLinearizable"}},
	{"reads a holder in an unknown group", with(func(s *altered, inner *memstore.Store) {
		s.get = func(ctx context.Context, group string) (baton.Lease, error) {
			l, err := inner.Get(ctx, group)
			if err == nil && !l.Held() && l.Term == 0 {
				l.Term = 7
			}
			return l, err
		}
	}), []string{"Read/UnknownGroup"}},
	{"forgets the last term of a vacant group", with(func(s *altered, inner *memstore.Store) {
		s.get = func(ctx context.Context, group string) (baton.Lease, error) {
			l, err := inner.Get(ctx, group)
			if err == nil && !l.Held() {
				l.Term = 0
			}
			return l, err
		}
	}), []string{"Release/OpensTheGroup", "Read/SeesWhatWasAcknowledged"}},
	{"shows the TTL as what remains", with(func(s *altered, inner *memstore.Store) {
		s.get = func(ctx context.Context, group string) (baton.Lease, error) {
			l, err := inner.Get(ctx, group)
			if l.Held() {
				l.Remaining = l.TTL
			}
			return l, err
		}
	}), []string{"Read/RemainingFalls"}},
	{"repeats events", editing(func(_ int, ev baton.Event) []baton.Event { return []baton.Event{ev, ev} }),
		[]string{"Watch/ChangesInOrder", "Watch/SlowReader"}},
	{"drops events", editing(func(nth int, ev baton.Event) []baton.Event {
		if nth%3 == 2 {
			return nil
		}
		return []baton.Event{ev}
	}), []string{"Watch/ChangesInOrder"}},
	{"drops the state", editing(func(nth int, ev baton.Event) []baton.Event {
		if nth == 0 {
			return nil
		}
		return []baton.Event{ev}
	}), []string{"Watch/CurrentState", "Watch/UnknownCursor"}},
	{"gives no reasons", editing(func(_ int, ev baton.Event) []baton.Event {
		ev.Reason = ""
		return []baton.Event{ev}
	}), []string{"Watch/ChangesInOrder", "Watch/Expiry"}},
	{"gives no cursors", editing(func(_ int, ev baton.Event) []baton.Event {
		ev.Cursor = ""
		return []baton.Event{ev}
	}), []string{"Watch/CurrentState"}},
	{"does not mark gaps", editing(func(_ int, ev baton.Event) []baton.Event {
		ev.Gap = false
		return []baton.Event{ev}
	}), []string{"Watch/UnknownCursor", "Watch/ForeignCursor"}},
	{"does not resume", watching(func(inner *memstore.Store) watchFunc {
		return func(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
			return inner.Watch(ctx, group, "")
		}
	}), []string{"Watch/Resume", "Watch/UnknownCursor"}},
	{"reports renewals", func(inner *memstore.Store) baton.Store { return noisy(inner) }, []string{"Watch/RenewalsAreNoChange"}},
	{"ends watches without a word", watching(func(inner *memstore.Store) watchFunc {
		return func(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
			return func(yield func(baton.Event, error) bool) {
				for ev, err := range inner.Watch(ctx, group, after) {
					if err != nil || !yield(ev, nil) {
						return
					}
				}
			}
		}
	}), []string{"Context/EndsAWatch", "Close/EndsWatches", "Validation/IDs"}},
	{"goes on after an error", watching(func(inner *memstore.Store) watchFunc {
		return func(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
			return func(yield func(baton.Event, error) bool) {
				for ev, err := range inner.Watch(ctx, group, after) {
					if !yield(ev, err) {
						return
					}
					if err != nil && yield(ev, err) {
						return
					}
				}
			}
		}
	}), []string{"Context/EndsAWatch"}},
	{"yields nothing at first", watching(func(inner *memstore.Store) watchFunc {
		return func(ctx context.Context, group string, _ baton.Cursor) iter.Seq2[baton.Event, error] {
			return func(yield func(baton.Event, error) bool) { yield(baton.Event{}, baton.ErrUnavailable) }
		}
	}), []string{"Watch/BreakEndsIt"}},
}

// noisy passes a renewal off as a change.
func noisy(inner *memstore.Store) baton.Store {
	return editing(func(nth int, ev baton.Event) []baton.Event {
		if ev.Type == baton.LeaderChanged && nth > 0 {
			return []baton.Event{ev, ev}
		}
		return []baton.Event{ev}
	})(inner)
}
