package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"baton"
	"baton/internal/bound"
)

// probeEvery is how often a watch that hears nothing looks whether there was
// something to hear: a connection that is cut says nothing of it.
const probeEvery = 5 * time.Second

// Watch yields the state of the group, or what came after the cursor, then
// every change. Cursors are revisions of etcd; they last until etcd compacts them.
func (s *Store) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	return s.calls.Watch(ctx, group, func(ctx context.Context, yield func(baton.Event) error) error {
		return (&watch{s: s, group: group, yield: yield}).run(ctx, after)
	})
}

type watch struct {
	s     *Store
	group string
	yield func(baton.Event) error

	seen *state      // the group as far as events have told
	told baton.Event // what was yielded last, or what the cursor stands for
	late int         // probes in a row that found more than events have told
}

func (w *watch) run(ctx context.Context, after baton.Cursor) error {
	if err := w.start(ctx, after); err != nil {
		return err
	}
	events := w.open(ctx)
	defer func() { events.stop() }()
	again := func() {
		events.stop()
		events = w.open(ctx)
	}
	probe := time.NewTicker(probeEvery)
	defer probe.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case resp, ok := <-events.C:
			switch {
			case !ok:
				return errors.New("etcd ended the watch")
			case errors.Is(resp.Err(), rpctypes.ErrCompacted):
				if err := w.resync(ctx); err != nil {
					return err
				}
				again()
				continue
			case resp.Err() != nil:
				return resp.Err()
			}
			if err := w.follow(resp.Events); err != nil {
				return err
			}
		case <-probe.C:
			if err := w.probe(ctx); err != nil {
				return err
			}
			if !w.s.members.uses(events.at) {
				again()
			}
		}
	}
}

func (w *watch) open(ctx context.Context) *stream {
	return w.s.stream(ctx, w.s.keys.lease(w.group), clientv3.WithPrefix(), clientv3.WithRev(w.seen.revision+1))
}

// start finds where to begin: behind the cursor, or at the present state.
func (w *watch) start(ctx context.Context, after baton.Cursor) error {
	now, err := w.load(ctx)
	if err != nil {
		return err
	}
	w.seen = now
	if after == "" {
		return w.tell(now.Event(), false)
	}
	if place, revision, ok := parseCursor(after); ok && place == w.s.keys.in(now.cluster) && revision <= now.revision {
		then, err := w.readAt(ctx, revision, now.cluster)
		if err == nil {
			w.seen, w.told = then, then.Event()
			return nil
		}
		if !errors.Is(err, rpctypes.ErrCompacted) {
			return err
		}
	}
	return w.tell(now.Event(), true)
}

// resync goes on from the present state, and says that something may be missing.
func (w *watch) resync(ctx context.Context) error {
	now, err := w.load(ctx)
	if err != nil {
		return err
	}
	w.seen, w.late = now, 0
	return w.tell(now.Event(), true)
}

func (w *watch) load(ctx context.Context) (*state, error) {
	ctx, cancel := context.WithTimeout(ctx, w.s.timeout)
	defer cancel()
	return w.s.load(ctx, w.group, false)
}

// readAt is the group at an earlier revision.
func (w *watch) readAt(ctx context.Context, revision int64, cluster uint64) (*state, error) {
	ctx, cancel := context.WithTimeout(ctx, w.s.timeout)
	defer cancel()
	resp, err := ask(ctx, w.s, func(ctx context.Context, c *clientv3.Client) (*clientv3.GetResponse, error) {
		return c.Get(ctx, w.s.keys.lease(w.group), clientv3.WithPrefix(), clientv3.WithRev(revision))
	})
	if err != nil {
		return nil, err
	}
	st := &state{State: bound.State{Group: w.group}, revision: revision, cluster: cluster}
	for _, kv := range resp.Kvs {
		if err := w.take(st, mvccpb.PUT, kv); err != nil {
			return nil, err
		}
	}
	return st, nil
}

// probe looks whether the watch keeps up, and whether etcd is there at all. A
// change that two probes have found and no event has told is told as a gap.
func (w *watch) probe(ctx context.Context) error {
	now, err := w.load(ctx)
	if err != nil {
		return err
	}
	if max(now.recordRev, now.boundRev) <= w.seen.revision {
		w.late = 0
		return nil
	}
	if w.late++; w.late < 2 {
		return nil
	}
	w.late, w.seen = 0, now
	return w.tell(now.Event(), true)
}

// follow takes in events, a revision at a time: what one transaction changed is one change.
func (w *watch) follow(events []*clientv3.Event) error {
	known := w.seen.revision
	for i, ev := range events {
		revision := ev.Kv.ModRevision
		if revision <= known {
			continue // a probe was faster
		}
		if err := w.take(w.seen, ev.Type, ev.Kv); err != nil {
			return err
		}
		w.seen.revision = revision
		if i+1 < len(events) && events[i+1].Kv.ModRevision == revision {
			continue
		}
		if err := w.report(); err != nil {
			return err
		}
	}
	return nil
}

// take changes what was seen by one key.
func (w *watch) take(st *state, what mvccpb.Event_EventType, kv *mvccpb.KeyValue) error {
	switch key := string(kv.Key); {
	case key == w.s.keys.record(w.group) && what == mvccpb.PUT:
		return st.readRecord(kv)
	case key == w.s.keys.record(w.group):
		st.Record, st.recordRev = bound.Record{}, 0
	case key == w.s.keys.bound(w.group) && what == mvccpb.PUT:
		return st.readBound(kv)
	case key == w.s.keys.bound(w.group):
		st.Bound, st.boundTerm, st.boundRev = false, 0, kv.ModRevision
	}
	return nil
}

// report tells what changed since it last told something.
func (w *watch) report() error {
	if w.seen.recordRev == 0 {
		return nil // the group was deleted; nobody led it
	}
	now := w.seen.Event()
	if now.Type == w.told.Type && now.Term == w.told.Term {
		return nil
	}
	return w.tell(now, now.Type == w.told.Type)
}

func (w *watch) tell(ev baton.Event, gap bool) error {
	ev.Gap = gap
	ev.Cursor = formatCursor(w.s.keys.in(w.seen.cluster), w.seen.revision)
	w.told = ev
	return w.yield(ev)
}

func formatCursor(place uint64, revision int64) baton.Cursor {
	return baton.Cursor(fmt.Sprintf("%016x-%d", place, revision))
}

func parseCursor(c baton.Cursor) (place uint64, revision int64, ok bool) {
	head, tail, ok := strings.Cut(string(c), "-")
	if !ok || len(head) != 16 {
		return 0, 0, false
	}
	place, err := strconv.ParseUint(head, 16, 64)
	if err != nil {
		return 0, 0, false
	}
	revision, err = strconv.ParseInt(tail, 10, 64)
	return place, revision, err == nil && revision > 0
}
