package pgstore

import (
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"time"

	"baton"
	"baton/internal/feed"
)

// probeEvery is how often a watch that hears nothing looks whether there was
// something to hear, and whether Postgres is there at all.
const probeEvery = 5 * time.Second

// Watch yields the state of the group, or what came after the cursor, then
// every change. A cursor is a term and whether it was over. It lasts as long as the history
// does, for 99 terms, or until the group is deleted.
func (s *Store) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	return s.calls.Watch(ctx, group, func(ctx context.Context, tell func(baton.Event) error) error {
		return (&watch{s: s, group: group, yield: tell}).run(ctx, after)
	})
}

type watch struct {
	s     *Store
	group string
	place string // whose cursors these are, "" until something was read
	yield func(baton.Event) error

	at position // how far it has told
}

// position is a place in the story of a group: a term that began, or one that
// is over. Terms rise, so positions do, unless Postgres lost some.
type position struct {
	term     baton.Term
	over     bool
	instance string // whose term it is; "" if that is not known, as of a cursor
}

func (w *watch) run(ctx context.Context, after baton.Cursor) error {
	ear := w.s.hints.of(w.group)
	defer ear.stop()
	left, err := w.start(ctx, after)
	for err == nil {
		// The end of a lease is not announced: it is looked for when it is due.
		due := time.NewTimer(min(left, probeEvery))
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-ear.heard:
		case <-due.C:
		}
		due.Stop()
		if err == nil {
			left, err = w.follow(ctx)
		}
	}
	return err
}

// start finds where to begin: behind the cursor, or at the present state. It
// returns when to look again.
func (w *watch) start(ctx context.Context, after baton.Cursor) (time.Duration, error) {
	st, err := w.read(ctx, 0)
	if err != nil {
		return 0, err
	}
	w.place = st.cursorsOf(w.group)
	if at, ok := w.parse(after); ok {
		w.at = at
		return w.follow(ctx)
	}
	return st.again(), w.tellState(st, after != "")
}

// read tells what is known from a term on.
func (w *watch) read(ctx context.Context, from baton.Term) (*story, error) {
	ctx, cancel := w.s.calls.Begin(ctx)
	defer cancel()
	return w.s.settled(ctx, w.s.waits, w.group, from)
}

// again is after how long the story may have gone on without a hint.
func (st *story) again() time.Duration {
	if st.present() == nil {
		return probeEvery
	}
	return max(st.left, time.Millisecond)
}

// follow tells what has happened since it last told something.
func (w *watch) follow(ctx context.Context) (time.Duration, error) {
	st, err := w.read(ctx, w.at.term)
	if err != nil {
		return 0, err
	}
	place := st.cursorsOf(w.group)
	if !st.known && w.at.over && place == w.place {
		return probeEvery, nil // nobody led it; or it was deleted, which is no change of leader
	}
	if place != w.place || !st.follows(w.at) {
		// The state may be of an earlier term, if Postgres lost some.
		if st, err = w.read(ctx, 0); err != nil {
			return 0, err
		}
		w.place = st.cursorsOf(w.group)
		return st.again(), w.tellState(st, true)
	}
	for _, t := range st.tenures {
		if t.term > w.at.term {
			if err := w.tell(w.began(t), t.beginning(), false); err != nil {
				return 0, err
			}
		}
		if t.term == w.at.term && !w.at.over && !t.ended.IsZero() {
			if err := w.tell(w.lost(t), t.end(), false); err != nil {
				return 0, err
			}
		}
	}
	return st.again(), nil
}

// follows reports whether the story has everything that came after a position:
// it has the term of that position, or it is whole and begins there. A term of
// somebody else, or one that goes on, is not the one that was told of.
func (st *story) follows(at position) bool {
	if len(st.tenures) > 0 && st.tenures[0].term == at.term {
		t := st.tenures[0]
		return (at.instance == "" || at.instance == t.instance) && !(at.over && t.ended.IsZero())
	}
	return at.over && st.whole && st.base == at.term
}

// tellState tells how things are.
func (w *watch) tellState(st *story, gap bool) error {
	if t := st.present(); t != nil {
		return w.tell(w.began(*t), t.beginning(), gap)
	}
	if n := len(st.tenures); n > 0 {
		t := st.tenures[n-1]
		return w.tell(w.lost(t), t.end(), gap)
	}
	nobody := baton.Event{Type: baton.LeaderLost, Group: w.group, Term: st.base}
	return w.tell(nobody, position{term: st.base, over: true}, gap)
}

func (t tenure) beginning() position { return position{term: t.term, instance: t.instance} }
func (t tenure) end() position       { return position{term: t.term, over: true, instance: t.instance} }

func (w *watch) tell(ev baton.Event, at position, gap bool) error {
	w.at = at
	ev.Gap, ev.Cursor = gap, w.format(at)
	return w.yield(ev)
}

func (w *watch) began(t tenure) baton.Event {
	return baton.Event{
		Type: baton.LeaderChanged, Group: w.group, Term: t.term, NodeID: t.node, InstanceID: t.instance,
		Metadata: t.metadata, Time: t.elected,
	}
}

func (w *watch) lost(t tenure) baton.Event {
	return baton.Event{
		Type: baton.LeaderLost, Group: w.group, Term: t.term, PreviousNodeID: t.node, Reason: t.reason, Time: t.ended,
	}
}

// cursorsOf tells cursors of this group, in this schema of this database, from all others.
func (st *story) cursorsOf(group string) string {
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%s %s", st.store, group)
	return fmt.Sprintf("%016x", hash.Sum64())
}

func (w *watch) format(at position) baton.Cursor {
	p := feed.Position{Index: uint64(at.term)}
	if at.over {
		p.Offset = 1
	}
	return feed.FormatCursor(w.place, p)
}

func (w *watch) parse(c baton.Cursor) (position, bool) {
	p, ok := feed.ParseCursor(w.place, c)
	return position{term: baton.Term(p.Index), over: p.Offset == 1}, ok && p.Index <= uint64(baton.MaxTerm) && p.Offset <= 1
}
