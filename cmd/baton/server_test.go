package main

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
)

// What cannot be carried out is told in one line, with exit code 2.
func TestBadUsage(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	strict := startServer(t, "--default-min-ttl", "20s")
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"server", "--http", s.address()}, "address already in use"},
		{[]string{"server", "--htp", "x"}, "unknown flag: --htp"},
		{[]string{"server", "--http", "7400"}, `--http is "7400"`},
		{[]string{"server", "--http", "127.0.0.1:99999"}, "invalid port"},
		{[]string{"server", "--http", ":0"}, "--insecure"},
		{[]string{"server", "--http", "0.0.0.0:0"}, "--insecure"},
		{[]string{"server", "--http", "[::]:0"}, "--insecure"},
		{[]string{"server", "--store", "redis:ann:secret@h:1"}, `"...@h:1" is not known: want one of raft`},
		{[]string{"server", "--store", "nosuch://ann:secret@h"}, `"nosuch://..." is not known: want one of raft, memory, consul://`},
		{[]string{"server", "--store", "http://h:7400"}, "want one of raft, memory"},
		{[]string{"server", "--http", "127.0.0.1:0", "--store", "redis://h/zero"}, "want the number of a database"},
		{[]string{"server", "--http", "127.0.0.1:0", "--store", "memory", "--default-min-ttl", "1ms"}, "the memory store keeps leases of 10ms to 10m0s"},
		{[]string{"server", "--store", "memory://"}, "want one of raft, memory"},
		{[]string{"server", "--store", "etcd"}, "want one of raft, memory"},
		{[]string{"server", "--http", "127.0.0.1:0", "--store", "etcd://h:2379,,h:2379"}, "a host is missing"},
		{[]string{"server", "--store", "raft://"}, "want one of raft, memory"},
		{[]string{"server", "--http", "127.0.0.1:0", "--cluster", "s1"}, "is not of the form id=host:port"},
		{[]string{"server", "--http", "127.0.0.1:0", "--cluster", "s1=127.0.0.1:1,s1=127.0.0.1:2"}, "stands twice"},
		{[]string{"server", "--http", "127.0.0.1:0", "--cluster", "s2=127.0.0.1:1,s3=127.0.0.1:2"}, `--cluster is "s2=127.0.0.1:1,s3=127.0.0.1:2": want a list that names this server too, and its --server-id is "s1"`},
		{[]string{"server", "--http", "127.0.0.1:0", "--cluster", "s1=0.0.0.0:7402,s2=127.0.0.1:2"}, "--insecure"},
		{[]string{"server", "--http", "127.0.0.1:0", "--peer", ":7402"}, "--insecure"},
		{[]string{"server", "--http", "127.0.0.1:0", "--server-id", "no id"}, "server id"},
		{[]string{"server", "--http", "127.0.0.1:0", "--store", "memory", "--join"}, "for --store raft"},
		{[]string{"server", "--http", "127.0.0.1:0", "--store", "redis://h", "--data", "d"}, "--data is for --store raft"},
		{[]string{"server", "--http", "127.0.0.1:0", "--store", "redis://h", "--peer", "127.0.0.1:7402"}, "--peer is for --store raft"},
		{[]string{"server", "--http", "127.0.0.1:0", "--store", "redis://h", "--server-id", "s1"}, "--server-id is for --store raft"},
		{[]string{"server", "--http", "127.0.0.1:0", "--data", "/dev/null/data"}, "data directory"},
		{[]string{"server", "--http", "127.0.0.1:0", "--peer", s.address(), "--data", t.TempDir()}, "peer port"},
		{[]string{"cluster", "add", "s2"}, "SERVER=HOST:PORT"},
		{[]string{"server", "--log-format", "xml"}, "want text or json"},
		{[]string{"server", "--log-level", "loud"}, "want debug, info, warn or error"},
		{[]string{"server", "--default-min-ttl", "10s", "--default-max-ttl", "5s"}, "want 0 < min <= max"},
		{[]string{"server", "--default-max-ttl", "11m"}, "want 0 < min <= max"},
		{[]string{"server", "--default-min-ttl", "soon"}, "--default-min-ttl"},
		{[]string{"server", "extra"}, `"extra"`},
		{[]string{"nonsense"}, `"nonsense"`},
		{[]string{"leader"}, "want GROUP"},
		{[]string{"leader", "a", "b"}, "want GROUP"},
		{[]string{"transfer", "g"}, "want GROUP NODE"},
		{[]string{"leader", "g", "-o", "xml"}, "want text or json"},
		{[]string{"leader", "no id", "--server", s.url}, "group_id"},
		{[]string{"leader", "g", "--server", "ftp://x"}, "want an address"},
		{[]string{"watch", "g", "--count", "-1"}, "--count"},
		{[]string{"group", "rename", "g"}, `"rename"`},
		{[]string{"campaign", "g", "--server", s.url, "--ttl", "1ms"}, "TTL is 1ms"},
		{[]string{"campaign", "g", "--server", strict.url, "--ttl", "15s"}, "want 20s to 5m0s"},
		{[]string{"campaign", "g", "--server", s.url, "--node", "no id"}, "NodeID"},
		{[]string{"campaign", "g", "--server", s.url, "--wait", "-1s"}, "--wait"},
		{[]string{"group", "create", "g", "--server", s.url, "--min-ttl", "9s", "--max-ttl", "1s"}, "policy.min_ttl"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			r := run(t, c.args...).wants(t, 2)
			if r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "baton: ") || !strings.Contains(r.stderr, c.says) {
				t.Errorf("want one line on stderr that says %q, got %v", c.says, r)
			}
		})
	}
}

