package redisstore

import (
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"strconv"
	"strings"
	"time"

	"baton"
)

// probeEvery is how often a watch that hears nothing looks whether there was
// something to hear; a lease that seems to run out is looked at earlier, but
// not more often than probeLeast.
const probeEvery, probeLeast = 5 * time.Second, time.Second

// Watch yields the state of the group, or what came after the cursor, then
// every change. Cursors last for as long as the history remembers their term.
func (s *Store) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	return s.calls.Watch(punctual{ctx}, group, func(ctx context.Context, tell func(baton.Event) error) error {
		return (&watch{s: s, group: group, yield: tell}).run(ctx, after)
	})
}

type watch struct {
	s     *Store
	group string
	yield func(baton.Event) error
	told  position
}

// position is a place among the changes of a group: terms rise, and each begins
// and ends once.
type position struct {
	term     baton.Term
	began    bool
	instance string // of a term that began; "" if that is not known
}

func (st *state) position() position {
	if st.holder != nil {
		return position{st.holder.Term, true, st.holder.Instance}
	}
	return position{term: st.last}
}

func (w *watch) run(ctx context.Context, after baton.Cursor) error {
	news := w.s.hub.listen(w.s.keys.channel(w.group))
	defer w.s.hub.leave(news)
	st, err := w.start(ctx, after)
	if err != nil {
		return err
	}
	for {
		timer := time.NewTimer(st.nextProbe())
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-news.C:
			timer.Stop()
		case <-timer.C:
		}
		if st, err = w.follow(ctx); err != nil {
			return err
		}
	}
}

func (st *state) nextProbe() time.Duration {
	if st.holder == nil {
		return probeEvery
	}
	return max(probeLeast, min(probeEvery, milliseconds(st.holder.until-st.now+1)))
}

// start begins behind the cursor, or at the present state.
func (w *watch) start(ctx context.Context, after baton.Cursor) (*state, error) {
	st, err := w.look(ctx, 1)
	if err != nil {
		return nil, err
	}
	if after == "" {
		return st, w.tell(st, st.event(), false)
	}
	at, place, ok := parseCursor(after)
	known := place == w.place(st.born) || place == w.place("") && at.term == 0
	if !ok || !known {
		return st, w.tell(st, st.event(), true)
	}
	w.told = at
	return w.follow(ctx)
}

// look reads the group and this many of its past terms.
func (w *watch) look(ctx context.Context, past int) (*state, error) {
	ctx, cancel := w.s.calls.Begin(ctx)
	defer cancel()
	return w.s.run(ctx, lookScript, w.group, past)
}

// follow tells what came after what was told. If that is not known any more, or
// if terms fell back, it tells the present state as a gap.
func (w *watch) follow(ctx context.Context) (*state, error) {
	st, err := w.look(ctx, 1)
	if err != nil {
		return nil, err
	}
	if st.position().is(w.told) {
		return st, nil
	}
	missed, ok := st.since(w.told)
	if !ok {
		if st, err = w.look(ctx, maxPast); err != nil {
			return nil, err
		}
		missed, ok = st.since(w.told)
	}
	if !ok {
		return st, w.tell(st, st.event(), true)
	}
	for _, ev := range missed {
		if err := w.tell(st, ev, false); err != nil {
			return nil, err
		}
	}
	return st, nil
}

func (p position) is(other position) bool {
	return p.term == other.term && p.began == other.began &&
		(p.instance == other.instance || p.instance == "" || other.instance == "")
}

// since lists the changes after a position, oldest first. It is not ok if the
// first of them is not the one that follows.
func (st *state) since(p position) (missed []baton.Event, ok bool) {
	for i := len(st.past) - 1; i >= 0; i-- {
		one := st.past[i]
		if one.Term > p.term {
			missed = append(missed, one.begun(st.group))
		}
		if one.Term > p.term || one.Term == p.term && p.began {
			missed = append(missed, one.over(st.group))
		}
	}
	if h := st.holder; h != nil && h.Term > p.term {
		missed = append(missed, h.begun(st.group))
	}
	if len(missed) == 0 {
		return nil, st.position().is(p)
	}
	next := missed[0]
	if !p.began {
		return missed, next.Type == baton.LeaderChanged && next.Term == p.term+1
	}
	return missed, next.Type == baton.LeaderLost && next.Term == p.term
}

func (w *watch) tell(st *state, ev baton.Event, gap bool) error {
	ev.Gap = gap
	w.told = position{term: ev.Term, began: ev.Type == baton.LeaderChanged, instance: ev.InstanceID}
	ev.Cursor = formatCursor(w.told, w.place(st.born))
	return w.yield(ev)
}

func (p past) begun(group string) baton.Event {
	return baton.Event{
		Type: baton.LeaderChanged, Group: group, Term: p.Term, NodeID: p.Node, InstanceID: p.Instance,
		Metadata: p.metadata(), Time: time.UnixMilli(p.Elected),
	}
}

func (p past) over(group string) baton.Event {
	return baton.Event{
		Type: baton.LeaderLost, Group: group, Term: p.Term, PreviousNodeID: p.Node,
		Reason: p.Reason, Time: time.UnixMilli(p.Ended),
	}
}

// event describes the state of a group.
func (st *state) event() baton.Event {
	switch {
	case st.holder != nil:
		return st.holder.begun(st.group)
	case len(st.past) > 0 && st.past[0].Term == st.last:
		return st.past[0].over(st.group)
	}
	return baton.Event{Type: baton.LeaderLost, Group: st.group, Term: st.last}
}

// place tells this group here from all others, for cursors.
func (w *watch) place(born string) uint64 {
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%s %s %s", w.s.keys, w.group, born)
	return hash.Sum64()
}

func formatCursor(p position, place uint64) baton.Cursor {
	phase := "ended"
	if p.began {
		phase = "began"
	}
	return baton.Cursor(fmt.Sprintf("%016x-%d-%s", place, p.term, phase))
}

func parseCursor(c baton.Cursor) (p position, place uint64, ok bool) {
	parts := strings.Split(string(c), "-")
	if len(parts) != 3 || len(parts[0]) != 16 || parts[2] != "began" && parts[2] != "ended" {
		return position{}, 0, false
	}
	place, err := strconv.ParseUint(parts[0], 16, 64)
	if err != nil {
		return position{}, 0, false
	}
	term, err := strconv.ParseUint(parts[1], 10, 64)
	return position{term: baton.Term(term), began: parts[2] == "began"}, place, err == nil && baton.Term(term) <= baton.MaxTerm
}
