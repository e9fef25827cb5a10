package storetest

import (
	"context"
	"errors"
	"fmt"

	"baton"
)

var watchCases = []Case{
	rule("Watch/CurrentState", watchCurrent),
	rule("Watch/ChangesInOrder", watchChanges),
	rule("Watch/Expiry", watchExpiry),
	rule("Watch/RenewalsAreNoChange", watchRenewals),
	rule("Watch/Resume", watchResume),
	rule("Watch/UnknownCursor", watchUnknownCursor),
	rule("Watch/ForeignCursor", watchForeignCursor),
	rule("Watch/SlowReader", watchSlowReader),
	rule("Watch/BreakEndsIt", watchBreak),
}

// watchCurrent begins watches in each state that a group can be in.
func watchCurrent(e *env) {
	first := e.watch(e.store, "").next()
	if first.Type != baton.LeaderLost || first.Reason != "" || first.Gap {
		e.Errorf("the state of a group that nobody led: %+v", first)
	}
	a := candidate("node-a")
	a.Metadata = map[string]string{"zone": "eu-1"}
	l := e.grant(e.store, a, e.long)
	ev := e.watch(e.open(), "").next()
	if changeOf(ev) != began(l) || ev.InstanceID != a.InstanceID || ev.Gap || ev.Metadata["zone"] != "eu-1" {
		e.Errorf("the state of a group that is led: %+v, want %s", ev, l.ID())
	}
	if ev.Time.IsZero() {
		e.Errorf("the event has no time: %+v", ev)
	}
	e.release(e.store, l.ID())
	ev = e.watch(e.open(), "").next()
	if ev.Type != baton.LeaderLost || ev.Term != l.Term || ev.Gap {
		e.Errorf("the state of a group that was led: %+v, want vacant after term %d", ev, l.Term)
	}
}

func watchChanges(e *env) {
	watchers := []*watcher{e.watch(e.store, ""), e.watch(e.open(), "")}
	for _, w := range watchers {
		w.next()
	}
	other := e.open()
	var want []change
	for i := range 5 {
		l := e.grant(other, candidate(fmt.Sprintf("node-%d", i)), e.long)
		e.release(e.store, l.ID())
		want = append(want, began(l), lost(l, baton.Resigned))
	}
	last := e.grant(e.store, candidate("node-last"), e.long)
	want = append(want, began(last))
	for _, w := range watchers {
		w.expect(want...)
	}
}

func watchExpiry(e *env) {
	w := e.watch(e.open(), "")
	w.next()
	l := e.grant(e.store, candidate("node-a"), e.short)
	w.expect(began(l))
	// Somebody campaigns, as somebody always does: a store need not look by itself.
	next, _ := e.takeOver(e.store, candidate("node-b"), e.long, e.lapse(l.TTL))
	w.expect(lost(l, baton.Expired), began(next))
}

func watchRenewals(e *env) {
	w := e.watch(e.open(), "")
	w.next()
	a := candidate("node-a")
	l := e.grant(e.store, a, e.long)
	for range 3 {
		e.renew(e.store, l.ID(), e.long)
		e.grant(e.store, a, e.long)
	}
	_, _ = e.store.Acquire(e.Context(), e.group, candidate("node-b"), e.long)
	_, _ = e.store.Renew(e.Context(), baton.LeaseID{Group: e.group, NodeID: "node-b", InstanceID: "i", Term: l.Term}, e.long)
	e.release(e.store, l.ID())
	w.expect(began(l), lost(l, baton.Resigned))
}

// watchResume takes up a watch after each of the events it gave.
func watchResume(e *env) {
	w := e.watch(e.store, "")
	seen := []baton.Event{w.next()}
	var want []change
	for i := range 3 {
		l := e.grant(e.store, candidate(fmt.Sprintf("node-%d", i)), e.long)
		e.release(e.store, l.ID())
		want = append(want, began(l), lost(l, baton.Resigned))
	}
	seen = append(seen, w.expect(want...)...)
	if len(seen) != len(want)+1 {
		e.Logf("the first watch gave %d events for %d changes: it resumes from those", len(seen), len(want))
	}
	last := e.grant(e.store, candidate("node-last"), e.long)
	want = append(want, began(last))
	handle := e.open()
	for _, ev := range seen {
		rest := want
		for len(rest) > 0 && (rest[0].Term < ev.Term || rest[0].Term == ev.Term && (rest[0].Type == ev.Type || ev.Type == baton.LeaderLost)) {
			rest = rest[1:]
		}
		e.watch(handle, ev.Cursor).expect(rest...)
	}
	// At the end there is nothing to give but what comes.
	end := e.watch(handle, e.watch(handle, "").next().Cursor)
	e.release(e.store, last.ID())
	end.expect(lost(last, baton.Resigned))
}

func watchUnknownCursor(e *env) {
	l := e.grant(e.store, candidate("node-a"), e.long)
	for _, c := range []baton.Cursor{"garbage", "0", "-1", "999999999999999999999", "a:b:c", "\x00\xff", "{}", "AAAA/BBBB=="} {
		w := e.watch(e.store, c)
		ev := w.next()
		if !ev.Gap || changeOf(ev) != began(l) {
			e.Errorf("watch after the unknown cursor %q: %+v, want the current state marked as a gap", c, ev)
		}
		w.cancel()
	}
	w := e.watch(e.store, "garbage")
	w.next()
	e.release(e.store, l.ID())
	w.expect(lost(l, baton.Resigned))
}

// watchForeignCursor gives one store a cursor of another, if the harness has two.
func watchForeignCursor(e *env) {
	l := e.grant(e.store, candidate("node-a"), e.long)
	cursor := e.watch(e.store, "").next().Cursor
	other := *e
	other.back = e.start(e.T)
	other.store = other.open()
	if other.get(other.store).Held() {
		e.Logf("the harness shares one store: there is no foreign cursor")
		return
	}
	lb := other.grant(other.store, candidate("node-b"), e.long)
	ev := other.watch(other.store, cursor).next()
	if !ev.Gap || changeOf(ev) != began(lb) {
		e.Errorf("watch after the cursor of another store, which was at term %d there: %+v, want the current state marked as a gap", l.Term, ev)
	}
}

// watchSlowReader stops reading while the group changes: neither may wait for the other for good.
func watchSlowReader(e *env) {
	const changes = 60
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	var last baton.Lease
	events := 0
	var term baton.Term
	for ev, err := range e.open().Watch(ctx, e.group, "") {
		if err != nil {
			e.Fatalf("watch: %v", err)
		}
		if events++; events == 1 {
			for range changes {
				l := e.grant(e.store, candidate("node-a"), e.long)
				e.release(e.store, l.ID())
			}
			last = e.grant(e.store, candidate("node-last"), e.long)
			continue
		}
		if ev.Term < term {
			e.Fatalf("term %d after %d", ev.Term, term)
		}
		if term = ev.Term; term == last.Term {
			break
		}
	}
	if want := 2*changes + 2; events > want {
		e.Errorf("%d events for %d changes", events, want)
	}
}

func watchBreak(e *env) {
	err := e.returns("a watch that its reader leaves", func() error {
		for _, err := range e.store.Watch(e.Context(), e.group, "") {
			return err
		}
		return errors.New("the watch yields nothing")
	})
	if err != nil {
		e.Errorf("watch: %v", err)
	}
}
