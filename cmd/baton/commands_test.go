package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"baton/api"
)

// elected is what campaign prints with -o json.
type elected struct {
	Event  string `json:"event"`
	NodeID string `json:"node_id"`
	Term   uint64 `json:"term"`
	Cause  string `json:"cause"`
}

// campaign starts a candidate. Its lease outlasts a machine that stands still, unless more says otherwise.
func campaign(t *testing.T, s serverProcess, group, node string, more ...string) *process {
	t.Helper()
	return start(t, append([]string{"campaign", group, "--node", node, "--server", s.url, "-o", "json", "--ttl", "30s"}, more...)...)
}

func (p *process) event(t *testing.T) elected {
	t.Helper()
	return decode[elected](t, p.Line())
}

// inLine waits until node is known as a candidate.
func inLine(t *testing.T, s serverProcess, group, node string) {
	t.Helper()
	eventually(t, node+" in line", func() bool {
		r := run(t, "members", group, "--server", s.url, "-o", "json").wants(t, 0)
		return slices.ContainsFunc(decode[api.MembersResponse](t, r.stdout).Members, func(m api.Member) bool {
			return m.NodeID == node && m.Role == api.RoleCandidate
		})
	})
}

func leaderOf(t *testing.T, s serverProcess, group string) api.LeaderResponse {
	t.Helper()
	return decode[api.LeaderResponse](t, run(t, "leader", group, "--server", s.url, "-o", "json").stdout)
}

// A leader, a candidate behind it, Ctrl-C: the lease is given back and the next one leads.
func TestCampaignUntilCtrlC(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	first := campaign(t, s, "g", "node-1", "--meta", "zone=az-a", "--ttl", "1m")
	won := first.event(t)
	if won.Event != "elected" || won.NodeID != "node-1" || won.Term == 0 {
		t.Fatalf("the first campaign printed %+v", won)
	}
	l := leaderOf(t, s, "g").Leader
	if l == nil || l.NodeID != "node-1" || l.Term != won.Term || l.Metadata["zone"] != "az-a" {
		t.Fatalf("the leader is %+v: want node-1 in term %d", l, won.Term)
	}
	run(t, "campaign", "g", "--node", "node-3", "--server", s.url, "--wait", "200ms").wants(t, 3)

	second := campaign(t, s, "g", "node-2")
	inLine(t, s, "g", "node-2")
	first.Signal(syscall.SIGINT)
	if e := first.event(t); e.Event != "resigned" || e.Term != won.Term {
		t.Errorf("after Ctrl-C it printed %+v", e)
	}
	if code := first.Wait(); code != 0 {
		t.Errorf("exit code %d after Ctrl-C: %s", code, first.Errors())
	}
	// Its lease was for a minute, so it was given back.
	if e := second.event(t); e.Event != "elected" || e.Term <= won.Term {
		t.Errorf("the second campaign printed %+v: want a term above %d", e, won.Term)
	}
	second.Signal(syscall.SIGTERM)
	if code := second.Wait(); code != 0 {
		t.Errorf("exit code %d after SIGTERM: %s", code, second.Errors())
	}
	if r := run(t, "leader", "g", "--server", s.url).wants(t, 3); !strings.Contains(r.stdout, "nobody leads g") {
		t.Errorf("the vacant group: %v", r)
	}
	h := decode[api.HistoryResponse](t, run(t, "history", "g", "--server", s.url, "-o", "json").wants(t, 0).stdout)
	if len(h.Terms) != 2 || h.Terms[0].Reason != "RESIGNED" || h.Terms[1].NodeID != "node-2" {
		t.Errorf("the history is %+v", h)
	}
}

// A candidate that is interrupted while it waits leaves nothing behind.
func TestInterruptedWhileWaiting(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	leader := campaign(t, s, "g", "node-1")
	leader.event(t)
	waiting := campaign(t, s, "g", "node-2")
	inLine(t, s, "g", "node-2")
	waiting.Signal(syscall.SIGINT)
	if code := waiting.Wait(); code != 130 {
		t.Errorf("exit code %d: want 130", code)
	}
}

