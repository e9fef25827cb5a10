package main

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"baton/internal/testserver"

	"baton"
)

// refused runs a server that must not start, and returns what it says.
func refused(t *testing.T, args []string, says ...string) string {
	t.Helper()
	r := run(t, append(args, "-o", "text")...).wants(t, 2)
	_, told, ok := strings.Cut("\n"+r.stderr, "\nbaton: ") // there may be lines of the log before it
	for _, want := range says {
		if r.stdout != "" || !ok || !strings.Contains(told, want) {
			t.Fatalf("want a refusal that says %q, got %v", want, r)
		}
	}
	return told
}

// alone is the arguments of a cluster of one.
func alone(t *testing.T, dir string) []string {
	t.Helper()
	return serverArgs("--data", dir, "--peer", testserver.FreeAddress(t))
}

// By default a server keeps its leases, also when it is killed.
func TestOneServerForgetsNothing(t *testing.T) {
	t.Parallel()
	args := alone(t, filepath.Join(t.TempDir(), "data"))
	s := started(t, start(t, args...))
	leader := campaign(t, s, "g", "node-1", "--ttl", "10s") // it is to be seen after the restart, and waited for
	won := leader.event(t)
	if won.Term != 1 {
		t.Errorf("the first term is %d", won.Term)
	}
	_ = leader.Cmd.Process.Kill()
	leader.Wait()
	s.kill9()
	s = started(t, start(t, args...))
	if l := leaderOf(t, s, "g").Leader; l == nil || l.Term != 1 || l.NodeID != "node-1" {
		t.Errorf("after a crash the leader is %+v: want node-1 in term 1", l)
	}
	next := campaign(t, s, "g", "node-2")
	if e := next.event(t); e.Term != 2 {
		t.Errorf("after a crash the next one printed %+v: want term 2", e)
	}
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, s.Errors())
	}
	if strings.Contains(s.Errors(), "level=WARN") {
		t.Errorf("a server with which all is well warns: %s", s.Errors())
	}
}

// What is wrong with a data directory is told in one line, and nothing is changed.
func TestDataDirectoryRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	args := alone(t, dir)
	s := started(t, start(t, args...))
	run(t, "group", "create", "g", "--server", s.url).wants(t, 0)
	refused(t, alone(t, dir), "in use by another process")
	s.Signal(syscall.SIGTERM)
	s.Wait()

	refused(t, append(alone(t, dir), "--server-id", "s2"), `belongs to server "s1", not to "s2"`)
	identity := filepath.Join(dir, "identity.json")
	right, err := os.ReadFile(identity)
	if err != nil {
		t.Fatal(err)
	}
	for content, says := range map[string]string{
		strings.Replace(string(right), `"version": 1`, `"version": 2`, 1): "needs an upgrade",
		"not json": "not readable",
		"":         "not readable",
	} {
		if err := os.WriteFile(identity, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, args, says)
	}
	if err := os.WriteFile(identity, right, 0o600); err != nil {
		t.Fatal(err)
	}
	s = started(t, start(t, args...))
	run(t, "group", "show", "g", "--server", s.url).wants(t, 0)
}

