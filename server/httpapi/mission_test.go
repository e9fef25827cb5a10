package httpapi_test

import (
	"strings"
	"testing"
	"time"

	"baton"
	"baton/store/memstore"
)

// The API document's examples, as written there.
func TestExamplesOfTheDocument(t *testing.T) {
	// Term 42 is the next one.
	store, err := memstore.New(memstore.Config{FirstTerm: 42})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	r := newRig(t, withStore(store))
	const g = "/v1/groups/payments-coordinator"

	// Won leadership.
	before := time.Now().UnixMilli()
	a := r.do("POST", g+"/campaign", `{
		"node_id": "node_17",
		"lease_ttl_ms": 5000,
		"metadata": {"ip": "10.0.1.7", "zone": "az-a", "version": "1.4.2"}
	}`).want(200).has("is_leader", true, "leader.node_id", "node_17", "leader.term", 42, "retry_after_ms", nil)
	if at := a.num("leader.lease_expires_at_ms"); at < before+4900 || at > time.Now().UnixMilli()+5000 {
		t.Errorf("lease_expires_at_ms is %d, asked at %d for 5000 ms", at, before)
	}

	// Lost, someone else is leader.
	a = r.do("POST", g+"/campaign", `{"node_id": "node_03", "lease_ttl_ms": 5000}`).want(200).
		has("is_leader", false, "leader.node_id", "node_17", "leader.term", 42)
	if retry := a.num("retry_after_ms"); retry < 100 || retry > 5000 {
		t.Errorf("retry_after_ms is %d", retry)
	}

	// Renew, with the document's body and nothing more.
	r.do("POST", g+"/renew", `{"node_id": "node_17", "term": 42, "extend_by_ms": 5000}`).want(200).
		has("ok", true, "leader.node_id", "node_17", "leader.term", 42)

	// Who leads, with metadata.
	r.do("GET", g+"/leader", "").want(200).
		has("leader.node_id", "node_17", "leader.term", 42, "leader.metadata.zone", "az-a", "leader.metadata.version", "1.4.2")

	// Resign.
	a = r.do("POST", g+"/resign", `{ "node_id": "node_17", "term": 42 }`).want(200)
	if got := strings.TrimSpace(string(a.body)); got != `{"ok":true}` {
		t.Errorf("resign answered %s", got)
	}
	r.do("GET", g+"/leader", "").want(200).has("leader", nil, "term", 42)

	// Failure (fencing).
	r.do("POST", g+"/campaign", `{"node_id": "node_03", "lease_ttl_ms": 5000}`).want(200).has("is_leader", true, "leader.term", 43)
	r.do("POST", g+"/renew", `{"node_id": "node_17", "term": 42, "extend_by_ms": 5000}`).want(409).
		has("ok", false, "error", "NOT_LEADER", "current_leader.node_id", "node_03", "current_leader.term", 43)
	r.do("POST", g+"/resign", `{"node_id": "node_17", "term": 42}`).want(409).has("error", "NOT_LEADER")

	// Watch.
	r.do("GET", g+"/watch?wait_ms=1000", "").want(200)

	// Members.
	a = r.do("GET", g+"/members", "").want(200)
	if got := string(a.body); !strings.Contains(got, `"node_id":"node_03"`) || !strings.Contains(got, `"role":"leader"`) {
		t.Errorf("members: %s", got)
	}
}

func TestGroupExampleOfTheDocument(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/v1/groups", `{
		"group_id": "payments-coordinator",
		"policy": { "min_ttl_ms": 2000, "max_ttl_ms": 15000 },
		"allowed_nodes": ["node_01", "node_02", "node_03"]
	}`).want(201).has("group_id", "payments-coordinator", "policy.min_ttl_ms", 2000, "policy.max_ttl_ms", 15000)

	r.campaign("payments-coordinator", "node_01", "i", 1*time.Second).want(400).
		has("error", "INVALID_TTL", "min_ttl_ms", 2000, "max_ttl_ms", 15000, "ttl_ms", 1000, "field", "lease_ttl_ms")
	r.campaign("payments-coordinator", "node_17", "i", 5*time.Second).want(403).has("error", "UNAUTHORIZED")
	r.lead("payments-coordinator", "node_01", "i", 5*time.Second)
}

func TestEventExampleOfTheDocument(t *testing.T) {
	store, err := memstore.New(memstore.Config{FirstTerm: 44})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	r := newRig(t, withStore(store))
	r.lead("payments-coordinator", "node_09", "i", 5*time.Second)
	a := r.do("GET", "/v1/groups/payments-coordinator/watch?wait_ms=0", "").want(200)
	events, _ := a.m["events"].([]any)
	if len(events) != 1 {
		t.Fatalf("events: %s", a.body)
	}
	e, _ := events[0].(map[string]any)
	if e["type"] != string(baton.LeaderChanged) || e["group_id"] != "payments-coordinator" || e["term"] != 44.0 || e["leader_node_id"] != "node_09" || e["ts_ms"] == nil {
		t.Errorf("event: %v", e)
	}
}