func TestStepDown(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	run(t, "step-down", "g", "--server", s.url).wants(t, 3)

	// It hears of it when it renews, after a third of this; what is left outlasts a pause.
	const ttl = "15s"
	gentle := campaign(t, s, "g", "node-1", "--ttl", ttl)
	won := gentle.event(t)
	run(t, "step-down", "g", "--server", s.url, "--term", "1").wants(t, 3)
	r := run(t, "step-down", "g", "--server", s.url, "--reason", "rack 7 goes down").wants(t, 0)
	if !strings.Contains(r.stdout, "node-1 was asked to hand over g") {
		t.Errorf("step-down printed %v", r)
	}
	if e := gentle.event(t); e.Event != "lost" || !strings.Contains(e.Cause, "STEPPED_DOWN") {
		t.Errorf("the holder printed %+v", e)
	}
	if code := gentle.Wait(); code != 3 {
		t.Errorf("exit code %d of a holder that was stepped down: want 3", code)
	}

	stubborn := campaign(t, s, "g", "node-2", "--ttl", ttl)
	again := stubborn.event(t)
	if again.Term <= won.Term {
		t.Errorf("term %d after %d", again.Term, won.Term)
	}
	down := decode[api.StepDownResponse](t, run(t, "step-down", "g", "--server", s.url, "--immediate", "--reason", "it hangs", "-o", "json").wants(t, 0).stdout)
	if down.NodeID != "node-2" || down.Term != again.Term {
		t.Errorf("step-down answered %+v", down)
	}
	if code := stubborn.Wait(); code != 3 {
		t.Errorf("exit code %d of a holder that was thrown out: want 3", code)
	}
	h := run(t, "history", "g", "--server", s.url).wants(t, 0).stdout
	for _, want := range []string{"STEPPED_DOWN", "rack 7 goes down", "it hangs", "LEADERLESS BEFORE"} {
		if !strings.Contains(h, want) {
			t.Errorf("the history lacks %q:\n%s", want, h)
		}
	}
}

func TestTransfer(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for try := range 5 {
		if transfer(t, s, fmt.Sprint("g", try)) {
			return
		}
	}
	t.Error("five times another than the chosen one leads")
}

// transfer reports whether the chosen one leads: if it stands still when it is called, it loses its turn.
func transfer(t *testing.T, s serverProcess, group string) bool {
	t.Helper()
	leader := campaign(t, s, group, "node-1", "--ttl", "15s")
	won := leader.event(t)
	run(t, "transfer", group, "node-9", "--server", s.url).wants(t, 6)

	early := campaign(t, s, group, "node-2")
	inLine(t, s, group, "node-2")
	chosen := campaign(t, s, group, "node-3")
	inLine(t, s, group, "node-3")
	eventually(t, "node-3 in its place, which it takes after it is known", func() bool {
		r := run(t, "transfer", group, "node-3", "--server", s.url, "--reason", "to the bigger machine")
		if r.code == 6 {
			return false
		}
		r.wants(t, 0)
		return true
	})
	if code := leader.Wait(); code != 3 {
		t.Errorf("exit code %d of the old leader: want 3", code)
	}
	eventually(t, "a successor", func() bool { return len(chosen.Lines) > 0 || len(early.Lines) > 0 })
	if len(chosen.Lines) == 0 {
		return false
	}
	if e := chosen.event(t); e.Event != "elected" || e.Term != won.Term+1 {
		t.Errorf("the successor printed %+v: want term %d", e, won.Term+1)
	}
	select {
	case line := <-early.Lines:
		t.Errorf("the one who came first printed %q: want it to wait on", line)
	default:
	}
	return true
}

