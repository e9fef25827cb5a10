package raftstore

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"baton/internal/leak"
	"baton/internal/raftnode"
	"baton/internal/testserver"
	"baton/storetest/drill"
)

func TestMain(m *testing.M) { leak.Main(m) }

// testing.T and storetest.T in what is needed here.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(f func())
}

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func testLogger() *slog.Logger {
	if os.Getenv("BATON_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return logTo(io.Discard)
}

// testCluster is a cluster of real servers in this process.
type testCluster struct {
	t       fataler
	dir     string
	cluster map[string]string
	servers map[string]*Store
	change  func(*Config)
}

// patient is for tests that are not about elections among the servers, which a
// machine that stands still for seconds would bring about: a leader gives up when it has heard of nobody for half of this, and
// asks in a fifth of it.
func patient(cfg *Config) {
	if len(cfg.Cluster) > 1 {
		cfg.ElectionTimeout = 15 * time.Second
	}
}

func newCluster(t fataler, size int, change func(*Config)) *testCluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "raftstore-*")
	if err != nil {
		t.Fatalf("make a directory: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &testCluster{t: t, dir: dir, cluster: map[string]string{}, servers: map[string]*Store{}, change: change}
	for i := range size {
		c.cluster[fmt.Sprintf("s%d", i+1)] = testserver.FreeAddress(t)
	}
	c.startAll()
	t.Cleanup(c.stopAll)
	return c
}

func (c *testCluster) config(id string) Config {
	cfg := Config{ID: id, Dir: filepath.Join(c.dir, id), Listen: c.cluster[id], Logger: testLogger()}
	if len(c.cluster) > 1 {
		cfg.Cluster = c.cluster
	}
	if c.change != nil {
		c.change(&cfg)
	}
	return cfg
}

func (c *testCluster) startAll() {
	c.t.Helper()
	type opened struct {
		id  string
		s   *Store
		err error
	}
	all := make(chan opened)
	for id := range c.cluster {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), drill.Patience)
			defer cancel()
			s, err := Open(ctx, c.config(id))
			all <- opened{id, s, err}
		}()
	}
	for range c.cluster {
		o := <-all
		if o.err != nil {
			c.t.Fatalf("open %s: %v", o.id, o.err)
		}
		c.servers[o.id] = o.s
	}
	c.elect()
	for id, s := range c.servers {
		if err := c.awaitReady(s); err != nil {
			c.t.Fatalf("server %s: %v", id, err)
		}
	}
}

// elect has one server after the other stand for election until all follow one. By themselves they
// would wait for an election timeout.
func (c *testCluster) elect() {
	c.t.Helper()
	if len(c.cluster) == 1 {
		return // it does so by itself
	}
	for until := time.Now().Add(drill.Patience); time.Now().Before(until); {
		for _, s := range c.open() {
			if !s.hasOtherVoters() {
				continue // it has not heard of the others yet
			}
			if err := raftnode.Nudge(s.raft); err != nil {
				c.t.Fatalf("server %s: %v", s.id(), err)
			}
			for turn := time.Now().Add(3 * time.Second); time.Now().Before(turn); <-time.After(5 * time.Millisecond) {
				if c.led() {
					return
				}
			}
		}
	}
	c.t.Fatalf("nobody leads the cluster")
}

// led reports whether one server serves, and all of them know of one.
func (c *testCluster) led() bool {
	serves := false
	for _, s := range c.open() {
		if _, leader := s.raft.LeaderWithID(); leader == "" {
			return false
		}
		serves = serves || s.serves()
	}
	return serves
}

// serves reports whether this server leads the cluster.
func (s *Store) serves() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reign != nil && s.leads(s.reign.term)
}

func (c *testCluster) awaitReady(s *Store) error {
	ctx, cancel := context.WithTimeout(context.Background(), drill.Patience)
	defer cancel()
	for {
		err := s.Ready(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// open are the servers that were not closed.
func (c *testCluster) open() []*Store {
	var open []*Store
	for _, s := range c.servers {
		if s.closing.Err() == nil {
			open = append(open, s)
		}
	}
	return open
}

// end closes a server. One that is to lead next has begun to when it returns; where too few are left to
// lead, nothing is handed on. Otherwise it would be waited for in vain when the next one is closed.
func (c *testCluster) end(s *Store) error {
	if s.closing.Err() != nil {
		return nil
	}
	if left := len(c.open()) - 1; 2*left <= len(c.cluster) {
		return s.stop()
	}
	handsOn := s.serves()
	if err := s.Close(); err != nil || !handsOn {
		return err
	}
	c.elect()
	return nil
}

func (c *testCluster) stopAll() {
	for id, s := range c.servers {
		if err := c.end(s); err != nil {
			c.t.Fatalf("close %s: %v", id, err)
		}
		delete(c.servers, id)
	}
}

func raftServer(id, address string) raft.Server {
	return raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(address)}
}
