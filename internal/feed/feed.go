// Package feed tells watchers what happened to groups, in order, each change
// once.
//
// Publishing never waits for anyone. The feed retains the last changes of each
// group, and every watcher reads them from there at its own pace; one that falls
// so far behind that its next change is gone gets the current state instead,
// marked as a gap.
//
// Memory is bounded twice. A group retains at most Config.PerGroup changes.
// All groups together retain at most Config.Total: beyond that the oldest
// change of all goes, so groups in which nothing has happened for long are forgotten
// first and cost nothing. A cursor from before what was forgotten yields a gap.
package feed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"baton"
)

// The defaults of Config.
const (
	DefaultPerGroup = 256
	DefaultTotal    = 64 << 10
)

var errClosed = errors.New("the store is closed")

// Config says whose feed it is and how much of it is retained.
type Config struct {
	// Store tells this store's cursors from all others'.
	Store string
	// Base is the last position that happened before the feed began. A cursor before it is a gap.
	Base Position
	// PerGroup is how many changes a group retains; DefaultPerGroup if 0.
	PerGroup int
	// Total is how many changes are retained over all groups; DefaultTotal if 0.
	Total int
}

// Feed retains events and hands them to watchers.
type Feed struct {
	perGroup, total int
	closed          chan struct{}

	mu     sync.Mutex
	shut   bool
	store  string
	epoch  uint64   // counts Resets
	last   Position // of the newest event
	floor  Position // of the newest one that a forgotten group may have lost
	groups map[string]*group
	oldest entry // the head of a ring of all entries: next is the oldest, prev the newest
	count  int
}

// entry is one retained event. It is never written after it was published.
type entry struct {
	event      baton.Event
	at         Position
	group      *group
	prev, next *entry
}

// group is what is known of one group: something retained, or somebody watching.
type group struct {
	name     string
	entries  []*entry // ordered by position
	dropped  Position // of the newest event that is no longer retained
	watchers int
	changed  chan struct{} // closed at the next event; nil if nobody waits for one
}

// New returns an empty feed.
func New(cfg Config) *Feed {
	if cfg.PerGroup <= 0 {
		cfg.PerGroup = DefaultPerGroup
	}
	if cfg.Total <= 0 {
		cfg.Total = DefaultTotal
	}
	f := &Feed{
		perGroup: cfg.PerGroup, total: cfg.Total, closed: make(chan struct{}),
		store: cfg.Store, last: cfg.Base, floor: cfg.Base, groups: map[string]*group{},
	}
	f.oldest.prev, f.oldest.next = &f.oldest, &f.oldest
	return f
}

// Publish makes e known as what happened at this position, and reports whether
// it was news: at or before the last one, as when a log is replayed, it is ignored.
// The cursor of e is set here.
//
// The owner publishes under the lock that guards the state that e changed, so
// that nobody can read a state without its event having been published.
func (f *Feed) Publish(at Position, e baton.Event) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shut || at.Compare(f.last) <= 0 {
		return false
	}
	f.last = at
	e.Cursor = FormatCursor(f.store, at)
	e.Metadata = maps.Clone(e.Metadata)
	g := f.group(e.Group)
	n := &entry{event: e, at: at, group: g, prev: f.oldest.prev, next: &f.oldest}
	n.prev.next, n.next.prev = n, n
	g.entries = append(g.entries, n)
	f.count++
	if len(g.entries) > f.perGroup {
		f.dropOldest(g)
	}
	for f.count > f.total {
		g := f.oldest.next.group
		f.dropOldest(g)
		f.forget(g)
	}
	g.announce()
	return true
}

// Last is the position of the newest event.
func (f *Feed) Last() Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// Reset forgets everything, as when the state was replaced by another's
// snapshot: base is the position that the new state stands at. All watchers
// get the current state marked as a gap.
func (f *Feed) Reset(store string, base Position) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.epoch++
	f.store, f.last, f.floor = store, base, base
	f.oldest.prev, f.oldest.next, f.count = &f.oldest, &f.oldest, 0
	for _, g := range f.groups {
		g.entries, g.dropped = nil, base
		g.announce()
		f.forget(g)
	}
}

// Close ends all watches with baton.ErrUnavailable.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.shut {
		f.shut = true
		close(f.closed)
	}
}

func (f *Feed) group(name string) *group {
	g := f.groups[name]
	if g == nil {
		g = &group{name: name, dropped: f.floor}
		f.groups[name] = g
	}
	return g
}

