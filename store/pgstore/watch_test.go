package pgstore_test

import (
	"context"
	"sync"
	"testing"

	"baton"
)

// watching reads a watch in the background.
func (o *one) watching(group string, after baton.Cursor) <-chan baton.Event {
	o.t.Helper()
	events := make(chan baton.Event, 100)
	ctx, cancel := context.WithCancel(o.t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		for ev, err := range o.Watch(ctx, group, after) {
			if err == nil {
				events <- ev
			}
		}
	})
	o.t.Cleanup(func() { cancel(); reading.Wait() })
	return events
}

// A failover to a standby that was not synchronous takes back what was told.
// Who watches hears of it, as a gap, and of nothing twice.
func TestAWatchAfterTermsWereLost(t *testing.T) {
	t.Parallel()
	t.Run("a term is granted to another", func(t *testing.T) {
		t.Parallel()
		o := newOne(t)
		o.lead("g", "a", baton.MaxTTL)
		events := o.watching("g", "")
		within(t, "the state", events)
		o.exec(`UPDATE baton.lease SET node = 'node-b', instance = 'b' WHERE grp = 'g'`)
		o.exec(`SELECT baton.hint('{g}')`)
		if ev := within(t, "the other leader of this term", events); ev.NodeID != "node-b" || ev.Term != 1 || !ev.Gap {
			t.Errorf("got %+v, want node-b in term 1 as a gap", ev)
		}
	})
	t.Run("a leadership that had ended stands", func(t *testing.T) {
		t.Parallel()
		o := newOne(t)
		l := o.lead("g", "a", baton.MaxTTL)
		o.exec(`CREATE TABLE baton.standby AS SELECT * FROM baton.lease`)
		o.release(l)
		events := o.watching("g", "")
		within(t, "the state", events)
		o.exec(`UPDATE baton.lease SET (term, ended, node, instance, ttl_us, ends, elected, gap_us)
			= (SELECT term, ended, node, instance, ttl_us, ends, elected, gap_us FROM baton.standby)`)
		o.exec(`DELETE FROM baton.past_term`)
		o.exec(`SELECT baton.hint('{g}')`)
		if ev := within(t, "the leader", events); ev.NodeID != "node-a" || !ev.Gap {
			t.Errorf("got %+v, want node-a as a gap", ev)
		}
	})
	t.Run("terms fall", func(t *testing.T) {
		t.Parallel()
		o := newOne(t)
		o.release(o.lead("g", "a", baton.MaxTTL))
		o.release(o.lead("g", "b", baton.MaxTTL))
		o.exec(`CREATE TABLE baton.standby AS SELECT * FROM baton.lease`)
		for _, lost := range []string{"c", "d", "e"} {
			o.release(o.lead("g", lost, baton.MaxTTL))
		}
		events := o.watching("g", "")
		told := within(t, "the state", events)
		o.exec(`UPDATE baton.lease SET (term, ended, last_node, last_instance) = (SELECT term, ended, last_node, last_instance FROM baton.standby)`)
		o.exec(`DELETE FROM baton.past_term WHERE term > 2`)
		o.exec(`SELECT baton.hint('{g}')`)
		later := o.watching("g", told.Cursor)
		for what, events := range map[string]<-chan baton.Event{"under way": events, "after its last cursor": later} {
			ev := within(t, "the state after the loss", events)
			if ev.Type != baton.LeaderLost || ev.Term != 2 || ev.Reason != baton.Resigned || !ev.Gap {
				t.Errorf("a watch %s: %+v, want the end of term 2 as a gap", what, ev)
			}
		}
		next := o.lead("g", "f", baton.MaxTTL)
		for what, events := range map[string]<-chan baton.Event{"under way": events, "after its last cursor": later} {
			if ev := within(t, "the next leader", events); ev.Term != next.Term || ev.NodeID != next.NodeID || ev.Gap {
				t.Errorf("a watch %s: %+v, want term %d", what, ev, next.Term)
			}
		}
	})
}

// What docs/stores/postgres.md says to do after a restore makes old cursors
// foreign, also to stores that were open all the time.
func TestANewIdMakesCursorsForeign(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	l := o.lead("g", "a", baton.MaxTTL)
	events := o.watching("g", "")
	told := within(t, "the state", events)
	o.exec(`UPDATE baton.store SET floor = 1000000, id = gen_random_uuid()`)
	if ev := within(t, "the state again", o.watching("g", told.Cursor)); !ev.Gap || ev.Term != l.Term {
		t.Errorf("after a cursor from before the restore: %+v, want the state as a gap", ev)
	}
	o.release(l)
	ev := within(t, "what the watch that was under way makes of it", events)
	if !ev.Gap {
		t.Errorf("under way: %+v, want the state as a gap", ev)
	}
	if ev.Type == baton.LeaderChanged { // it looked before the release
		ev = within(t, "the loss", events)
	}
	next := o.lead("g", "b", baton.MaxTTL)
	if ev := within(t, "what came after a new cursor", o.watching("g", ev.Cursor)); ev.Gap || ev.Term != next.Term || next.Term != 1000001 {
		t.Errorf("after a cursor from behind the restore: %+v, want term %d", ev, next.Term)
	}
}
