package main

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"baton"
)

// The leader of the cluster is killed, again and again, under load: nothing
// that was acknowledged is lost, repeated or cut short.
func TestKillLeaderOfTheClusterUnderLoad(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--election-timeout", "300ms")
	l := startLoad(c, 4)
	for i := range dose(t, "BATON_TEST_KILLS", 5) {
		l.progress(t, 100)
		leader := c.leader(c.ids...)
		c.servers[leader].kill9()
		killed := time.Now()
		next := c.open(c.config(c.others(leader)...))
		eventually(t, "a grant after the death of "+leader, func() bool {
			_, err := next.Acquire(t.Context(), fmt.Sprintf("after-kill-%d", i), baton.Candidate{NodeID: "n", InstanceID: "i"}, 5*time.Second)
			return err == nil
		})
		t.Logf("kill %d, of %s: the next grant came after %v", i+1, leader, time.Since(killed).Round(time.Millisecond))
		c.launch(leader)
		c.ready(leader)
	}
	l.progress(t, 100)
	l.check(t)
	c.agree()
}

func renewal(l baton.Lease) string {
	return fmt.Sprintf(`{"node_id":%q,"instance_id":%q,"term":%d,"extend_by_ms":60000}`, l.NodeID, l.InstanceID, l.Term)
}

// One of three refuses everything, at once and with a hint; two of three serve.
// All three started again know every term.
func TestMinorityRefusesMajorityServes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	leader := c.leader(c.ids...)
	s := c.open(c.config(c.ids...))
	lease, err := s.Acquire(t.Context(), "kept", baton.Candidate{NodeID: "n", InstanceID: "i"}, 10*time.Minute)
	if err != nil {
		t.Fatal(err)
	}

	// Two of three serve, whichever is lost.
	rest := c.others(leader)
	c.servers[leader].kill9()
	c.ready(rest...)
	if l, err := c.open(c.config(rest...)).Renew(t.Context(), lease.ID(), 10*time.Minute); err != nil || l.Term != lease.Term {
		t.Fatalf("renewal by two of three: %+v, %v", l, err)
	}

	// One of three says no. What it was asked for may still be done when the
	// others are back, as with any request that was not answered; so nothing is asked for here that
	// would end the lease.
	alone := rest[0]
	c.servers[rest[1]].kill9()
	client := &http.Client{Timeout: patience}
	defer client.CloseIdleConnections()
	ask := func(method, path, body string) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, c.url(alone)+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp
	}
	for _, q := range []struct{ method, path, body string }{
		{"POST", "/v1/groups/kept/renew", renewal(lease)},
		{"POST", "/v1/groups/new/campaign", `{"node_id":"n","lease_ttl_ms":5000}`},
		{"GET", "/v1/groups/kept/leader", ""},
		{"GET", "/readyz", ""},
	} {
		began := time.Now()
		resp := ask(q.method, q.path, q.body)
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s of one of three: %s, Retry-After %q", q.path, resp.Status, resp.Header.Get("Retry-After"))
		}
		t.Logf("%s refused after %v", q.path, time.Since(began).Round(time.Millisecond))
	}
	if resp := ask("GET", "/healthz", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("healthz of one of three: %s", resp.Status)
	}
	eventually(t, "the metric of a lost quorum", func() bool {
		return metric(t, c.url(alone), "baton_store_quorum_healthy") == "0"
	})
	for _, name := range []string{"baton_raft_term", "baton_raft_fsyncs_total", "baton_raft_applied_index"} {
		if v := metric(t, c.url(alone), name); v == "" || v == "0" {
			t.Errorf("%s is %q", name, v)
		}
	}
	if st, err := c.status(alone); err != nil || len(st.Servers) != 3 {
		t.Errorf("cluster status without a quorum: %+v, %v", st, err)
	}

	// All of them, after all of them were gone.
	c.servers[alone].kill9()
	c.launch(c.ids...)
	c.ready(c.ids...)
	again := c.open(c.config(c.ids...))
	if l, err := again.Get(t.Context(), "kept"); err != nil || l.Term != lease.Term || l.InstanceID != "i" {
		t.Errorf("after a restart of all: %+v, %v: want term %d of n", l, err, lease.Term)
	}
	c.agree()
}

// A leader of the cluster that is told to stop hands the lead on before it goes.
func TestGracefulStopHandsTheClusterOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--election-timeout", "10s") // an election by silence would take far longer
	leader := c.leader(c.ids...)
	began := time.Now()
	c.servers[leader].Signal(syscall.SIGTERM)
	if code := c.servers[leader].Wait(); code != 0 {
		t.Fatalf("exit code %d: %s", code, c.servers[leader].Errors())
	}
	rest := c.others(leader)
	next := c.leader(rest...)
	t.Logf("%s leads %v after %s was told to stop", next, time.Since(began).Round(time.Millisecond), leader)
	for _, id := range rest {
		if strings.Contains(c.servers[id].Errors(), "heartbeat timeout reached") && strings.Contains(c.servers[id].Errors(), "last-leader-id="+leader) {
			t.Errorf("%s found out by silence: %s", id, c.servers[id].Errors())
		}
	}
}

func metric(t *testing.T, url, name string) string {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close(); http.DefaultClient.CloseIdleConnections() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return value
		}
	}
	return ""
}
