package raftpeer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"baton"
	"baton/internal/raftnode"
	"baton/internal/testserver"
	"baton/storetest/drill"
)

// peerGroup are peers in this process, over TCP.
type peerGroup struct {
	t     *testing.T
	dir   string
	peers map[string]string
	open  map[string]*Elector
}

// newGroup starts patient peers, for a machine that stands still for seconds: whoever is silent for longer
// than an election timeout loses the lead.
func newGroup(t *testing.T, size int) *peerGroup {
	t.Helper()
	g := &peerGroup{t: t, dir: t.TempDir(), peers: map[string]string{}, open: map[string]*Elector{}}
	for i := range size {
		g.peers[fmt.Sprintf("n%d", i+1)] = testserver.FreeAddress(t)
	}
	g.startAll()
	t.Cleanup(g.stopAll)
	return g
}

func (g *peerGroup) config(id string) Config {
	return Config{Group: "g", NodeID: id, Metadata: map[string]string{"of": id}, Peers: g.peers, Dir: filepath.Join(g.dir, id), ElectionTimeout: 4 * time.Second, Logger: testLogger()}
}

func (g *peerGroup) startAll() {
	g.t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	for id := range g.peers {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(g.t.Context(), drill.Patience)
			defer cancel()
			e, err := Open(ctx, g.config(id))
			if err != nil {
				g.t.Errorf("open %s: %v", id, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			g.open[id] = e
		})
	}
	all.Wait()
	if g.t.Failed() {
		g.t.FailNow()
	}
}

// stopAll begins with n1: a leader that has no majority any more waits for one.
func (g *peerGroup) stopAll() {
	for _, id := range slices.Sorted(maps.Keys(g.open)) {
		// The last ones have no majority to tell that they stop.
		if err := g.open[id].Close(); err != nil && !errors.Is(err, baton.ErrUnavailable) {
			g.t.Errorf("close %s: %v", id, err)
		}
	}
	clear(g.open)
}

func (g *peerGroup) campaign(ids ...string) *won {
	w := &won{g: g, ctx: g.t.Context(), all: make(chan elected, len(ids))}
	for _, id := range ids {
		go func() {
			ctx, cancel := context.WithTimeout(w.ctx, drill.Patience)
			defer cancel()
			l, err := g.open[id].Campaign(ctx)
			w.all <- elected{id, l, err}
		}()
	}
	return w
}

type won struct {
	g   *peerGroup
	ctx context.Context
	all chan elected
}

type elected struct {
	id  string
	l   *baton.Leadership
	err error
}

func (w *won) next() elected {
	w.g.t.Helper()
	e := <-w.all
	if e.err != nil {
		w.g.t.Fatalf("campaign of %s: %v", e.id, e.err)
	}
	return e
}

