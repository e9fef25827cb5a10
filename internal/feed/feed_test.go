package feed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"baton/internal/leak"

	"baton"
)

func TestMain(m *testing.M) { leak.Main(m) }

// store is an owner of a feed as small as one can be: it remembers the last
// term of each group and publishes under its lock.
type store struct {
	*Feed
	mu    sync.Mutex
	index uint64
	terms map[string]baton.Term
}

func newStore(t *testing.T, cfg Config) *store {
	cfg.Store = "s"
	s := &store{Feed: New(cfg), terms: map[string]baton.Term{}, index: cfg.Base.Index}
	t.Cleanup(s.Close)
	return s
}

func (s *store) elect(group string) baton.Term {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index++
	s.terms[group]++
	term := s.terms[group]
	s.Publish(Position{Index: s.index}, baton.Event{Type: baton.LeaderChanged, Group: group, Term: term})
	return term
}

func (s *store) watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	return s.Watch(ctx, group, after, func() baton.Event {
		s.mu.Lock()
		defer s.mu.Unlock()
		return baton.Event{Type: baton.LeaderChanged, Group: group, Term: s.terms[group]}
	})
}

// reader pulls from a watch.
type reader struct {
	t    *testing.T
	next func() (baton.Event, error, bool)
	last baton.Cursor
}

func (s *store) read(t *testing.T, group string, after baton.Cursor) *reader {
	next, stop := iter.Pull2(s.watch(t.Context(), group, after))
	t.Cleanup(stop)
	return &reader{t: t, next: next}
}

// want reads one event for each word: a term, with "gap" before it where one is marked.
func (r *reader) want(want string) {
	r.t.Helper()
	var got []string
	for range len(strings.Fields(strings.ReplaceAll(want, "gap ", "gap:"))) {
		e, err, ok := r.next()
		if err != nil || !ok {
			r.t.Fatalf("after %v: %v, %v", got, err, ok)
		}
		if e.Gap {
			got = append(got, "gap")
		}
		got = append(got, fmt.Sprint(e.Term))
		if e.Cursor == "" || e.Cursor == r.last {
			r.t.Fatalf("term %d has the cursor %q, the one before %q", e.Term, e.Cursor, r.last)
		}
		r.last = e.Cursor
	}
	if got := strings.Join(got, " "); got != want {
		r.t.Fatalf("read %q, want %q", got, want)
	}
}

// ends wants an error of this kind as the last thing.
func (r *reader) ends(target error) {
	r.t.Helper()
	if _, err, ok := r.next(); !ok || !errors.Is(err, target) {
		r.t.Fatalf("ends with %v, %v: want %v", err, ok, target)
	}
	if e, err, ok := r.next(); ok {
		r.t.Fatalf("after its error it yields %v, %v", e, err)
	}
}

func TestWatchYieldsTheStateThenEveryChange(t *testing.T) {
	s := newStore(t, Config{})
	r := s.read(t, "g", "")
	r.want("0")
	s.elect("g")
	s.elect("other")
	s.elect("g")
	r.want("1 2")
	later := s.read(t, "g", "")
	later.want("2")
	s.elect("g")
	r.want("3")
	later.want("3")
}

// Whoever waits is woken by a change of its group, by every one of them, and
// by nothing else.
func TestWaitingWatchersAreWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, Config{})
		type seen struct {
			watcher int
			term    baton.Term
		}
		all := make(chan seen, 100)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				for e, err := range s.watch(context.Background(), "g", "") {
					if err != nil {
						return
					}
					all <- seen{i, e.Term}
				}
			})
		}
		for term := range baton.Term(4) {
			synctest.Wait()
			if len(all) != 10 {
				t.Fatalf("%d of 10 watchers were told of term %d", len(all), term)
			}
			for range 10 {
				if got := <-all; got.term != term {
					t.Errorf("watcher %d was told of term %d, want %d", got.watcher, got.term, term)
				}
			}
			s.elect("other")
			s.elect("g")
		}
		s.Close()
		wg.Wait()
	})
}

func TestWatchFromACursor(t *testing.T) {
	s := newStore(t, Config{PerGroup: 3})
	empty := s.read(t, "g", "")
	empty.want("0")
	for range 4 {
		s.elect("g")
		s.elect("other")
	}
	first := FormatCursor("s", Position{Index: 1})  // of term 1, which is no longer retained itself
	second := FormatCursor("s", Position{Index: 4}) // of the other group, between terms 2 and 3

	s.read(t, "g", first).want("2 3 4")
	s.read(t, "g", second).want("3 4")
	s.read(t, "g", empty.last).want("gap 4") // term 1 is gone

	current := s.read(t, "g", "")
	current.want("4")
	resumed := s.read(t, "g", current.last) // yields nothing before the next change
	s.elect("g")
	resumed.want("5")
}

