package zkstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"baton"
	"baton/internal/testserver"
	"baton/store/zkstore"
	"baton/storetest/drill"
)

// queue lets nodes wait, one behind the other, and tells who was called.
func queue(t *testing.T, conn *zk.Conn, prefix, group string, waiters map[string]*zkstore.Store, nodes ...string) <-chan string {
	t.Helper()
	called := make(chan string, len(nodes))
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	for _, node := range nodes {
		all.Go(func() {
			err := waiters[node].Await(ctx, group, baton.Candidate{NodeID: node, InstanceID: "i"})
			if err == nil {
				called <- node
			} else if ctx.Err() == nil {
				t.Errorf("%s waits: %v", node, err)
			}
		})
		drill.Eventually(t, node+" in line", func() bool { return placeOf(conn, prefix, group, node) != "" })
	}
	return called
}

// placeOf is the znode of a node that waits, "" if there is none.
func placeOf(conn *zk.Conn, prefix, group, node string) string {
	names, _, _ := conn.Children(prefix + "/line/" + group)
	for _, name := range names {
		if strings.HasPrefix(name, node+"~") {
			return prefix + "/line/" + group + "/" + name
		}
	}
	return ""
}

// Fifty candidates wait, each at a connection of its own. When the leader dies,
// ZooKeeper tells one of them; when that one leads, it tells the next, which
// watches the group from then on. The others hear nothing of it.
func TestALeadersDeathWakesOne(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.ZooKeeper)
	for try := range drill.Tries(t) {
		if (&herd{t: t, prefix: "/herd-" + try, heard: map[string][]string{}}).wakesOne(server) {
			return
		}
	}
}

// herd are candidates for one group, and what ZooKeeper tells them.
type herd struct {
	t      *testing.T
	prefix string

	mu    sync.Mutex
	heard map[string][]string // by node, what happened to which znode
}

// open returns a store of a node that waits.
func (h *herd) open(server *testserver.Server, node string) *zkstore.Store {
	h.t.Helper()
	cfg := zkstore.Config{Servers: hosts(server), Prefix: h.prefix, Session: 10 * time.Second}
	return open(h.t, cfg.Hearing(func(ev zk.Event) {
		if ev.Path == "" {
			return // of the session
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.heard[node] = append(h.heard[node], fmt.Sprintf("%v %s", ev.Type, strings.TrimPrefix(ev.Path, h.prefix+"/")))
	}))
}

// hears waits until a node has heard of something.
func (h *herd) hears(node, what string) {
	h.t.Helper()
	drill.Eventually(h.t, node+" to have heard of "+what, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.heard[node]) > 0
	})
}

// since is what was heard since it was asked for last.
func (h *herd) since() map[string][]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	heard := h.heard
	h.heard = map[string][]string{}
	return heard
}

