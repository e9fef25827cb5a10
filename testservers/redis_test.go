package main

import (
	"bufio"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
)

// redisDo says lines to Redis on a connection of its own, and returns the
// first line of what it says to each.
func redisDo(t *testing.T, address string, lines ...string) []string {
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
	password, _ := u.User.Password()
	said := bufio.NewReader(conn)
	var heard []string
	for _, line := range append([]string{"AUTH " + password}, lines...) {
		if _, err := fmt.Fprintf(conn, "%s\r\n", line); err != nil {
			t.Fatal(err)
		}
		reply, err := said.ReadString('\n')
		if err == nil && strings.HasPrefix(reply, "$") && reply != "$-1\r\n" {
			reply, err = said.ReadString('\n')
		}
		if err != nil {
			t.Fatal(err)
		}
		heard = append(heard, strings.TrimSpace(reply))
	}
	return heard[1:]
}

func TestRedisKeepsDataThroughAKill(t *testing.T) {
	c, s := serveOne(t, "redis")
	if got := redisDo(t, s.URL, "SET term 7"); got[0] != "+OK" {
		t.Fatal(got)
	}
	c.must(t, "kill", s)
	c.must(t, "restart", s)
	for _, address := range []string{s.URL, s.Direct} {
		if got := redisDo(t, address, "GET term"); got[0] != "7" {
			t.Errorf("after kill and restart %s says %q, want 7", address, got)
		}
	}
}

func TestRedisWantsAPassword(t *testing.T) {
	_, s := serveOne(t, "redis")
	u, err := url.Parse(s.Direct)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp4", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "PING\r\n"); err != nil {
		t.Fatal(err)
	}
	if reply, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(reply, "-NOAUTH") {
		t.Errorf("a stranger was answered %q, %v", reply, err)
	}
}
