package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"baton/api"
	"baton/internal/testserver"
	"baton/store/remotestore"
	"baton/storetest/drill"
)

// cluster is three servers, each a process of its own, on one machine.
type cluster struct {
	t       *testing.T
	dir     string
	ids     []string
	peer    map[string]string // where the others reach each
	http    map[string]string
	extra   []string
	env     []string
	servers map[string]serverProcess // the latest process of each

	// For clusters out of the ordinary.
	program string              // what to run; empty: program()
	own     map[string][]string // arguments of one server
	wires   *wires              // what is between the servers; nil: nothing
}

// newCluster starts three servers with these arguments, and waits until they serve.
func newCluster(t *testing.T, extra ...string) *cluster {
	t.Helper()
	c := planCluster(t, extra...)
	c.begin()
	return c
}

// planCluster has it ready to begin.
func planCluster(t *testing.T, extra ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), ids: []string{"s1", "s2", "s3"}, extra: extra,
		peer: map[string]string{}, http: map[string]string{}, servers: map[string]serverProcess{}, own: map[string][]string{}}
	for _, id := range c.ids {
		c.peer[id], c.http[id] = testserver.FreeAddress(t), testserver.FreeAddress(t)
	}
	return c
}

// begin starts the servers and waits until they serve.
func (c *cluster) begin() {
	c.t.Helper()
	c.launch(c.ids...)
	c.ready(c.ids...)
}

func (c *cluster) list() string {
	var all []string
	for _, id := range c.ids {
		all = append(all, id+"="+c.peer[id])
	}
	return strings.Join(all, ",")
}

func (c *cluster) data(id string) string { return filepath.Join(c.dir, id) }

func (c *cluster) args(id string) []string {
	args := serverArgs("--server-id", id, "--cluster", c.list(), "--data", c.data(id), "--http", c.http[id], "--default-max-ttl", "10m")
	return slices.Concat(args, c.extra, c.own[id])
}

// launch starts these servers at once and waits until they listen.
func (c *cluster) launch(ids ...string) {
	c.t.Helper()
	var starting []*process
	for _, id := range ids {
		p := startProgram(c.t, cmp.Or(c.program, program()), c.env, c.args(id)...)
		if c.wires != nil {
			c.wires.belongs(id, p.Cmd.Process.Pid)
		}
		starting = append(starting, p)
	}
	for i, id := range ids {
		c.servers[id] = started(c.t, starting[i])
	}
}

func (c *cluster) url(id string) string { return "http://" + c.http[id] }

func (c *cluster) urls(ids ...string) []string {
	var all []string
	for _, id := range ids {
		all = append(all, c.url(id))
	}
	return all
}

// client talks to these servers, the first one first.
func (c *cluster) config(ids ...string) remotestore.Config {
	return remotestore.Config{Servers: c.urls(ids...), Timeout: drill.Unhurried, Logger: slog.New(slog.DiscardHandler)}
}

func (c *cluster) open(cfg remotestore.Config) *remotestore.Store {
	c.t.Helper()
	var s *remotestore.Store
	eventually(c.t, fmt.Sprint("a connection to ", cfg.Servers), func() bool {
		var err error
		s, err = remotestore.New(c.t.Context(), cfg)
		return err == nil
	})
	c.t.Cleanup(func() { _ = s.Close() })
	return s
}

// ready waits until each of these servers says that it is.
func (c *cluster) ready(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		client, err := remotestore.NewClient(c.config(id))
		if err != nil {
			c.t.Fatal(err)
		}
		eventually(c.t, id+" ready", func() bool {
			_, err := client.Ready(c.t.Context())
			return err == nil
		})
		_ = client.Close()
	}
}

func (c *cluster) status(id string) (api.ClusterResponse, error) {
	client, err := remotestore.NewClient(c.config(id))
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	return client.Cluster(c.t.Context())
}

// leader waits until these servers agree on who leads the cluster, and that it is one of them.
func (c *cluster) leader(among ...string) string {
	c.t.Helper()
	var leader string
	eventually(c.t, fmt.Sprint("a leader among ", among), func() bool {
		leader = ""
		for _, id := range among {
			st, err := c.status(id)
			if err != nil || st.LeaderID == "" || leader != "" && st.LeaderID != leader {
				return false
			}
			leader = st.LeaderID
		}
		for _, id := range among {
			if id == leader {
				return true
			}
		}
		return false
	})
	return leader
}

func (c *cluster) others(id string) []string {
	var all []string
	for _, other := range c.ids {
		if other != id {
			all = append(all, other)
		}
	}
	return all
}

// agree waits until all servers have applied the same, and compares what came of it.
func (c *cluster) agree() {
	c.t.Helper()
	var st api.ClusterResponse
	eventually(c.t, "all servers having applied the same", func() bool {
		var err error
		if st, err = c.status(c.ids[0]); err != nil || len(st.Servers) != len(c.ids) {
			return false
		}
		for _, s := range st.Servers {
			if !s.Reached || !s.Voter || s.AppliedIndex != st.Servers[0].AppliedIndex {
				return false
			}
		}
		return true
	})
	for _, s := range st.Servers {
		if s.StateHash == "" || s.StateHash != st.Servers[0].StateHash {
			c.t.Fatalf("servers that have applied entry %d have different states: %+v", s.AppliedIndex, st.Servers)
		}
	}
}

// dose is how often something is repeated: a few times in every run, many times in "make soak".
func dose(t *testing.T, variable string, usual int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		if testing.Short() {
			return max(1, usual/4)
		}
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("$%s is %q", variable, text)
	}
	return n
}

// pause waits for d, or until stop is closed; it reports whether to go on.
func pause(stop <-chan struct{}, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-stop:
		return false
	}
}