// wakesOne reports false if this machine was held up: then the turn may have passed on.
func (h *herd) wakesOne(server *testserver.Server) bool {
	const candidates, group, ttl = 50, "herd", 15 * time.Second
	t := h.t
	waiters := map[string]*zkstore.Store{}
	var nodes []string
	for i := range candidates {
		node := fmt.Sprintf("node-%02d", i)
		nodes = append(nodes, node)
		waiters[node] = h.open(server, node)
	}
	holder := open(t, zkstore.Config{Servers: hosts(server), Prefix: h.prefix})
	first := lead(t, holder, group, "leader", ttl)
	called := queue(t, raw(t, server), h.prefix, group, waiters, nodes...)
	_, err := holder.Renew(t.Context(), first.ID(), ttl) // the last sign of life
	if errors.Is(err, baton.ErrNotLeader) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	h.hears(nodes[0], "the renewal")
	h.since()

	woken := <-called
	h.hears(woken, "the end")
	death := h.since()
	next, err := waiters[woken].Acquire(t.Context(), group, baton.Candidate{NodeID: woken, InstanceID: "i"}, time.Minute)
	acquired := time.Now()
	past, wrong := holder.History(t.Context(), group)
	if wrong != nil {
		t.Fatal(wrong)
	}
	if ended := past[0].EndedAt; acquired.Sub(ended) > 700*time.Millisecond {
		t.Logf("held up: acquired %v after the end", acquired.Sub(ended))
		return false
	}
	if err != nil || next.Term <= first.Term {
		t.Fatalf("acquire by the one that was called: %+v, %v", next, err)
	}
	if woken != nodes[0] {
		t.Fatalf("%s is called: want the first in line", woken)
	}
	if len(death) != 1 || len(death[woken]) != 1 {
		t.Errorf("the leader's death was heard as %v: want one event, at the first in line", death)
	}

	// A renewal is heard by whoever watches the group now, so all that came before has been heard too.
	drill.Eventually(t, "the second in line to watch the group", func() bool {
		if _, err := waiters[woken].Renew(t.Context(), next.ID(), time.Minute); err != nil {
			t.Fatal(err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		return strings.Contains(strings.Join(h.heard[nodes[1]], ","), "leases/"+group)
	})
	heard := h.since()
	for _, node := range nodes[2:] {
		if len(heard[node]) > 0 {
			t.Errorf("%s heard %v: want nothing", node, heard[node])
		}
	}
	places := 0
	for _, event := range heard[nodes[1]] {
		if strings.Contains(event, "line/") {
			places++
		}
	}
	if places != 1 {
		t.Errorf("the second in line heard %v: want one event of the place before it", heard[nodes[1]])
	}
	select {
	case node := <-called:
		t.Errorf("%s is called too", node)
	default:
	}
	return true
}

// A candidate whose place has gone, as with a session that expired, does not
// take that for its turn: it joins the line again, at its end.
func TestALostPlaceIsTakenAnew(t *testing.T) {
	t.Parallel()
	const prefix = "/lost-place"
	s, another := one(t, prefix)
	conn := raw(t, testserver.Shared(t, testserver.ZooKeeper))
	waiters := map[string]*zkstore.Store{"a": another(), "b": another()}
	for group := range drill.Tries(t) {
		l := lead(t, s, group, "leader", time.Minute)
		called := queue(t, conn, prefix, group, waiters, "a", "b")
		before := placeOf(conn, prefix, group, "a")
		remove(t, conn, before)
		drill.Eventually(t, "another place", func() bool {
			now := placeOf(conn, prefix, group, "a")
			return now != "" && now != before
		})
		if len(called) > 0 {
			t.Fatalf("%s is called while the group is held", <-called)
		}
		begun := time.Now()
		if err := s.Release(t.Context(), l.ID()); err != nil {
			t.Fatal(err)
		}
		node := <-called
		if node == "b" {
			return
		}
		if time.Since(begun) < 700*time.Millisecond { // else the turn of b may have passed
			t.Fatalf("%s is called first: want b, which kept its place", node)
		}
	}
}

// A waiter dies with its process. The next one is called when ZooKeeper has ended its session.
func TestAPlaceEndsWithItsSession(t *testing.T) {
	t.Parallel()
	const prefix = "/dead-waiter"
	server := testserver.Shared(t, testserver.ZooKeeper)
	s, another := one(t, prefix)
	conn := raw(t, server)
	l := lead(t, s, "g", "leader", time.Minute)
	var doomed *zkstore.Store
	drill.Eventually(t, "a store", func() bool {
		var err error
		doomed, err = zkstore.New(t.Context(), zkstore.Config{Servers: hosts(server), Prefix: prefix, Session: time.Second, Timeout: 5 * time.Second})
		return err == nil
	})
	waiting := make(chan error, 1)
	go func() { waiting <- doomed.Await(t.Context(), "g", baton.Candidate{NodeID: "doomed", InstanceID: "i"}) }()
	drill.Eventually(t, "the doomed one in line", func() bool { return placeOf(conn, prefix, "g", "doomed") != "" })
	called := queue(t, conn, prefix, "g", map[string]*zkstore.Store{"heir": another()}, "heir")
	doomed.Die()
	defer func() { _ = doomed.Close() }()
	if err := <-waiting; !errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("a wait of one that is cut off: %v", err)
	}
	if err := s.Release(t.Context(), l.ID()); err != nil {
		t.Fatal(err)
	}
	if node := <-called; node != "heir" {
		t.Errorf("%s is called", node)
	}
}

// A holder that died before it could hand over does not keep the successor that
// it was told of from going first.
func TestSuccessorIsCalledFirstWhenTheEndingLeaseRunsOut(t *testing.T) {
	t.Parallel()
	const prefix = "/heir"
	s, another := one(t, prefix)
	conn := raw(t, testserver.Shared(t, testserver.ZooKeeper))
	waiters := map[string]*zkstore.Store{"first": another(), "heir": another()}
	const ttl = 5 * time.Second
	for group := range drill.Tries(t) {
		l := lead(t, s, group, "leader", ttl)
		called := queue(t, conn, prefix, group, waiters, "first", "heir")
		begun := time.Now()
		_, err := s.Renew(t.Context(), l.ID(), ttl) // the last sign of life
		if errors.Is(err, baton.ErrNotLeader) {
			continue // held up: it has run out before
		}
		if err != nil {
			t.Fatal(err)
		}
		err = s.End(t.Context(), group, l.Term, baton.Ending{Reason: baton.Transferred, Successor: "heir"})
		if errors.Is(err, baton.ErrNotLeader) {
			continue // held up: it has run out before
		}
		if err != nil {
			t.Fatal(err)
		}
		node := <-called
		if node == "heir" {
			return
		}
		if time.Since(begun) < ttl+700*time.Millisecond { // else the turn of the successor may have passed
			t.Fatalf("%s is called first: want the successor", node)
		}
	}
}

// One who waited through an outage and did not come back, while its process
// and its session live on, does not stand in the way of the others.
func TestAPlaceThatNobodyWantsIsLeftAfterAnOutage(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.ZooKeeper)
	cfg := zkstore.Config{Servers: hosts(server), Session: 10 * time.Second}
	s, b := open(t, cfg), open(t, cfg)
	cfg.Timeout = 5 * time.Second // of the one that is to give up
	a := insist(t, cfg)
	conn := raw(t, server)
	l := lead(t, s, "g", "leader", time.Minute)
	waiting := make(chan error, 2)
	await := func(at *zkstore.Store, node string) {
		waiting <- at.Await(t.Context(), "g", baton.Candidate{NodeID: node, InstanceID: "i"})
	}
	go await(a, "a")
	drill.Eventually(t, "a in line", func() bool { return placeOf(conn, "/baton", "g", "a") != "" })
	server.Refuse(t)
	if err := <-waiting; !errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("a wait through an outage: %v", err)
	}
	server.Heal(t)
	drill.Eventually(t, "a to have left the line", func() bool { return placeOf(conn, "/baton", "g", "a") == "" })
	go await(b, "b")
	if err := s.Release(t.Context(), l.ID()); err != nil {
		t.Errorf("release: %v", err)
	}
	if err := <-waiting; err != nil {
		t.Errorf("the wait of b: %v", err)
	}
}