func TestCursorsThatLeadNowhereAreAGap(t *testing.T) {
	for name, c := range map[string]baton.Cursor{
		"foreign":     "x.b.0",
		"nonsense":    "s",
		"before base": FormatCursor("s", Position{Index: 9, Offset: 7}),
		"future":      FormatCursor("s", Position{Index: 11, Offset: 1}),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, Config{Base: Position{Index: 10}})
			s.elect("g")
			r := s.read(t, "g", c)
			r.want("gap 1")
			resumed := s.read(t, "g", r.last)
			s.elect("elsewhere")
			s.elect("g")
			r.want("2")
			resumed.want("2")
		})
	}
}

func TestSlowWatcherGetsAGapAndTheStateAndNothingTwice(t *testing.T) {
	s := newStore(t, Config{PerGroup: 4})
	r := s.read(t, "g", "")
	r.want("0")
	s.elect("g")
	r.want("1")
	for range 4 {
		s.elect("g")
	}
	r.want("2") // the last moment at which it was in time
	for range 4 {
		s.elect("g")
	}
	r.want("gap 9")
	s.elect("g")
	r.want("10")
}

func TestPositionsWithinOneIndex(t *testing.T) {
	s := newStore(t, Config{})
	r := s.read(t, "g", "")
	r.want("0")
	for i, at := range []Position{{5, 0}, {5, 1}, {5, 1}, {5, 0}, {4, 9}, {5, 2}, {6, 0}} {
		news := s.Publish(at, baton.Event{Group: "g", Term: baton.Term(i + 1)})
		if want := i < 2 || i > 4; news != want {
			t.Errorf("Publish at %v: %v, want %v", at, news, want)
		}
	}
	r.want("1 2 6 7")
	s.read(t, "g", FormatCursor("s", Position{5, 1})).want("6 7")
	if got := s.Last(); got != (Position{6, 0}) {
		t.Errorf("Last is %v", got)
	}
}

func TestOldestOfAllGroupsGoesFirst(t *testing.T) {
	s := newStore(t, Config{PerGroup: 4, Total: 8})
	watched := s.read(t, "watched", "")
	watched.want("0")
	s.elect("watched")
	watched.want("1")
	for i := range 1000 {
		s.elect(fmt.Sprintf("once-%d", i))
	}
	if s.count != 8 || len(s.groups) != 9 {
		t.Fatalf("%d events of %d groups are retained, want 8 of them and the one that is watched", s.count, len(s.groups))
	}
	s.elect("watched")
	watched.want("2") // it was forgotten, but nothing was missed

	s.read(t, "once-0", FormatCursor("s", Position{Index: 1})).want("gap 1")
	s.read(t, "once-999", FormatCursor("s", s.floor)).want("1")
	s.read(t, "never", FormatCursor("s", Position{Index: 1})).want("gap 0")
}

func TestNothingIsKeptOfWatchesThatEnded(t *testing.T) {
	s := newStore(t, Config{})
	for i := range 100 {
		for range s.watch(t.Context(), fmt.Sprint(i), "") {
			break
		}
	}
	if n := len(s.groups); n != 0 {
		t.Fatalf("%d groups are remembered", n)
	}
}

func TestEndOfContextIsTheLastYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t, Config{})
		ctx, cancel := context.WithCancel(t.Context())
		next, stop := iter.Pull2(s.watch(ctx, "g", ""))
		defer stop()
		r := &reader{t: t, next: next}
		r.want("0")
		go func() {
			synctest.Wait() // until r waits
			cancel()
		}()
		r.ends(context.Canceled)
	})
}

func TestCloseEndsWatches(t *testing.T) {
	s := newStore(t, Config{})
	r := s.read(t, "g", "")
	r.want("0")
	s.elect("g")
	s.Close()
	s.Close()
	r.ends(baton.ErrUnavailable)
	s.read(t, "g", "").ends(baton.ErrUnavailable)
	if s.Publish(Position{Index: 99}, baton.Event{Group: "g"}) {
		t.Error("a closed feed takes events")
	}
}

func TestOwnerThatCannotTellTheStateEndsTheWatch(t *testing.T) {
	s := newStore(t, Config{})
	next, stop := iter.Pull2(s.Watch(t.Context(), "g", "", func() baton.Event { return baton.Event{} }))
	defer stop()
	r := &reader{t: t, next: next}
	r.ends(baton.ErrUnavailable)
}