func TestGroups(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--explicit-groups")
	at := []string{"--server", s.url}
	with := func(args ...string) []string { return append(args, at...) }
	run(t, with("leader", "pay")...).wants(t, 4)
	run(t, with("campaign", "pay")...).wants(t, 4)
	run(t, with("group", "show", "pay")...).wants(t, 4)
	run(t, with("group", "update", "pay", "--max-ttl", "1m")...).wants(t, 4)
	run(t, with("group", "delete", "pay")...).wants(t, 4)

	created := decode[api.Group](t, run(t, with("group", "create", "pay", "--min-ttl", "2s", "--max-ttl", "15s", "--allow", "node-1,node-2", "-o", "json")...).wants(t, 0).stdout)
	if created.GroupID != "pay" || created.Policy != (api.Policy{MinTTL: 2000, MaxTTL: 15000}) || !slices.Equal(created.AllowedNodes, []string{"node-1", "node-2"}) {
		t.Errorf("created %+v", created)
	}
	run(t, with("group", "create", "pay")...).wants(t, 6)
	run(t, with("campaign", "pay", "--node", "node-3")...).wants(t, 7)
	run(t, with("campaign", "pay", "--node", "node-1", "--ttl", "1m")...).wants(t, 2)

	updated := decode[api.Group](t, run(t, with("group", "update", "pay", "--max-ttl", "30s", "-o", "json")...).wants(t, 0).stdout)
	if updated.Policy != (api.Policy{MinTTL: 2000, MaxTTL: 30000}) || len(updated.AllowedNodes) != 2 {
		t.Errorf("updated %+v: want nothing changed but the longest TTL", updated)
	}
	run(t, with("group", "update", "pay", "--allow", "")...).wants(t, 0)
	list := run(t, with("groups")...).wants(t, 0).stdout
	if !strings.Contains(list, "GROUP  MIN TTL  MAX TTL") || !strings.Contains(list, "pay    2s       30s") {
		t.Errorf("the table is not aligned, or lacks something:\n%s", list)
	}
	all := decode[api.GroupsResponse](t, run(t, with("groups", "-o", "json")...).wants(t, 0).stdout)
	if len(all.Groups) != 1 || len(all.Groups[0].AllowedNodes) != 0 {
		t.Errorf("groups are %+v", all)
	}

	leader := campaign(t, s, "pay", "node-3", "--ttl", "15s")
	leader.event(t)
	run(t, with("group", "delete", "pay")...).wants(t, 6)
	leader.Signal(syscall.SIGINT)
	leader.Wait()
	run(t, with("group", "delete", "pay")...).wants(t, 0)
	run(t, with("group", "show", "pay")...).wants(t, 4)
}

// With -o json an error is JSON too.
func TestErrorsAsJSON(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, c := range []struct {
		args []string
		exit int
		code string
	}{
		{[]string{"group", "show", "g", "--server", s.url}, 4, "NOT_FOUND"},
		{[]string{"step-down", "g", "--server", s.url}, 3, "NOT_LEADER"},
		{[]string{"leader", "g", "--server", "http://127.0.0.1:1"}, 5, "BACKEND_UNAVAILABLE"},
		{[]string{"leader", "..", "--server", s.url}, 2, "INVALID_ARGUMENT"},
		{[]string{"server", "--store", "nope"}, 2, "INVALID_ARGUMENT"},
		{[]string{"campaign", "g", "--server", s.url, "--ttl", "1ms"}, 2, "INVALID_TTL"},
	} {
		r := run(t, append(c.args, "-o", "json")...).wants(t, c.exit)
		if e := decode[api.Error](t, r.stderr); e.Code != c.code || e.Message == "" {
			t.Errorf("%q: %v: want %s", c.args, r, c.code)
		}
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	codes := run(t, "help", "exit-codes").wants(t, 0).stdout
	for _, want := range []string{"0  done", "1  failed", "2  bad usage", "3  not the leader", "4  not found", "5  unavailable", "6  conflict", "7  denied", "130  interrupted"} {
		if !strings.Contains(codes, want) {
			t.Errorf("help exit-codes lacks %q:\n%s", want, codes)
		}
	}
	commands := []string{"server", "leader", "watch", "members", "history", "groups", "group create", "group update", "group show", "group delete", "campaign", "step-down", "transfer", "cluster status", "cluster add", "cluster remove"}
	for _, c := range commands {
		help := run(t, append(strings.Fields(c), "--help")...).wants(t, 0).stdout
		if !strings.Contains(help, "Examples:") || !strings.Contains(help, "BATON_SERVER") {
			t.Errorf("help of %s has no example, or does not tell of the environment:\n%s", c, help)
		}
	}
	run(t).wants(t, 0)
	run(t, "help").wants(t, 0)
	if v := run(t, "version").wants(t, 0).stdout; !strings.HasPrefix(v, "baton ") {
		t.Errorf("version prints %q", v)
	}
	decode[map[string]string](t, run(t, "version", "-o", "json").wants(t, 0).stdout)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := run(t, "completion", shell).wants(t, 0); len(r.stdout) < 1000 {
			t.Errorf("completion %s: %v", shell, r)
		}
	}
	run(t, "completion", "csh").wants(t, 2)
}

// The shell is offered the groups there are.
func TestCompletion(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	run(t, "group", "create", "pay", "--server", s.url).wants(t, 0)
	// A shell that waits is given nothing after a second.
	eventually(t, "the group being offered", func() bool {
		return strings.HasPrefix(runEnv(t, []string{"BATON_SERVER=" + s.url}, "__complete", "leader", "").wants(t, 0).stdout, "pay\n")
	})
}