// Terms rise by one, through resignations, transfers and a restart of all.
func TestPeersOverTCP(t *testing.T) {
	t.Parallel() // with the others that wait for an election
	g := newGroup(t, 3)
	// Only who campaigns leads, whoever raft has elected.
	first := g.campaign("n2").next()
	if first.l.Term() != 1 || !first.l.Valid() {
		t.Errorf("the first leadership is %v", first.l.Token())
	}
	if _, err := g.open["n2"].Campaign(t.Context()); !errors.Is(err, baton.ErrConflict) {
		t.Errorf("a second campaign of the leader: %v", err)
	}
	for event, err := range g.open["n1"].Observe(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Type == baton.LeaderChanged {
			if event.NodeID != "n2" || event.Term != 1 || event.Metadata["of"] != "n2" {
				t.Errorf("n1 observes %+v", event)
			}
			break
		}
	}
	if err := first.l.ResignTo(t.Context(), "n3"); !errors.Is(err, baton.ErrConflict) || !first.l.Valid() {
		t.Errorf("to one that does not campaign: %v", err)
	}
	waiting := g.campaign("n1", "n3")
	deadline := time.Now().Add(drill.Patience)
	for err := first.l.ResignTo(t.Context(), "n3"); err != nil; err = first.l.ResignTo(t.Context(), "n3") {
		if !errors.Is(err, baton.ErrConflict) || time.Now().After(deadline) {
			t.Fatalf("resign to n3: %v", err) // it has not begun to campaign all the time
		}
	}
	second := waiting.next()
	if second.id != "n3" || second.l.Term() != 2 {
		t.Errorf("%s leads in term %d, want n3 in term 2", second.id, second.l.Term())
	}
	if err := second.l.Resign(t.Context()); err != nil {
		t.Errorf("resign: %v", err)
	}
	if err := second.l.Resign(t.Context()); !errors.Is(err, baton.ErrNotLeader) {
		t.Errorf("resign again: %v", err)
	}
	third := waiting.next()
	if third.id != "n1" || third.l.Term() != 3 {
		t.Errorf("%s leads in term %d, want n1 in term 3", third.id, third.l.Term())
	}
	g.stopAll()
	if third.l.Valid() {
		t.Error("still valid after it was closed")
	}
	g.startAll()
	if fourth := g.campaign("n1").next(); fourth.l.Term() != 4 {
		t.Errorf("term %d after a restart of all, want 4", fourth.l.Term())
	}
}

// A peer that has lost its directory must not vote; and the others go on without it.
func TestWipedPeer(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	if err := g.open["n3"].Close(); err != nil {
		t.Fatal(err)
	}
	delete(g.open, "n3")
	if err := os.RemoveAll(filepath.Join(g.dir, "n3")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), drill.Patience)
	defer cancel()
	if _, err := Open(ctx, g.config("n3")); !errors.Is(err, raftnode.ErrForgotten) {
		t.Errorf("a wiped peer: %v", err)
	}
	if l := g.campaign("n1").next().l; l.Term() != 1 {
		t.Errorf("term %d", l.Term())
	}
}

func TestConfig(t *testing.T) {
	good := func() Config {
		return Config{Group: "g", NodeID: "n1", Dir: t.TempDir(), Peers: map[string]string{"n1": "127.0.0.1:0", "n2": "127.0.0.1:1"}}
	}
	for name, breakIt := range map[string]func(*Config){
		"no group":           func(c *Config) { c.Group = "" },
		"no node":            func(c *Config) { c.NodeID = "a b" },
		"no directory":       func(c *Config) { c.Dir = "" },
		"not a peer":         func(c *Config) { c.NodeID = "n3" },
		"an address twice":   func(c *Config) { c.Peers["n2"] = c.Peers["n1"] },
		"no port":            func(c *Config) { c.Peers["n2"] = "localhost" },
		"hasty":              func(c *Config) { c.ElectionTimeout = time.Millisecond },
		"a lease too short":  func(c *Config) { c.RenewEvery = 300 * time.Millisecond },
		"a margin too small": func(c *Config) { c.Margin = time.Nanosecond },
	} {
		c := good()
		breakIt(&c)
		if err := c.withDefaults().validate(); !errors.Is(err, baton.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := good().withDefaults().validate(); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]bool{"n1=a:1,n2=b:2": true, "": false, "n1": false, "n1=a:1,n1=b:1": false, "=a:1": false} {
		peers, err := ParsePeers(text)
		if (err == nil) != want || err == nil && FormatPeers(peers) != text {
			t.Errorf("%q: %v, %v", text, peers, err)
		}
	}
}

// A leader counts the same peers each time that it asks them, itself not among them.
func TestOthersStayTheSame(t *testing.T) {
	t.Parallel()
	e := newGroup(t, 3).open["n1"]
	for range 3 {
		others, err := e.others()
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, other := range others {
			ids = append(ids, string(other.ID))
		}
		if slices.Sort(ids); !slices.Equal(ids, []string{"n2", "n3"}) {
			t.Fatalf("the others are %q", ids)
		}
		slices.Reverse(others) // it is the caller's
	}
}
