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
	const candidates, group, prefix = 50, "herd", "/herd"
	server := testserver.Start(t, testserver.ZooKeeper)
	conn := raw(t, server)

	var mu sync.Mutex
	heard := map[string][]string{} // by node, what happened to which znode
	waiters := map[string]*zkstore.Store{}
	var nodes []string
	for i := range candidates {
		node := fmt.Sprintf("node-%02d", i)
		nodes = append(nodes, node)
		cfg := zkstore.Config{Servers: hosts(server), Prefix: prefix, Session: 10 * time.Second}
		waiters[node] = open(t, cfg.Hearing(func(ev zk.Event) {
			if ev.Path == "" {
				return // of the session
			}
			mu.Lock()
			defer mu.Unlock()
			heard[node] = append(heard[node], fmt.Sprintf("%v %s", ev.Type, strings.TrimPrefix(ev.Path, prefix+"/")))
		}))
	}
	holder := open(t, zkstore.Config{Servers: hosts(server), Prefix: prefix})
	first := lead(t, holder, group, "leader", time.Minute)
	called := queue(t, conn, prefix, group, waiters, nodes...)
	if _, err := holder.Renew(t.Context(), first.ID(), 5*time.Second); err != nil { // the last sign of life
		t.Fatal(err)
	}
	drill.Eventually(t, "the head of the line to have heard of the renewal", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(heard[nodes[0]]) > 0
	})
	mu.Lock()
	clear(heard)
	mu.Unlock()

	if node := <-called; node != nodes[0] {
		t.Fatalf("%s is called: want the first in line", node)
	}
	mu.Lock()
	for node, events := range heard {
		if node != nodes[0] || len(events) != 1 {
			t.Errorf("the leader's death: %s heard %v: want one event, at the first in line", node, events)
		}
	}
	if len(heard) != 1 {
		t.Errorf("the leader's death was heard by %d: want 1", len(heard))
	}
	clear(heard)
	mu.Unlock()

	c := baton.Candidate{NodeID: nodes[0], InstanceID: "i"}
	next, err := waiters[nodes[0]].Acquire(t.Context(), group, c, time.Minute)
	if err != nil || next.Term <= first.Term {
		t.Fatalf("acquire by the one that was called: %+v, %v", next, err)
	}
	// A renewal is heard by whoever watches the group now, so all that came before has been heard too.
	drill.Eventually(t, "the second in line to watch the group", func() bool {
		if _, err := waiters[nodes[0]].Renew(t.Context(), next.ID(), time.Minute); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(strings.Join(heard[nodes[1]], ","), "leases/"+group)
	})
	mu.Lock()
	defer mu.Unlock()
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
}

// A candidate whose place has gone, as with a session that expired, does not
// take that for its turn: it joins the line again, at its end.
func TestALostPlaceIsTakenAnew(t *testing.T) {
	t.Parallel()
	const prefix = "/lost-place"
	s, another := one(t, prefix)
	conn := raw(t, testserver.Shared(t, testserver.ZooKeeper))
	l := lead(t, s, "g", "leader", time.Minute)
	called := queue(t, conn, prefix, "g", map[string]*zkstore.Store{"a": another(), "b": another()}, "a", "b")
	before := placeOf(conn, prefix, "g", "a")
	remove(t, conn, before)
	drill.Eventually(t, "another place", func() bool {
		now := placeOf(conn, prefix, "g", "a")
		return now != "" && now != before
	})
	if len(called) > 0 {
		t.Fatalf("%s is called while the group is held", <-called)
	}
	if err := s.Release(t.Context(), l.ID()); err != nil {
		t.Fatal(err)
	}
	if node := <-called; node != "b" {
		t.Errorf("%s is called first: want b, which kept its place", node)
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
	const ttl = 2 * time.Second
	for group := range drill.Tries(t) {
		l := lead(t, s, group, "leader", time.Minute)
		called := queue(t, conn, prefix, group, waiters, "first", "heir")
		begun := time.Now()
		if _, err := s.Renew(t.Context(), l.ID(), ttl); err != nil { // the last sign of life
			t.Fatal(err)
		}
		err := s.End(t.Context(), group, l.Term, baton.Ending{Reason: baton.Transferred, Successor: "heir"})
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
