package observed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"strings"
	"time"

	"baton"
)

// Watch yields the state of the group, or what came after the cursor, then
// every change. Whoever watches observes: a lease that runs out is ended by it.
//
// A cursor counts the grants and ends of the group, so it lasts for as long as
// the register keeps what happened since. Metadata of leaders that have been succeeded is not kept.
func (l *Leases) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	return func(yield func(baton.Event, error) bool) {
		if err := baton.ValidateID("group", group); err != nil {
			yield(baton.Event{}, err)
			return
		}
		inner, cancel := l.Begin(ctx, false)
		defer cancel()
		w := &watch{l: l, group: group, yield: func(ev baton.Event) bool { return yield(ev, nil) }}
		if err := w.run(inner, after); !errors.Is(err, errLeft) {
			yield(baton.Event{}, l.Fail(ctx, "watch", err))
		}
	}
}

// errLeft: whoever reads the watch has left it.
var errLeft = errors.New("the reader left")

type watch struct {
	l     *Leases
	group string
	yield func(baton.Event) bool

	at     uint64 // the position that was told last
	leader string // and who led then
	place  string
}

func (w *watch) run(ctx context.Context, after baton.Cursor) error {
	now, err := w.l.look(ctx, w.group)
	if err != nil {
		return err
	}
	w.place = now.snap.Place
	if after == "" {
		err = w.tellState(now.snap.Record, false)
	} else if place, at, ok := parseCursor(after); ok && place == w.place && at <= now.snap.Record.position() {
		w.at, w.leader = at, now.snap.Record.leader()
		err = w.follow(ctx, now)
	} else {
		err = w.tellState(now.snap.Record, true)
	}
	for err == nil {
		if err = w.l.pass(ctx, w.group, now); err != nil {
			break
		}
		if now, err = w.l.glance(ctx, w.group); err != nil {
			break
		}
		if r := now.snap.Record; r.position() < w.at || r.position() == w.at && r.leader() != w.leader {
			// What was told is not taken back on the word of an old state.
			if now, err = w.l.look(ctx, w.group); err != nil {
				break
			}
		}
		err = w.follow(ctx, now)
	}
	return err
}

// follow tells what happened between what was told last and now.
func (w *watch) follow(ctx context.Context, now sight) error {
	r := now.snap.Record
	to := r.position()
	if to == w.at && r.leader() == w.leader {
		return nil
	}
	if to <= w.at || now.snap.Place != w.place {
		// The record was lost, or a foreign holder has replaced another, which leaves no trace.
		w.place = now.snap.Place
		return w.tellState(r, true)
	}
	past := map[uint64]Past{}
	if r.Last != nil {
		past[r.Last.N] = *r.Last
	}
	if first := w.at / 2; to > w.at+1 && (r.Last == nil || r.Last.N > first) {
		// More happened than the record itself remembers.
		reading, cancel := context.WithTimeoutCause(ctx, w.l.timeout, errTimeout)
		defer cancel()
		kept, err := w.l.register.Past(reading, w.group)
		if err != nil {
			return err
		}
		for _, p := range kept {
			past[p.N] = p
		}
	}
	for at := w.at + 1; at <= to; at++ {
		if at == to && (r.Holder != nil || r.Last != nil) {
			return w.tellState(r, false)
		}
		p, ok := past[(at-1)/2]
		if !ok {
			return w.tellState(r, true)
		}
		ev := p.lost(w.group)
		if at%2 == 1 {
			ev = p.began(w.group)
		}
		if err := w.tell(ev, at, ""); err != nil {
			return err
		}
	}
	return nil
}

func (w *watch) tellState(r Record, gap bool) error {
	ev := r.event(w.group)
	ev.Gap = gap
	return w.tell(ev, r.position(), r.leader())
}

func (w *watch) tell(ev baton.Event, at uint64, leader string) error {
	w.at, w.leader = at, leader
	ev.Cursor = formatCursor(w.place, at)
	if !w.yield(ev) {
		return errLeft
	}
	return nil
}

// leader tells one leadership from another, "" if there is none.
func (r Record) leader() string {
	if r.Holder == nil {
		return ""
	}
	return fmt.Sprintf("%d %s %s", r.Holder.Term, r.Holder.Node, r.Holder.Instance)
}

// event describes the state of a group.
func (r Record) event(group string) baton.Event {
	switch h := r.Holder; {
	case h != nil:
		return baton.Event{
			Type: baton.LeaderChanged, Group: group, Term: h.Term, NodeID: h.Node, InstanceID: h.Instance,
			Metadata: maps.Clone(h.Metadata), Time: time.UnixMilli(h.Elected),
		}
	case r.Last != nil:
		ev := r.Last.lost(group)
		ev.Term = max(ev.Term, r.Term) // a foreign holder had none
		return ev
	}
	return baton.Event{Type: baton.LeaderLost, Group: group, Term: r.Term}
}

func (p Past) began(group string) baton.Event {
	return baton.Event{
		Type: baton.LeaderChanged, Group: group, Term: p.Term, NodeID: p.Node, InstanceID: p.Instance,
		Time: time.UnixMilli(p.Elected),
	}
}

func (p Past) lost(group string) baton.Event {
	return baton.Event{
		Type: baton.LeaderLost, Group: group, Term: p.Term, PreviousNodeID: p.Node,
		Reason: p.Reason, Time: time.UnixMilli(p.Ended),
	}
}

func formatCursor(place string, at uint64) baton.Cursor {
	return baton.Cursor(fmt.Sprintf("%s-%d", place, at))
}

func parseCursor(c baton.Cursor) (place string, at uint64, ok bool) {
	place, tail, ok := strings.Cut(string(c), "-")
	if !ok {
		return "", 0, false
	}
	at, err := strconv.ParseUint(tail, 10, 64)
	return place, at, err == nil && formatCursor(place, at) == c
}
