package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"baton"
	"baton/storetest/history"
)

// load is nodes that campaign, renew, release, vanish and watch, through all
// servers of a cluster, while every answer is written down.
type load struct {
	c       *cluster
	log     *history.Log
	groups  []string
	stop    chan struct{}
	running sync.WaitGroup
	watched sync.Map // group -> *watched
}

// startLoad has two nodes compete in each of the groups. It is stopped at the
// end of the test, if not before.
func startLoad(c *cluster, groups int) *load {
	l := &load{c: c, log: history.NewLog(nil), stop: make(chan struct{})}
	for i := range groups {
		group := fmt.Sprintf("load-%d", i)
		l.groups = append(l.groups, group)
		for n := range 2 {
			client := fmt.Sprintf("%s/node-%d", group, n)
			first := (i + n) % len(c.ids)
			store := l.log.Record(client, c.open(c.config(append(slices.Clone(c.ids[first:]), c.ids[:first]...)...)))
			l.running.Go(func() { l.compete(store, group, fmt.Sprintf("node-%d", n)) })
		}
		first := i % len(c.ids)
		watching := c.open(c.config(append(slices.Clone(c.ids[first:]), c.ids[:first]...)...))
		l.running.Go(func() { l.watch(watching, group) })
	}
	var once sync.Once
	c.t.Cleanup(func() { once.Do(l.end) })
	return l
}

func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.running.Wait()
}

// progress waits until that many more requests have been granted.
func (l *load) progress(t *testing.T, more int) {
	t.Helper()
	before := granted(l.log.Ops())
	eventually(t, "the load going on", func() bool { return granted(l.log.Ops()) >= before+more })
}

func granted(ops []history.Op) (n int) {
	for _, op := range ops {
		if op.Ended != 0 && op.Err == nil {
			n++
		}
	}
	return n
}

func (l *load) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-l.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-ended }
}

// compete leads again and again: for a while, then it resigns, or vanishes and lets the lease run out.
func (l *load) compete(s baton.Store, group, node string) {
	ctx, cancel := l.context()
	defer cancel()
	const ttl = time.Second
	for pause(l.stop, rand.N(60*time.Millisecond)) {
		c := baton.Candidate{NodeID: node, InstanceID: baton.NewInstanceID()}
		lease, err := s.Acquire(ctx, group, c, ttl)
		for tries := 0; err != nil && !baton.IsAnswer(err) && tries < 3 && pause(l.stop, 20*time.Millisecond); tries++ {
			lease, err = s.Acquire(ctx, group, c, ttl) // the first may have won
		}
		if err != nil {
			continue
		}
		for range 3 + rand.IntN(20) {
			if !pause(l.stop, rand.N(40*time.Millisecond)) {
				return
			}
			if _, err := s.Renew(ctx, lease.ID(), ttl); errors.Is(err, baton.ErrNotLeader) {
				break
			}
		}
		if rand.IntN(4) > 0 {
			_ = s.Release(ctx, lease.ID()) // what came of it is in the log
		}
	}
}

// watched is what a watcher saw.
type watched struct {
	events int
	last   baton.Term
	wrong  string
}

// watch follows the group: terms never fall, and no term has two leaders.
func (l *load) watch(s baton.Store, group string) {
	ctx, cancel := l.context()
	defer cancel()
	w := &watched{}
	l.watched.Store(group, w)
	leaders := map[baton.Term]string{}
	var cursor baton.Cursor
	for ctx.Err() == nil {
		for e, err := range s.Watch(ctx, group, cursor) {
			if err != nil {
				break
			}
			cursor = e.Cursor
			w.events++
			if e.Term < w.last {
				w.wrong = fmt.Sprintf("term %d after %d", e.Term, w.last)
			}
			w.last = e.Term
			if e.Type == baton.LeaderChanged {
				if other, ok := leaders[e.Term]; ok && other != e.InstanceID {
					w.wrong = fmt.Sprintf("term %d belongs to %s and to %s", e.Term, other, e.InstanceID)
				}
				leaders[e.Term] = e.InstanceID
			}
		}
		if !pause(l.stop, 20*time.Millisecond) {
			return
		}
	}
}

