package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"baton"
	"baton/server"
)

// twoServers is a cluster of s1, which leads, and s2, which is behind.
type twoServers struct{ did []string }

func (c *twoServers) Status(context.Context) (server.ClusterStatus, error) {
	return server.ClusterStatus{
		Server: "s1", Cluster: "c", Leader: "s1", State: "leader", RaftTerm: 3, CommitIndex: 10, AppliedIndex: 10, LastLogIndex: 11,
		LastContact: time.Second, Leases: 2,
		Servers: []server.ClusterServer{
			{ID: "s1", Address: "h1:7402", Voter: true, Leader: true, Reached: true, AppliedIndex: 10, StateHash: "ab"},
			{ID: "s2", Address: "h2:7402", Reached: true, AppliedIndex: 7, StateHash: "cd"},
			{ID: "s3", Address: "h3:7402", Voter: true},
		},
	}, nil
}

func (c *twoServers) AddServer(_ context.Context, id, address string) error {
	if id == "late" {
		return fmt.Errorf("it has not caught up: %w", context.DeadlineExceeded)
	}
	c.did = append(c.did, "add "+id+"="+address)
	return nil
}

func (c *twoServers) RemoveServer(_ context.Context, id string) error {
	if id != "s2" {
		return fmt.Errorf("server %s: %w", id, baton.ErrNotFound)
	}
	c.did = append(c.did, "remove "+id)
	return nil
}

func (c *twoServers) Backup(context.Context) ([]byte, error) {
	return bytes.Repeat([]byte("state"), 100_000), nil
}

func TestBackup(t *testing.T) {
	r := newRig(t, withService(func(cfg *server.Config) { cfg.Cluster = &twoServers{} }))
	a := r.do("GET", "/v1/cluster/backup", "").want(200)
	if len(a.body) != 500_000 {
		t.Errorf("a backup of %d bytes", len(a.body))
	}
	newRig(t).do("GET", "/v1/cluster/backup", "").want(409).has("reason", "unsupported")
}

func TestCluster(t *testing.T) {
	c := &twoServers{}
	r := newRig(t, withService(func(cfg *server.Config) { cfg.Cluster = c }))
	a := r.do("GET", "/v1/cluster", "").want(200).has("server_id", "s1", "leader_id", "s1", "state", "leader",
		"raft_term", 3, "commit_index", 10, "last_log_index", 11, "last_contact_ms", 1000, "leases", 2)
	servers, _ := a.m["servers"].([]any)
	if len(servers) != 3 {
		t.Fatalf("servers: %s", a.body)
	}
	behind := answer{t: t, m: servers[1].(map[string]any), body: a.body}
	behind.has("voter", false, "reached", true, "lag", 3, "state_hash", "cd")
	dead := answer{t: t, m: servers[2].(map[string]any), body: a.body}
	dead.has("voter", true, "reached", false, "applied_index", nil, "lag", nil)

	r.do("POST", "/v1/cluster/servers", `{"server_id":"s4","address":"h4:7402"}`).want(200).has("ok", true)
	r.do("POST", "/v1/cluster/servers", `{"server_id":"late","address":"h4:7402"}`).want(503).has("error", "BACKEND_UNAVAILABLE")
	r.do("POST", "/v1/cluster/servers", `{"server_id":"s4","address":"h4"}`).want(400).has("field", "address")
	r.do("POST", "/v1/cluster/servers", `{"server_id":"no id","address":"h4:7402"}`).want(400).has("field", "server_id")
	r.do("DELETE", "/v1/cluster/servers/s2", "").want(200).has("ok", true)
	r.do("DELETE", "/v1/cluster/servers/s9", "").want(404).has("error", "NOT_FOUND")
	if got, want := fmt.Sprint(c.did), "[add s4=h4:7402 remove s2]"; got != want {
		t.Errorf("done: %s, want %s", got, want)
	}
	if n := len(r.log.find(map[string]any{"audit": true, "act": "add_server"})); n != 4 {
		t.Errorf("%d of 4 attempts to add are in the audit log", n)
	}
	if n := len(r.log.find(map[string]any{"audit": true, "act": "remove_server", "server": "s2"})); n != 1 {
		t.Errorf("the removal is %d times in the audit log", n)
	}
}

// A store that is no cluster of servers says so.
func TestNoCluster(t *testing.T) {
	r := newRig(t)
	r.do("GET", "/v1/cluster", "").want(409).has("reason", "unsupported")
	r.do("POST", "/v1/cluster/servers", `{"server_id":"s4","address":"h4:7402"}`).want(409).has("reason", "unsupported")
	r.do("DELETE", "/v1/cluster/servers/s2", "").want(409).has("reason", "unsupported")
}
