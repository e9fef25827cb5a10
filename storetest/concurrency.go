package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"baton"
	"baton/storetest/history"
)

var concurrencyCases = []Case{
	rule("Concurrency/HistoryIsLinearizable", concurrentHistory),
	rule("Concurrency/OneWinner", oneWinner),
}

// oneWinner lets many ask at the same moment, round after round.
func oneWinner(e *env) {
	const candidates, rounds = 8, 5
	handles := []baton.Store{e.store, e.open(), e.open()}
	var terms rising
	for range rounds {
		var mu sync.Mutex
		var won []baton.Lease
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range candidates {
			wg.Go(func() {
				<-start
				l, err := handles[i%len(handles)].Acquire(e.Context(), e.group, candidate(fmt.Sprintf("node-%d", i)), e.long)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won = append(won, l)
				case !errors.Is(err, baton.ErrHeld):
					e.Errorf("acquire at once with others: %v", err)
				}
			})
		}
		close(start)
		wg.Wait()
		if len(won) != 1 {
			e.Fatalf("%d of %d candidates won one vacant group", len(won), candidates)
		}
		terms.next(e, "a release", won[0].Term)
		e.release(e.store, won[0].ID())
	}
}

// concurrentHistory lets clients on several handles campaign, renew, read,
// release and die, and checks what they saw.
func concurrentHistory(e *env) {
	log := history.NewLog(e.clock)
	load := e.load(120, 2)
	var clients []baton.Store
	for i := range 3 {
		clients = append(clients, log.Record(fmt.Sprintf("client-%d", i), e.open()))
	}
	load.run(e.Context(), clients)
	for _, op := range log.Ops() {
		// A grant that was over before it could be told is of unknown outcome, and nobody's fault.
		late := op.Kind == history.Acquire && op.Return-op.Call >= op.TTL
		if op.Err != nil && !baton.IsAnswer(op.Err) && !late {
			e.Errorf("a healthy store: %v", op)
		}
	}
	e.judge(log, history.Options{})
}

// judge fails the check unless the history is proved right.
func (e *env) judge(log *history.Log, o history.Options) {
	e.Helper()
	ops := log.Ops()
	grants, unknown := 0, 0
	for _, op := range ops {
		if op.Kind == history.Acquire && op.Ended != 0 && op.Err == nil {
			grants++
		}
		if op.Ended == 0 || op.Err != nil && !baton.IsAnswer(op.Err) {
			unknown++
		}
	}
	e.Logf("%d requests, %d of unknown outcome, %d acquired", len(ops), unknown, grants)
	if grants == 0 {
		e.Errorf("nobody ever acquired: the history shows nothing")
	}
	if r := history.Check(ops, o); r.Verdict != history.OK {
		e.Errorf("the history of group %s is %s: %s", r.Group, r.Verdict, r.Detail)
	}
}

// load is a set of nodes that behave as nodes do, some of them badly.
type load struct {
	group    string
	requests int // per node
	deaths   int // over all nodes: a holder goes away, and its lease has to run out
	short    time.Duration
	limit    time.Duration
}

func (e *env) load(requests, deaths int) *load {
	return &load{
		group: e.group, requests: requests, deaths: deaths, short: e.short,
		limit: e.patience + time.Duration(deaths)*(e.lapse(e.short)-e.patience),
	}
}

// run sends the load through the clients, two nodes on each, and returns when all are done. After the limit no
// node sends anything; what is under way then is answered.
func (l *load) run(ctx context.Context, clients []baton.Store) {
	sending, cancel := context.WithTimeout(ctx, l.limit)
	defer cancel()
	var mu sync.Mutex
	mayDie := func() bool {
		mu.Lock()
		defer mu.Unlock()
		l.deaths--
		return l.deaths >= 0
	}
	var wg sync.WaitGroup
	for i := range 2 * len(clients) {
		n := node{
			load: l, store: clients[i%len(clients)], id: fmt.Sprintf("node-%d", i),
			rng: rand.New(rand.NewPCG(uint64(i), 7)), mayDie: mayDie, sending: sending,
		}
		wg.Go(func() { n.run(ctx) })
	}
	wg.Wait()
}

type node struct {
	*load
	store  baton.Store
	id     string
	rng    *rand.Rand
	mayDie func() bool
	sent   int

	sending context.Context // ends when nothing more is to be sent
}

func (n *node) more() bool {
	n.sent++
	return n.sent <= n.requests && n.sending.Err() == nil
}

func (n *node) run(ctx context.Context) {
	c := candidate(n.id)
	for n.more() {
		l, err := n.store.Acquire(ctx, n.group, c, n.short)
		switch {
		case err == nil:
			n.lead(ctx, l)
			c = candidate(n.id)
		case errors.Is(err, baton.ErrConflict):
			c = candidate(n.id)
		case n.rng.IntN(4) == 0:
			_, _ = n.store.Get(ctx, n.group)
		default:
			n.pause(n.short / 25)
		}
	}
}

// lead renews for a while, and then releases, or dies, or sends a release that it has sent before.
func (n *node) lead(ctx context.Context, l baton.Lease) {
	for range n.rng.IntN(4) {
		n.pause(n.short / 50)
		if !n.more() {
			return
		}
		if _, err := n.store.Renew(ctx, l.ID(), n.short); errors.Is(err, baton.ErrNotLeader) {
			break
		}
	}
	n.endEarly(ctx, l)
	if n.rng.IntN(6) == 0 && n.mayDie() {
		n.pause(n.short * 3 / 2)
		_, _ = n.store.Renew(ctx, l.ID(), n.short)
	}
	for n.more() {
		if err := n.store.Release(ctx, l.ID()); err == nil || baton.IsAnswer(err) {
			break
		}
		n.pause(n.short / 50)
	}
	if n.rng.IntN(3) == 0 && n.more() {
		_, _ = n.store.Renew(ctx, l.ID(), n.short)
		_, _ = n.store.Get(ctx, n.group)
	}
}

// endEarly is an operator who ends some leaderships, gently or at once, where the store can.
func (n *node) endEarly(ctx context.Context, l baton.Lease) {
	ender, ok := n.store.(baton.Ender)
	if !ok || n.rng.IntN(4) != 0 || !n.more() {
		return
	}
	_ = ender.End(ctx, n.group, l.Term, baton.Ending{Reason: baton.SteppedDown, Immediate: n.rng.IntN(2) == 0})
}

func (n *node) pause(d time.Duration) {
	timer := time.NewTimer(time.Duration(n.rng.Int64N(int64(d)) + 1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-n.sending.Done():
	}
}
