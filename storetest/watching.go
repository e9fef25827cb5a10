package storetest

import (
	"context"
	"iter"
	"slices"

	"baton"
)

// watcher reads a watch in the background, so that a check can wait for the next event with a limit.
type watcher struct {
	e      *env
	events chan baton.Event
	ended  chan error // the last yield's error, nil if there was none
	cancel context.CancelFunc
}

func (e *env) watch(s baton.Store, after baton.Cursor) *watcher {
	ctx, cancel := context.WithCancel(e.Context())
	w := &watcher{e: e, events: make(chan baton.Event, 1024), ended: make(chan error, 1), cancel: cancel}
	group := e.group
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(w.events)
		var last error
		for ev, err := range s.Watch(ctx, group, after) {
			if last = err; err != nil {
				continue // it must be the last
			}
			select {
			case w.events <- ev:
			case <-ctx.Done():
			}
		}
		w.ended <- last
	}()
	e.Cleanup(func() { cancel(); <-done })
	return w
}

// next waits for an event.
func (w *watcher) next() baton.Event {
	w.e.Helper()
	ctx, cancel := w.e.within(w.e.patience)
	defer cancel()
	select {
	case ev, ok := <-w.events:
		if !ok {
			w.e.Fatalf("the watch ended: %v", <-w.ended)
		}
		w.check(ev)
		return ev
	case <-ctx.Done():
		w.e.Fatalf("no event after %v", w.e.patience)
	}
	return baton.Event{}
}

// end waits for the end of the watch and returns its last yield's error.
func (w *watcher) end() error {
	w.e.Helper()
	ctx, cancel := w.e.within(w.e.patience)
	defer cancel()
	for {
		select {
		case _, ok := <-w.events:
			if !ok {
				return <-w.ended
			}
		case <-ctx.Done():
			w.e.Fatalf("the watch has not ended after %v", w.e.patience)
		}
	}
}

// check looks at what every event must have.
func (w *watcher) check(ev baton.Event) {
	w.e.Helper()
	switch ev.Type {
	case baton.LeaderChanged:
		if ev.NodeID == "" || ev.InstanceID == "" || ev.Term == 0 {
			w.e.Errorf("event without a leader: %+v", ev)
		}
	case baton.LeaderLost:
		if ev.NodeID != "" || ev.InstanceID != "" {
			w.e.Errorf("event of a lost leader that names a leader: %+v", ev)
		}
	default:
		w.e.Errorf("event of type %q", ev.Type)
	}
	if ev.Group != w.e.group {
		w.e.Errorf("event of group %q: want %q", ev.Group, w.e.group)
	}
	if ev.Cursor == "" {
		w.e.Errorf("event without a cursor: %+v", ev)
	}
}

// change is what matters of an event when a sequence is compared.
type change struct {
	Type   baton.EventType
	Term   baton.Term
	Node   string
	Reason baton.Reason
}

func changeOf(ev baton.Event) change {
	c := change{Type: ev.Type, Term: ev.Term, Node: ev.NodeID, Reason: ev.Reason}
	if ev.Type == baton.LeaderLost {
		c.Node = ev.PreviousNodeID
	}
	return c
}

func began(l baton.Lease) change {
	return change{Type: baton.LeaderChanged, Term: l.Term, Node: l.NodeID}
}

func lost(l baton.Lease, r baton.Reason) change {
	return change{Type: baton.LeaderLost, Term: l.Term, Node: l.NodeID, Reason: r}
}

// expect reads events until the last of want has come. Every change comes at most once and in order; one may
// be missing only behind an event that says so.
func (w *watcher) expect(want ...change) (seen []baton.Event) {
	w.e.Helper()
	for len(want) > 0 {
		ev := w.next()
		seen = append(seen, ev)
		got := changeOf(ev)
		at := slices.IndexFunc(want, func(c change) bool { return sameChange(got, c, ev.Gap) })
		switch {
		case at < 0:
			w.e.Fatalf("the watch yields %+v (gap %t): want %+v", got, ev.Gap, want[0])
		case at > 0 && !ev.Gap:
			w.e.Fatalf("the watch skipped %+v and went on with %+v, without a gap", want[0], got)
		}
		if ev.Gap {
			w.e.Logf("the watch gave a gap, and passed over %d changes", at)
		}
		want = want[at+1:]
	}
	return seen
}

// sameChange compares; a state behind a gap need not know who led before, nor why it ended.
func sameChange(got, want change, gap bool) bool {
	if gap && want.Type == baton.LeaderLost {
		return got.Type == want.Type && got.Term == want.Term
	}
	return got == want
}

// firstError reads a watch until it yields an error; nil if it ends without one.
func firstError(w iter.Seq2[baton.Event, error]) error {
	for _, err := range w {
		if err != nil {
			return err
		}
	}
	return nil
}
