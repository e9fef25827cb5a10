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
	"baton/internal/testserver"
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
// machine that is busy with other tests would bring about.
func patient(cfg *Config) {
	if len(cfg.Cluster) > 1 {
		cfg.ElectionTimeout = 2 * time.Second
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
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
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
	for id, s := range c.servers {
		if err := c.awaitReady(s); err != nil {
			c.t.Fatalf("server %s: %v", id, err)
		}
	}
}

func (c *testCluster) awaitReady(s *Store) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		err := s.Ready(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func (c *testCluster) stopAll() {
	for id, s := range c.servers {
		if err := s.Close(); err != nil {
			c.t.Fatalf("close %s: %v", id, err)
		}
		delete(c.servers, id)
	}
}

func raftServer(id, address string) raft.Server {
	return raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(address)}
}
