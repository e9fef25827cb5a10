package httpapi_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"baton/server/httpapi"
)

func TestRepeatedCampaignOfAnInstanceGetsWhatItWon(t *testing.T) {
	r := newRig(t)
	term := r.lead("g", "n", "i", 5*time.Second)
	r.campaign("g", "n", "i", 5*time.Second).want(200).has("is_leader", true, "leader.term", int(term), "instance_id", "i")
	r.campaign("g", "n", "j", 5*time.Second).want(200).has("is_leader", false, "leader.instance_id", "i", "instance_id", "j")
	r.resign("g", "n", "i", term).want(200)
	r.campaign("g", "n", "i", 5*time.Second).want(409).has("error", "CONFLICT", "reason", "instance_ended")
}

// Without an instance the server draws one; node and term then name the leadership.
func TestCampaignWithoutInstance(t *testing.T) {
	r := newRig(t)
	const g = "/v1/groups/g"
	a := r.do("POST", g+"/campaign", `{"node_id":"n","lease_ttl_ms":5000}`).want(200).has("is_leader", true)
	drawn := a.str("instance_id")
	if len(drawn) != 36 || drawn != a.str("leader.instance_id") {
		t.Errorf("drew %q: %s", drawn, a.body)
	}
	term := a.num("leader.term")
	a = r.do("POST", g+"/campaign", `{"node_id":"n","lease_ttl_ms":5000}`).want(200).has("is_leader", false, "leader.instance_id", drawn)
	if a.str("instance_id") == drawn {
		t.Error("a repeated campaign was given the leader's instance")
	}
	r.do("POST", g+"/renew", fmt.Sprintf(`{"node_id":"n","term":%d,"extend_by_ms":5000}`, term)).want(200).has("leader.instance_id", drawn)
	r.do("POST", g+"/renew", fmt.Sprintf(`{"node_id":"m","term":%d,"extend_by_ms":5000}`, term)).want(409).has("error", "NOT_LEADER", "current_leader.node_id", "n")
	r.do("POST", g+"/renew", fmt.Sprintf(`{"node_id":"n","term":%d,"extend_by_ms":5000}`, term+1)).want(409).has("error", "NOT_LEADER")
	r.do("POST", g+"/renew", fmt.Sprintf(`{"node_id":"n","instance_id":"else","term":%d,"extend_by_ms":5000}`, term)).want(409).has("error", "NOT_LEADER")
	r.do("POST", g+"/resign", fmt.Sprintf(`{"node_id":"n","term":%d}`, term)).want(200)
	r.do("POST", g+"/resign", fmt.Sprintf(`{"node_id":"n","term":%d}`, term)).want(409).has("error", "NOT_LEADER", "current_leader", nil, "term", int(term))
}

func TestExpiredLeaseIsOver(t *testing.T) {
	r := newRig(t, func(c *rigConfig) { c.svc.DefaultPolicy.MinTTL = 20 * time.Millisecond })
	term := r.lead("g", "n", "i", 30*time.Millisecond)
	eventually(t, "the lease runs out", func() bool { return r.do("GET", "/v1/groups/g/leader", "").at("leader") == nil })
	r.do("POST", "/v1/groups/g/renew", fmt.Sprintf(`{"node_id":"n","instance_id":"i","term":%d,"extend_by_ms":1000}`, term)).
		want(409).has("error", "NOT_LEADER", "current_leader", nil)
	a := r.do("GET", "/v1/groups/g/history", "").want(200)
	if !strings.Contains(string(a.body), `"reason":"EXPIRED"`) {
		t.Errorf("history: %s", a.body)
	}
	if next := r.lead("g", "n", "j", time.Second); next <= term {
		t.Errorf("term %d after %d", next, term)
	}
	if len(r.log.find(map[string]any{"msg": "leader elected", "previous_node": "n", "previous_ended": "EXPIRED"})) != 1 {
		t.Error("the log does not say why the last one ended")
	}
}

func TestIsLeaderProbe(t *testing.T) {
	r := newRig(t)
	r.do("GET", "/v1/groups/g/is-leader/n", "").want(503).has("is_leader", false)
	r.lead("g", "n", "i", time.Minute)
	r.do("GET", "/v1/groups/g/is-leader/n", "").want(200).has("is_leader", true)
	r.do("GET", "/v1/groups/g/is-leader/m", "").want(503).has("is_leader", false)
	resp, err := r.client.Head(r.url + "/v1/groups/g/is-leader/n")
	if err != nil || resp.StatusCode != 200 {
		t.Errorf("HEAD: %v, %v", resp, err)
	} else {
		_ = resp.Body.Close()
	}
}

func TestHistoryTellsWhoWhenAndWhy(t *testing.T) {
	r := newRig(t)
	first := r.lead("g", "a", "1", time.Minute)
	r.resign("g", "a", "1", first).want(200)
	second := r.lead("g", "b", "2", time.Minute)
	r.do("POST", "/v1/groups/g/step-down", `{"reason":"maintenance","immediate":true}`).want(200).has("term", int(second), "node_id", "b")
	r.lead("g", "c", "3", time.Minute)
	terms, _ := r.do("GET", "/v1/groups/g/history", "").want(200).m["terms"].([]any)
	if len(terms) != 3 {
		t.Fatalf("history: %v", terms)
	}
	for i, want := range []map[string]any{
		{"node_id": "a", "reason": "RESIGNED"},
		{"node_id": "b", "reason": "STEPPED_DOWN", "note": "maintenance"},
		{"node_id": "c", "reason": nil, "ended_at_ms": nil},
	} {
		for k, v := range want {
			if got := terms[i].(map[string]any)[k]; got != v {
				t.Errorf("term %d: %s is %v, want %v", i, k, got, v)
			}
		}
	}
}