func TestResetIsAGapForEveryWatch(t *testing.T) {
	for _, base := range []uint64{1, 100} {
		t.Run(fmt.Sprintf("to %d", base), func(t *testing.T) {
			s := newStore(t, Config{})
			s.elect("g")
			s.elect("g")
			idle, behind := s.read(t, "g", ""), s.read(t, "g", FormatCursor("s", Position{Index: 1}))
			idle.want("2")
			behind.want("2")
			before := idle.last
			s.elect("g") // lost to both

			s.mu.Lock()
			s.index, s.terms["g"] = base, 50
			s.Reset("s2", Position{Index: base})
			s.mu.Unlock()
			idle.want("gap 50")
			behind.want("gap 50")
			s.elect("g")
			idle.want("51")
			behind.want("51")
			s.read(t, "g", before).want("gap 51")
		})
	}
}

func TestEventsAreTheCallersToKeep(t *testing.T) {
	s := newStore(t, Config{})
	meta := map[string]string{"zone": "eu"}
	a, b := s.read(t, "g", ""), s.read(t, "g", "")
	a.want("0")
	b.want("0")
	s.Publish(Position{Index: 1}, baton.Event{Group: "g", Metadata: meta})
	meta["zone"] = "changed by the publisher"
	e, _, _ := a.next()
	if e.Metadata["zone"] != "eu" {
		t.Errorf("a reads %v", e.Metadata)
	}
	e.Metadata["zone"] = "changed by a"
	if e, _, _ := b.next(); e.Metadata["zone"] != "eu" {
		t.Errorf("b reads %v", e.Metadata)
	}
}

// A change happens while the state is being read, and may or may not be in it.
func TestChangeDuringTheReadOfTheStateIsNeitherLostNorTold(t *testing.T) {
	for _, included := range []bool{true, false} {
		t.Run(fmt.Sprintf("included %v", included), func(t *testing.T) {
			s := newStore(t, Config{})
			s.elect("g")
			read := 0
			next, stop := iter.Pull2(s.Watch(t.Context(), "g", "", func() baton.Event {
				e := baton.Event{Type: baton.LeaderChanged, Group: "g", Term: s.terms["g"]}
				if read++; read == 1 {
					term := s.elect("g")
					if included {
						e.Term = term
					}
				}
				return e
			}))
			defer stop()
			r := &reader{t: t, next: next}
			r.want("2")
			s.elect("g")
			r.want("3")
		})
	}
}

// The whole state is replaced while it is being read. The group has no event
// before or after by which one could tell.
func TestResetDuringTheReadOfTheState(t *testing.T) {
	s := newStore(t, Config{})
	read := 0
	next, stop := iter.Pull2(s.Watch(t.Context(), "g", "", func() baton.Event {
		e := baton.Event{Type: baton.LeaderChanged, Group: "g", Term: s.terms["g"]}
		if read++; read == 1 {
			s.terms["g"] = 7
			s.Reset("s2", Position{})
		}
		return e
	}))
	defer stop()
	r := &reader{t: t, next: next}
	r.want("7") // it had seen nothing before, so there is no gap
}

// Many watchers begin, resume and dawdle while changes pour in: each sees terms rise one by
// one, except over a gap.
func TestManyWatchersAtOnce(t *testing.T) {
	const watchers, changes = 200, 2000
	s := newStore(t, Config{PerGroup: 16, Total: 64})
	var wg sync.WaitGroup
	for i := range watchers {
		wg.Go(func() {
			var cursor baton.Cursor
			var last baton.Term
			for last < changes {
				n := 0
				for e, err := range s.watch(t.Context(), "g", cursor) {
					if err != nil {
						t.Errorf("watcher %d: %v", i, err)
						return
					}
					switch {
					case cursor == "" || (e.Gap && e.Term >= last):
					case e.Gap || e.Term != last+1:
						t.Errorf("watcher %d: term %d after %d, gap %v", i, e.Term, last, e.Gap)
						return
					}
					cursor, last = e.Cursor, e.Term
					if n++; n > i || last == changes {
						break // and resume
					}
				}
			}
		})
	}
	for range changes {
		s.elect("g")
		s.elect("other")
	}
	wg.Wait()
}

func BenchmarkFanOut(b *testing.B) {
	const watchers = 10_000
	f := New(Config{Store: "s"})
	var seen sync.WaitGroup
	var all sync.WaitGroup
	seen.Add(watchers)
	for range watchers {
		all.Go(func() {
			for _, err := range f.Watch(context.Background(), "g", "", func() baton.Event { return baton.Event{Type: baton.LeaderLost, Group: "g"} }) {
				if err != nil {
					return
				}
				seen.Done()
			}
		})
	}
	seen.Wait()
	for i := uint64(1); b.Loop(); i++ {
		seen.Add(watchers)
		f.Publish(Position{Index: i}, baton.Event{Group: "g"})
		seen.Wait()
	}
	f.Close()
	all.Wait()
}
