package main

import (
	"strings"
	"syscall"
	"testing"

	"baton/api"
	"baton/internal/testserver"
)

func (p *process) change(t *testing.T) api.Event {
	t.Helper()
	return decode[api.Event](t, p.Line())
}

// A watcher lives through a graceful restart and a crash of its server. The memory store forgets, so
// what it sees then is marked as a gap, and the terms still rise.
func TestWatchThroughRestarts(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--http", testserver.FreeAddress(t)) // which is nobody else's meanwhile
	watch := start(t, "watch", "g", "--server", s.url, "-o", "json")
	if e := watch.change(t); e.Type != "LEADER_LOST" || e.Gap {
		t.Fatalf("the first event is %+v", e)
	}
	var term uint64
	for _, stop := range []func(serverProcess){
		func(s serverProcess) { s.Signal(syscall.SIGTERM); s.Wait() },
		serverProcess.kill9,
	} {
		leader := campaign(t, s, "g", "node-1")
		won := leader.event(t)
		if won.Term <= term {
			t.Fatalf("term %d after %d, across a restart", won.Term, term)
		}
		term = won.Term
		if e := watch.change(t); e.Type != "LEADER_CHANGED" || e.Term != term || e.LeaderNodeID != "node-1" {
			t.Fatalf("event %+v: want the election of term %d", e, term)
		}
		_ = leader.Cmd.Process.Kill()
		leader.Wait()
		stop(s)
		s = startServer(t, "--http", s.address())
		if e := watch.change(t); !e.Gap || e.Type != "LEADER_LOST" {
			t.Fatalf("event %+v: want the state of the new server, marked as a gap", e)
		}
	}
	watch.Signal(syscall.SIGINT)
	if code := watch.Wait(); code != 0 {
		t.Errorf("exit code %d after Ctrl-C: %s", code, watch.Errors())
	}
}

// A server that is killed leaves nobody hanging.
func TestKilledServer(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--http", testserver.FreeAddress(t)) // which is nobody else's afterwards
	leader := campaign(t, s, "g", "node-1", "--ttl", "1s")
	leader.event(t)
	watch := start(t, "watch", "g", "--server", s.url)
	watch.Line()
	s.kill9()
	for _, args := range [][]string{
		{"leader", "g"}, {"members", "g"}, {"history", "g"}, {"groups"}, {"watch", "g"}, {"campaign", "g"},
		{"group", "create", "g"}, {"group", "delete", "g"}, {"step-down", "g"}, {"transfer", "g", "node-2"},
	} {
		r := run(t, append(args, "--server", s.url)...).wants(t, 5)
		if strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "connection refused") {
			t.Errorf("%q: want one line that says why, got %v", args, r)
		}
	}
	if code := leader.Wait(); code != 3 {
		t.Errorf("exit code %d of a leader that cannot renew: want 3", code)
	}
	if code := watch.Wait(); code != 5 {
		t.Errorf("exit code %d of a watch without a server: want 5", code)
	}
}

// Several servers may be named; the commands use the one that answers.
func TestSeveralServers(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	run(t, "leader", "g", "--server", "http://127.0.0.1:1,"+s.url).wants(t, 3)
	run(t, "leader", "g", "--server", "http://127.0.0.1:1", "--server", s.url).wants(t, 3)
}

func TestWatchAsText(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	leader := campaign(t, s, "g", "node-1")
	leader.event(t)
	watch := start(t, "watch", "g", "--server", s.url, "--count", "2")
	if line := watch.Line(); !strings.Contains(line, "LEADER_CHANGED") || !strings.HasSuffix(line, "node-1 leads") {
		t.Errorf("the state is printed as %q", line)
	}
	leader.Signal(syscall.SIGINT)
	if line := watch.Line(); !strings.Contains(line, "LEADER_LOST") || !strings.HasSuffix(line, "nobody leads: node-1 RESIGNED") {
		t.Errorf("the resignation is printed as %q", line)
	}
	if code := watch.Wait(); code != 0 {
		t.Errorf("exit code %d after its events: %s", code, watch.Errors())
	}
	// Going on from a cursor.
	first := decode[api.Event](t, strings.SplitN(run(t, "watch", "g", "--server", s.url, "--count", "1", "-o", "json").wants(t, 0).stdout, "\n", 2)[0])
	again := campaign(t, s, "g", "node-2")
	again.event(t)
	next := decode[api.Event](t, run(t, "watch", "g", "--server", s.url, "--count", "1", "-o", "json", "--cursor", first.Cursor).wants(t, 0).stdout)
	if next.Type != "LEADER_CHANGED" || next.LeaderNodeID != "node-2" || next.Gap {
		t.Errorf("the event after the cursor is %+v", next)
	}
}