func TestMembers(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/v1/groups/g/campaign", `{"node_id":"b","instance_id":"1","lease_ttl_ms":60000,"metadata":{"zone":"x"}}`).want(200)
	before := time.Now().UnixMilli()
	r.campaign("g", "a", "2", time.Minute).want(200).has("is_leader", false)
	r.campaign("g", "b", "3", time.Minute).want(200).has("is_leader", false)
	members, _ := r.do("GET", "/v1/groups/g/members", "").want(200).m["members"].([]any)
	var got []string
	for _, m := range members {
		m := m.(map[string]any)
		got = append(got, fmt.Sprint(m["node_id"], " ", m["instance_id"], " ", m["role"]))
		if seen := int64(m["last_seen_ms"].(float64)); seen < before-60_000 || seen > time.Now().UnixMilli() {
			t.Errorf("last seen %d", seen)
		}
	}
	if want := "a 2 candidate, b 1 leader, b 3 candidate"; strings.Join(got, ", ") != want {
		t.Errorf("members %v, want %s", got, want)
	}
	// Who has resigned is no member any more.
	r.resign("h", "c", "4", r.lead("h", "c", "4", time.Minute)).want(200)
	if a := r.do("GET", "/v1/groups/h/members", "").want(200); strings.Contains(string(a.body), `"c"`) {
		t.Errorf("members: %s", a.body)
	}
}

func TestOperations(t *testing.T) {
	r := newRig(t)
	r.do("GET", "/healthz", "").want(200).has("status", "ok")
	r.do("GET", "/readyz", "").want(200).has("status", "ready", "guarantees.store", "memory", "guarantees.waiting", "line")
	r.do("GET", "/openapi.json", "").want(200).has("openapi", "3.0.3")
	term := r.lead("g", "n", "i", time.Minute)
	r.resign("g", "n", "i", term).want(200)
	r.lead("g", "n", "j", time.Minute)
	r.do("POST", "/v1/groups/g/renew", fmt.Sprintf(`{"node_id":"n","instance_id":"i","term":%d,"extend_by_ms":1000}`, term)).want(409)
	for sample, want := range map[string]string{
		`baton_leader_changes_total{group="g"}`:                         "2",
		`baton_time_to_elect_seconds_count`:                             "1",
		`baton_renew_failures_total{reason="NOT_LEADER"}`:               "1",
		`baton_store_quorum_healthy`:                                    "1",
		`baton_split_brain_detected_total`:                              "0",
		`baton_request_duration_seconds_count{code="OK",op="campaign"}`: "2",
	} {
		if got := r.metric(sample); got != want {
			t.Errorf("%s is %q, want %s", sample, got, want)
		}
	}
	if found := r.log.find(map[string]any{"msg": "leader elected", "group": "g", "node": "n", "previous_ended": "RESIGNED"}); len(found) != 1 {
		t.Errorf("log: %v", found)
	}
}

func TestContentTypeDoesNotMatter(t *testing.T) {
	r := newRig(t)
	// What curl -d sends. Not by r.client: the document says application/json.
	resp, err := http.Post(r.url+"/v1/groups/g/campaign", "application/x-www-form-urlencoded", strings.NewReader(`{"node_id":"n","lease_ttl_ms":5000}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != 200 {
		t.Errorf("status %s", resp.Status)
	}
}

func TestDashboardIsServed(t *testing.T) {
	r := newRig(t)
	page := r.do("GET", "/ui/", "").want(200)
	if !strings.Contains(page.header.Get("Content-Type"), "text/html") || page.header.Get("Content-Security-Policy") == "" {
		t.Errorf("headers %v", page.header)
	}
	for _, file := range []string{"app.js", "style.css"} {
		if !strings.Contains(string(page.body), `"`+file+`"`) {
			t.Errorf("the page does not load %s", file)
		}
		resp, err := http.Get(r.url + "/ui/" + file)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s: %s", file, resp.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	without := newRig(t, withHTTP(func(c *httpapi.Config) { c.NoUI = true }))
	for _, path := range []string{"/", "/ui/"} {
		without.do("GET", path, "").want(404).has("error", "NOT_FOUND")
	}
}

// A browser that is given the server's address finds the dashboard; other
// paths that do not exist are told as JSON.
func TestTheAddressLeadsToTheDashboard(t *testing.T) {
	r := newRig(t)
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, httptest.NewRequest("GET", r.url+"/", nil))
	if w.Code != http.StatusFound || w.Header().Get("Location") != "/ui/" {
		t.Errorf("%d, to %q", w.Code, w.Header().Get("Location"))
	}
	r.do("GET", "/index.html", "").want(404).has("error", "NOT_FOUND")
}
