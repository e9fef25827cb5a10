package zkstore_test

import (
	"cmp"
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"baton"
	"baton/internal/testserver"
	"baton/store/zkstore"
	"baton/storetest/drill"
)

func open(t *testing.T, cfg zkstore.Config) *zkstore.Store {
	t.Helper()
	cfg.Timeout = cmp.Or(cfg.Timeout, drill.Unhurried)
	s, err := zkstore.New(t.Context(), cfg)
	return drill.Opened(t, s, err)
}

// insist opens a store whose timeout is short.
func insist(t *testing.T, cfg zkstore.Config) *zkstore.Store {
	t.Helper()
	return drill.Insist(t, func() (*zkstore.Store, error) { return zkstore.New(t.Context(), cfg) })
}

// one is a store on a server that all tests share, below a prefix of its own, and more such stores.
func one(t *testing.T, prefix string) (s *zkstore.Store, another func() *zkstore.Store) {
	t.Helper()
	cfg := zkstore.Config{Servers: hosts(testserver.Shared(t, testserver.ZooKeeper)), Prefix: prefix}
	return open(t, cfg), func() *zkstore.Store { return open(t, cfg) }
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// raw is a client past the proxy, to look and to meddle.
func raw(t *testing.T, server *testserver.Server) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect([]string{direct(server)}, 10*time.Second, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

func direct(server *testserver.Server) string {
	return strings.TrimPrefix(server.Direct, "zookeeper://")
}

// remove deletes a znode.
func remove(t *testing.T, conn *zk.Conn, path string) {
	t.Helper()
	if err := conn.Delete(path, -1); err != nil {
		t.Fatalf("delete %s: %v", path, err)
	}
}

func lead(t *testing.T, s baton.Store, group, instance string, ttl time.Duration) baton.Lease {
	t.Helper()
	l, err := s.Acquire(t.Context(), group, baton.Candidate{NodeID: "node-" + instance, InstanceID: instance}, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// leader is the member that leads by its own account, -1 if none does. Members in skip are not asked.
func leader(members []*testserver.Server, skip ...int) int {
	for i, m := range members {
		if len(skip) > 0 && skip[0] == i {
			continue
		}
		if strings.Contains(says(direct(m), "srvr"), "Mode: leader") {
			return i
		}
	}
	return -1
}

// says is a server's answer to a four-letter word.
func says(address, word string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(conn, word)
	said, _ := io.ReadAll(conn)
	return string(said)
}

func findLeader(t *testing.T, members []*testserver.Server, skip ...int) (found int) {
	t.Helper()
	drill.Eventually(t, "a leader of ZooKeeper", func() bool {
		found = leader(members, skip...)
		return found >= 0
	})
	return found
}
