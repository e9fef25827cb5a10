package main

import (
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
)

// zookeeperSays is the answer to a four-letter word.
func zookeeperSays(t *testing.T, address, word string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp4", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, word); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}

func TestZooKeeperComesBackAfterAKill(t *testing.T) {
	c, s := serveOne(t, "zookeeper")
	for _, address := range []string{s.URL, s.Direct} {
		if said := zookeeperSays(t, address, "srvr"); !strings.Contains(said, "Mode: standalone") {
			t.Errorf("%s says %q", address, said)
		}
	}
	c.must(t, "kill", s)
	c.must(t, "restart", s)
	if said := zookeeperSays(t, s.URL, "srvr"); !strings.Contains(said, "Mode: standalone") {
		t.Errorf("after kill and restart it says %q", said)
	}
}