// A server that lost its disk does not vote under its old name: it refuses to
// start, and says how to replace it. That is done then.
func TestWipedServer(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := c.open(c.config(c.ids...))
	lease, err := s.Acquire(t.Context(), "kept", baton.Candidate{NodeID: "n", InstanceID: "i"}, 10*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	wiped := c.others(c.leader(c.ids...))[0]
	rest := c.others(wiped)
	c.servers[wiped].kill9()
	if err := os.RemoveAll(c.data(wiped)); err != nil {
		t.Fatal(err)
	}
	said := refused(t, c.args(wiped), "with data that it no longer has",
		"\n  baton cluster remove "+wiped+"\n", "\n  baton cluster add "+wiped+"="+c.peer[wiped]+"\n")
	if !strings.Contains(said, "--join") {
		t.Errorf("the advice lacks --join: %s", said)
	}

	// Through a server that does not lead the cluster.
	leader := c.leader(rest...)
	via := slices.DeleteFunc(slices.Clone(rest), func(id string) bool { return id == leader })[0]
	at := []string{"--server", c.url(via)}
	unknown := false
	eventually(t, wiped+" removed", func() bool { // there is nobody to spare who could lead instead of one that stands still
		code := run(t, append([]string{"cluster", "remove", wiped}, at...)...).code
		removed := code == 0 || unknown && code == 4
		unknown = unknown || code == 5
		return removed
	})
	run(t, append([]string{"cluster", "remove", "s9"}, at...)...).wants(t, 4)
	eventually(t, "told that it is so already", func() bool { // unless it does not answer within a second
		return run(t, append([]string{"cluster", "add", rest[0] + "=" + c.peer[rest[0]]}, at...)...).code == 0
	})
	run(t, append([]string{"cluster", "add", "s9=127.0.0.1:1", "--wait", "1s", "--timeout", "1s"}, at...)...).wants(t, 5)
	joining := start(t, serverArgs("--join", "--server-id", wiped, "--data", c.data(wiped), "--peer", c.peer[wiped], "--http", c.http[wiped])...)
	c.servers[wiped] = started(t, joining)
	run(t, append([]string{"cluster", "add", wiped + "=" + c.peer[wiped]}, at...)...).wants(t, 0)
	c.ready(wiped)
	eventually(t, "all three in the status", func() bool { // one that stands still for a second does not answer
		status := run(t, append([]string{"cluster", "status"}, at...)...).wants(t, 0).stdout
		if strings.Count(status, "voter") == 2 && strings.Count(status, "leader  ") == 1 && !strings.Contains(status, "does not answer") {
			return true
		}
		t.Logf("cluster status:\n%s", status)
		return false
	})
	c.agree()

	// It counts: with it, one of the two others can go.
	gone := c.leader(c.ids...)
	if gone == wiped {
		gone = rest[0]
	}
	c.servers[gone].kill9()
	left := c.others(gone)
	c.ready(left...)
	if l, err := c.open(c.config(wiped)).Renew(t.Context(), lease.ID(), 10*time.Minute); err != nil || l.Term != lease.Term {
		t.Errorf("renewal at the server that was replaced: %+v, %v", l, err)
	}
}

// The end of the log is torn, as by a crash of the machine: the server starts
// without what was not whole, or says that it cannot, and the cluster has lost nothing.
func TestTornLog(t *testing.T) {
	t.Parallel()
	for name, tear := range map[string]func(t *testing.T, path string){
		"garbled":   garbleTail,
		"truncated": truncateTail,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t)
			s := c.open(c.config(c.ids...))
			var terms []baton.Term
			for i := range 20 {
				l, err := s.Acquire(t.Context(), "torn", baton.Candidate{NodeID: "n", InstanceID: string(rune('a' + i))}, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				terms = append(terms, l.Term)
				if err := s.Release(t.Context(), l.ID()); err != nil {
					t.Fatal(err)
				}
			}
			torn := c.others(c.leader(c.ids...))[0]
			c.servers[torn].kill9()
			segments, err := filepath.Glob(filepath.Join(c.data(torn), "*.wal"))
			if err != nil || len(segments) == 0 {
				t.Fatalf("no log in %s: %v", c.data(torn), err)
			}
			slices.Sort(segments)
			tear(t, segments[len(segments)-1])

			p := start(t, c.args(torn)...)
			select {
			case line, ok := <-p.Lines:
				if ok {
					t.Logf("started: %s", line)
					c.ready(torn)
					c.agree()
					break
				}
				if code := p.Wait(); code != 2 {
					t.Errorf("exit code %d: %s", code, p.Errors())
				}
				t.Logf("refused: %s", p.Errors())
			case <-time.After(patience):
				t.Fatalf("it neither starts nor refuses: %s", p.Errors())
			}
			rest := c.open(c.config(c.others(torn)...))
			l, err := rest.Get(t.Context(), "torn")
			if err != nil || l.Term != terms[len(terms)-1] {
				t.Errorf("the cluster is at %+v, %v: want term %d", l, err, terms[len(terms)-1])
			}
		})
	}
}

// lastByte is the offset behind the last byte that is not 0: segments are made in full and filled.
func lastByte(t *testing.T, path string) int64 {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	end := len(b)
	for end > 0 && b[end-1] == 0 {
		end--
	}
	if end < 64 {
		t.Fatalf("%s is empty", path)
	}
	return int64(end)
}

func garbleTail(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("torn, torn, torn"), lastByte(t, path)-16); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func truncateTail(t *testing.T, path string) {
	t.Helper()
	if err := os.Truncate(path, lastByte(t, path)-10); err != nil {
		t.Fatal(err)
	}
}

// The first server of three says for whom it waits, and is alive and not ready meanwhile.
func TestWaitsForTheOthersAtFirstStart(t *testing.T) {
	t.Parallel()
	httpAt, peers := testserver.FreeAddress(t), []string{testserver.FreeAddress(t), testserver.FreeAddress(t)}
	p := start(t, serverArgs("--cluster", "s1="+peers[0]+",s2="+peers[1], "--data", t.TempDir(), "--http", httpAt)...)
	eventually(t, "saying for whom it waits", func() bool {
		return strings.Contains(p.Errors(), "waiting_for=s2 address="+peers[1])
	})
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/v1/groups/g/leader": 503} {
		resp, err := http.Get("http://" + httpAt + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, resp.Status, want)
		}
	}
	for _, args := range [][]string{{"cluster", "status"}, {"leader", "g"}} {
		r := run(t, append(args, "--server", "http://"+httpAt+",http://"+testserver.FreeAddress(t))...).wants(t, 5)
		if !strings.Contains(r.stderr, "the server is starting; its log says what it waits for") {
			t.Errorf("%v does not say why: %s", args, r.stderr)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	p.Signal(syscall.SIGTERM)
	if code := p.Wait(); code != 130 {
		t.Errorf("exit code %d: %s", code, p.Errors())
	}
}