// check ends the load and judges what its nodes were told: by the history
// checker, and by a ledger of acknowledgements that knows nothing of it.
func (l *load) check(t *testing.T) {
	t.Helper()
	l.end()
	ops := l.log.Ops()
	t.Logf("%d requests, %d of them granted", len(ops), granted(ops))
	survivor := l.c.open(l.c.config(l.c.ids...))
	for _, group := range l.groups {
		last, err := survivor.Get(t.Context(), group)
		if err != nil {
			t.Fatalf("read %s: %v", group, err)
		}
		for _, wrong := range audit(ops, group, last.Term) {
			t.Errorf("%s: %s", group, wrong)
		}
		if v, ok := l.watched.Load(group); !ok || v.(*watched).events == 0 {
			t.Errorf("%s: its watcher saw nothing", group)
		} else if w := v.(*watched); w.wrong != "" {
			t.Errorf("%s: its watcher saw %s", group, w.wrong)
		}
	}
	r := history.Check(ops, history.Options{Duplicates: true, Slack: 20 * time.Millisecond})
	if r.Verdict != history.OK {
		t.Errorf("history of %s is %s: %s", r.Group, r.Verdict, r.Detail)
	}
}

// reign is what clients were told of one term.
type reign struct {
	instance  string
	asked     time.Duration // when the request was sent that was granted first
	told      time.Duration // when that was known
	protected time.Duration // until then nobody else may have it
	released  time.Duration // when the first release of it was sent; 0 if none was
}

// audit says what is wrong with the acknowledgements of a group, if last is its term now.
func audit(ops []history.Op, group string, last baton.Term) (wrong []string) {
	reigns := map[baton.Term]*reign{}
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, op := range ops {
		if op.Group != group {
			continue
		}
		if op.Kind == history.Release {
			if r := reigns[op.Term]; r != nil && r.released == 0 {
				r.released = op.Call
			}
			continue
		}
		if op.Err != nil || op.Ended == 0 || op.Kind != history.Acquire && op.Kind != history.Renew {
			continue
		}
		r := reigns[op.Lease.Term]
		if r == nil {
			r = &reign{instance: op.Instance, asked: op.Call, told: op.Return}
			reigns[op.Lease.Term] = r
		}
		if r.instance != op.Instance {
			say("term %d was acknowledged to %s and to %s", op.Lease.Term, r.instance, op.Instance)
		}
		r.told = min(r.told, op.Return)
		r.protected = max(r.protected, op.Call+op.Lease.Remaining)
	}
	var terms []baton.Term
	for term := range reigns {
		terms = append(terms, term)
		if term > last {
			say("term %d was acknowledged and is lost: the group is at %d", term, last)
		}
	}
	slices.SortFunc(terms, cmp.Compare[baton.Term])
	const slack = 5 * time.Millisecond
	for i, term := range terms {
		next := reigns[term]
		for _, before := range terms[:i] {
			r := reigns[before]
			if next.told < r.asked {
				say("term %d was acknowledged before term %d was asked for", term, before)
			}
			if next.told+slack < r.protected && (r.released == 0 || r.released > next.told) {
				say("term %d was cut short: promised until %v, and term %d was known at %v", before, r.protected, term, next.told)
			}
		}
	}
	return wrong
}

// The ledger of acknowledgements can see what it is for.
func TestAudit(t *testing.T) {
	t.Parallel()
	op := func(kind history.Kind, instance string, term baton.Term, call, ret int, left time.Duration) history.Op {
		return history.Op{
			Kind: kind, Group: "g", Instance: instance, Term: term, Call: time.Duration(call) * time.Second, Return: time.Duration(ret) * time.Second, Ended: 1,
			Lease: baton.Lease{Group: "g", InstanceID: instance, Term: term, Remaining: left},
		}
	}
	won := func(instance string, term baton.Term, call, ret int) history.Op {
		return op(history.Acquire, instance, term, call, ret, 10*time.Second)
	}
	for name, c := range map[string]struct {
		ops   []history.Op
		last  baton.Term
		wrong bool
	}{
		"right":                 {[]history.Op{won("a", 1, 0, 1), won("b", 2, 11, 12)}, 2, false},
		"released":              {[]history.Op{won("a", 1, 0, 1), op(history.Release, "a", 1, 2, 3, 0), won("b", 2, 3, 4)}, 2, false},
		"lost":                  {[]history.Op{won("a", 5, 0, 1)}, 4, true},
		"repeated":              {[]history.Op{won("a", 1, 0, 1), won("b", 1, 20, 21)}, 1, true},
		"cut short":             {[]history.Op{won("a", 1, 0, 1), op(history.Renew, "a", 1, 8, 9, 10*time.Second), won("b", 2, 11, 12)}, 2, true},
		"fell":                  {[]history.Op{won("a", 5, 0, 1), won("b", 4, 20, 21)}, 5, true},
		"cut by a late release": {[]history.Op{won("a", 1, 0, 1), won("b", 2, 3, 4), op(history.Release, "a", 1, 5, 6, 0)}, 2, true},
	} {
		if got := audit(c.ops, "g", c.last); (len(got) > 0) != c.wrong {
			t.Errorf("%s: %q", name, got)
		}
	}
}