func (f *Feed) dropOldest(g *group) {
	n := g.entries[0]
	g.entries[0] = nil
	g.entries = g.entries[1:]
	g.dropped = n.at
	n.prev.next, n.next.prev = n.next, n.prev
	f.count--
}

// forget drops a group of which nothing is retained and which nobody watches.
// What it lost counts as lost by any group that the feed does not know.
func (f *Feed) forget(g *group) {
	if len(g.entries) > 0 || g.watchers > 0 {
		return
	}
	if g.dropped.Compare(f.floor) > 0 {
		f.floor = g.dropped
	}
	delete(f.groups, g.name)
}

func (g *group) announce() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// Watch yields the current state, or, given a cursor of this store after
// which everything is retained, what happened since. Then it yields every change. A
// cursor that is foreign, too old or ahead of the store yields the current
// state marked as a gap. The last yield is an error: the end of ctx, or
// baton.ErrUnavailable when the feed is closed.
//
// State reads the group under the lock under which the owner publishes. It is
// called without any lock of the feed's; its cursor and gap mark are set here.
// An owner that cannot tell, since it is being closed, returns an event of no type, and the
// watch ends with baton.ErrUnavailable.
func (f *Feed) Watch(ctx context.Context, name string, after baton.Cursor, state func() baton.Event) iter.Seq2[baton.Event, error] {
	return func(yield func(baton.Event, error) bool) {
		w := f.subscribe(name, after)
		defer f.unsubscribe(w)
		for {
			e, err := f.next(ctx, w, state)
			if err != nil {
				yield(baton.Event{}, err)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// watcher is one running Watch.
type watcher struct {
	group *group
	epoch uint64
	at    Position // everything up to here has been seen
	lost  bool     // what it has seen does not connect to what is retained
	fresh bool     // it has seen nothing, and that is no gap
}

func (f *Feed) subscribe(name string, after baton.Cursor) *watcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &watcher{group: f.group(name), epoch: f.epoch}
	w.group.watchers++
	if after == "" {
		w.fresh = true
		return w
	}
	at, ok := ParseCursor(f.store, after)
	w.at, w.lost = at, !ok || at.Compare(f.last) > 0
	return w
}

func (f *Feed) unsubscribe(w *watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w.group.watchers--
	f.forget(w.group)
}

// next waits for what w has not seen.
func (f *Feed) next(ctx context.Context, w *watcher, state func() baton.Event) (baton.Event, error) {
	for {
		if err := ctx.Err(); err != nil {
			return baton.Event{}, fmt.Errorf("watch group %q: %w", w.group.name, err)
		}
		f.mu.Lock()
		if f.shut {
			f.mu.Unlock()
			return baton.Event{}, closedError(w.group)
		}
		g := w.group
		if w.epoch != f.epoch || w.at.Compare(g.dropped) < 0 {
			w.lost = true
		}
		if w.fresh || w.lost {
			f.mu.Unlock()
			e, ok := f.current(w, state)
			switch {
			case !ok:
				continue
			case e.Type == "":
				return baton.Event{}, closedError(g)
			}
			return e, nil
		}
		if i := g.after(w.at); i < len(g.entries) {
			n := g.entries[i]
			w.at = n.at
			f.mu.Unlock()
			e := n.event
			e.Metadata = maps.Clone(e.Metadata)
			return e, nil
		}
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		changed := g.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		case <-f.closed:
		}
	}
}

func closedError(g *group) error {
	return &baton.UnavailableError{Op: fmt.Sprintf("watch group %q", g.name), Err: errClosed}
}

// current reads the state, together with the position that it is the state
// of. It fails if an event of the group was published meanwhile: then
// nobody can tell whether the state has it in it.
func (f *Feed) current(w *watcher, state func() baton.Event) (baton.Event, bool) {
	f.mu.Lock()
	epoch, last, newest := f.epoch, f.last, w.group.newest()
	f.mu.Unlock()
	e := state()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.epoch != epoch || w.group.newest() != newest {
		return baton.Event{}, false
	}
	e.Gap = !w.fresh
	e.Cursor = FormatCursor(f.store, last)
	w.epoch, w.at, w.lost, w.fresh = epoch, last, false, false
	return e, true
}

// newest is the position of the group's newest event, retained or not.
func (g *group) newest() Position {
	if n := len(g.entries); n > 0 {
		return g.entries[n-1].at
	}
	return g.dropped
}

// after finds the first entry that is later than this position.
func (g *group) after(at Position) int {
	i, found := slices.BinarySearchFunc(g.entries, at, func(n *entry, at Position) int { return n.at.Compare(at) })
	if found {
		i++
	}
	return i
}
