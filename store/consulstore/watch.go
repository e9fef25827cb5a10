package consulstore

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"baton"
	"baton/internal/bound"
	"baton/internal/storecall"
)

// watchWait is how long a watch lets Consul hold its request open.
const watchWait = 10 * time.Second

// Watch yields the state of the group, or what came after the cursor, then
// every change. Consul keeps no changes, only the present state. Those that
// were missed are made up from the ring of past terms, so a cursor lasts as long
// as its term is there.
func (s *Store) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	return s.calls.Watch(ctx, group, func(ctx context.Context, yield func(baton.Event) error) error {
		return (&watch{s: s, group: group, yield: yield}).run(ctx, after)
	})
}

type watch struct {
	s     *Store
	group string
	yield func(baton.Event) error

	store string // the id of the store
	at    mark
}

// mark is how far the events of a group were told.
type mark struct {
	term  baton.Term
	phase phase
}

type phase string

const (
	never phase = "n" // nobody had led since the floor was at this term
	led   phase = "l"
	lost  phase = "v"
)

func (w *watch) run(ctx context.Context, after baton.Cursor) error {
	st, err := w.load(ctx)
	if err != nil {
		return err
	}
	if w.store, err = w.identity(ctx); err != nil {
		return err
	}
	var known bool
	w.at, known = parseCursor(w.store, after)
	if known {
		err = w.catchUp(ctx, st)
	} else {
		err = w.tell(st.Event(), after != "")
	}
	for err == nil {
		if err = w.sleep(ctx, st); err != nil {
			return err
		}
		if st, err = w.load(ctx); err != nil {
			return err
		}
		err = w.catchUp(ctx, st)
	}
	return err
}

func (w *watch) load(ctx context.Context) (*state, error) {
	ctx, cancel := context.WithTimeout(ctx, w.s.timeout)
	defer cancel()
	return w.s.load(ctx, w.group, with{past: true})
}

func (w *watch) identity(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, w.s.timeout)
	defer cancel()
	return w.s.id(ctx)
}

// sleep returns when there may be something to tell. Renewals are not.
func (w *watch) sleep(ctx context.Context, st *state) error {
	for index := st.index; ; {
		pair, next, err := w.s.block(ctx, w.s.keys.lease(w.group), index, watchWait)
		switch {
		case refused(err):
			return err
		case err != nil || next < index:
			return storecall.Pause(ctx, storecall.RetryPause) // a look, which is patient, tells what is wrong
		case pair == nil && st.index == 0:
			// Nobody led yet. Consul may take any key for this one that is not there.
			if err := storecall.Pause(ctx, storecall.RetryPause); err != nil {
				return err
			}
		case pair == nil || pair.ModifyIndex != st.index && !w.renewed(pair):
			return nil
		}
		index = next
	}
}

// renewed reports whether the leadership that was told last is all that a record shows.
func (w *watch) renewed(pair *api.KVPair) bool {
	now := state{State: bound.State{Group: w.group}}
	return now.readRecord(pair) == nil && now.Held() && markOf(now.Event()) == w.at
}

// catchUp tells what happened between the mark and st.
func (w *watch) catchUp(ctx context.Context, st *state) error {
	missed, known := st.since(w.at)
	if !known && st.Last() < w.at.term {
		// It is older than what was told: a server that does not know of its
		// successor said so, unless Consul was restored from a snapshot.
		bounded, cancel := context.WithTimeout(ctx, w.s.timeout)
		defer cancel()
		if sure, err := w.s.current(bounded, st); !sure && !refused(err) {
			return storecall.Pause(ctx, storecall.RetryPause)
		}
	}
	if !known {
		return w.tell(st.Event(), true)
	}
	for _, ev := range missed {
		if err := w.tell(ev, false); err != nil {
			return err
		}
	}
	return nil
}

func (w *watch) tell(ev baton.Event, gap bool) error {
	w.at = markOf(ev)
	ev.Gap, ev.Cursor = gap, formatCursor(w.store, w.at)
	return w.yield(ev)
}

// since are the changes after a mark; known is false if they are not all there.
func (st *state) since(m mark) (changes []baton.Event, known bool) {
	if now := st.Event(); markOf(now) == m {
		return nil, true
	}
	var all []baton.Event
	for _, p := range st.past {
		all = append(all, p.Began(st.Group), p.Lost(st.Group))
	}
	if st.Held() {
		all = append(all, st.Event())
	}
	if m.phase == never {
		// All are there if none was overwritten, and if the group was not deleted
		// meanwhile, which raises the floor.
		return all, st.Floor == m.term && len(st.past) == st.Record.Ended
	}
	at := slices.IndexFunc(all, func(ev baton.Event) bool { return markOf(ev) == m })
	return all[at+1:], at >= 0
}

func markOf(ev baton.Event) mark {
	switch {
	case ev.Type == baton.LeaderChanged:
		return mark{ev.Term, led}
	case ev.Reason == "":
		return mark{ev.Term, never}
	}
	return mark{ev.Term, lost}
}

func formatCursor(store string, m mark) baton.Cursor {
	return baton.Cursor(fmt.Sprintf("%s-%s-%d", store, m.phase, m.term))
}

func parseCursor(store string, c baton.Cursor) (mark, bool) {
	parts := strings.Split(string(c), "-")
	if len(parts) != 3 || parts[0] != store || store == "" {
		return mark{}, false
	}
	m := mark{phase: phase(parts[1])}
	term, err := strconv.ParseUint(parts[2], 10, 64)
	m.term = baton.Term(term)
	return m, err == nil && (m.phase == never || m.phase == led || m.phase == lost)
}