func TestInsecureIsSaidToListenBeyondLoopback(t *testing.T) {
	t.Parallel()
	// Loopback by another name needs no permission; everything is given it here and then left at once.
	for _, args := range [][]string{{"--http", "localhost:0"}, {"--http", "[::]:0", "--insecure"}} {
		s := startServer(t, args...)
		s.Signal(syscall.SIGTERM)
		if code := s.Wait(); code != 0 {
			t.Errorf("%q: exit code %d: %s", args, code, s.Errors())
		}
	}
}

func TestServerSaysWhereItIs(t *testing.T) {
	t.Parallel()
	s := start(t, "server", "--store", "memory", "--http", "127.0.0.1:0", "--log-format", "json")
	if line := s.Line(); !strings.HasPrefix(line, "baton serves http://127.0.0.1:") || !strings.Contains(line, "memory") {
		t.Errorf("the first line is %q", line)
	}
	eventually(t, "the warning that leaderships may overlap across a restart", func() bool {
		return strings.Contains(s.Errors(), "across a restart leaderships may overlap")
	})
	s.Signal(syscall.SIGINT)
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d after Ctrl-C: %s", code, s.Errors())
	}
	for _, line := range strings.Split(strings.TrimSpace(s.Errors()), "\n") {
		decode[map[string]any](t, line)
	}
}

// The first signal lets a request finish that hangs; the second does not wait for it.
func TestSecondSignalEndsTheServerAtOnce(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	conn, err := net.Dial("tcp", s.address())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	// A request whose body never comes.
	if _, err := fmt.Fprint(conn, "POST /v1/groups/g/campaign HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	run(t, "leader", "g", "--server", s.url).wants(t, 3) // so it has been accepted by now
	s.Signal(syscall.SIGTERM)
	eventually(t, "the server shutting down", func() bool { return strings.Contains(s.Errors(), "shutting down") })
	s.Signal(syscall.SIGTERM)
	s.Wait()
	status, ok := s.Cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("ended with %v: want by the second signal, not after the request's time limit", s.Cmd.ProcessState)
	}
}

// Every flag can be a variable, and the flag wins.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	runEnv(t, []string{"BATON_SERVER=" + s.url}, "leader", "g").wants(t, 3)
	runEnv(t, []string{"BATON_SERVER=http://127.0.0.1:1," + s.url}, "leader", "g").wants(t, 3)
	runEnv(t, []string{"BATON_SERVER=http://127.0.0.1:1"}, "leader", "g", "--server", s.url).wants(t, 3)
	r := runEnv(t, []string{"BATON_SERVER=" + s.url, "BATON_OUTPUT=json"}, "leader", "g").wants(t, 3)
	decode[map[string]any](t, r.stdout)
	r = runEnv(t, []string{"BATON_TIMEOUT=soon"}, "leader", "g").wants(t, 2)
	if !strings.Contains(r.stderr, "$BATON_TIMEOUT") {
		t.Errorf("the error does not name the variable: %v", r)
	}
	r = runEnv(t, []string{"BATON_STORE=zookeeper"}, "server").wants(t, 2)
	if !strings.Contains(r.stderr, "zookeeper") {
		t.Errorf("the server does not take its flags from the environment: %v", r)
	}
	// What breaks glass is not inherited.
	runEnv(t, []string{"BATON_SERVER=" + s.url, "BATON_TERM=1"}, "leader", "g").wants(t, 3)
	if help := run(t, "step-down", "--help").wants(t, 0).stdout; strings.Contains(help, "BATON_TERM") || strings.Contains(help, "BATON_IMMEDIATE") {
		t.Errorf("step-down offers to inherit its target:\n%s", help)
	}
}
