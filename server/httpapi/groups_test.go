package httpapi_test

import (
	"fmt"
	"testing"
	"time"

	"baton/server"
)

func TestGroupLifecycle(t *testing.T) {
	r := newRig(t)
	r.do("GET", "/v1/groups", "").want(200)
	r.lead("used", "n", "i", time.Minute)
	r.do("GET", "/v1/groups/used", "").want(200).has("version", 0)
	r.do("PUT", "/v1/groups/g", `{"policy":{"min_ttl_ms":1000},"allowed_nodes":["a"],"version":0}`).want(200).has("version", 1)
	r.do("PUT", "/v1/groups/g", `{"policy":{"min_ttl_ms":2000},"version":0}`).want(409).has("reason", "version")
	r.do("PUT", "/v1/groups/g", `{"policy":{"min_ttl_ms":2000},"version":1}`).want(200).has("version", 2)
	r.do("PUT", "/v1/groups/g", `{"policy":{"min_ttl_ms":3000}}`).want(200).has("version", 3)
	groups, _ := r.do("GET", "/v1/groups", "").want(200).m["groups"].([]any)
	if len(groups) != 2 || groups[0].(map[string]any)["group_id"] != "g" || groups[1].(map[string]any)["group_id"] != "used" {
		t.Errorf("groups: %v", groups)
	}
	term := r.lead("g", "a", "i", 5*time.Second)
	r.do("DELETE", "/v1/groups/g", "").want(409).has("error", "CONFLICT", "reason", "held")
	r.resign("g", "a", "i", term).want(200)
	r.do("DELETE", "/v1/groups/g", "").want(200).has("ok", true)
	r.do("GET", "/v1/groups/g", "").want(404)
	if next := r.lead("g", "a", "j", time.Second); next <= term {
		t.Errorf("term %d after %d and a deletion", next, term)
	}
	if len(r.log.find(map[string]any{"audit": true, "act": "put_group", "group": "g"})) != 4 ||
		len(r.log.find(map[string]any{"audit": true, "act": "delete_group", "msg": "administrator's act refused"})) != 1 {
		t.Error("the audit log is not complete")
	}
}

func TestExplicitGroups(t *testing.T) {
	r := newRig(t, withService(func(c *server.Config) { c.ExplicitGroups = true }))
	for _, path := range []string{"leader", "members", "history", "watch?wait_ms=0", "is-leader/n"} {
		r.do("GET", "/v1/groups/g/"+path, "").want(404).has("error", "NOT_FOUND")
	}
	r.campaign("g", "n", "i", time.Minute).want(404).has("error", "NOT_FOUND")
	r.do("POST", "/v1/groups/g/step-down", `{"reason":"x"}`).want(404)
	r.do("POST", "/v1/groups", `{"group_id":"g"}`).want(201)
	r.lead("g", "n", "i", time.Minute)
}

func TestLoweredMaximumAppliesFromTheNextGrant(t *testing.T) {
	r := newRig(t)
	term := r.lead("g", "n", "i", 60*time.Second)
	r.do("PUT", "/v1/groups/g", `{"policy":{"max_ttl_ms":5000}}`).want(200)
	renew := func(ms int) answer {
		return r.do("POST", "/v1/groups/g/renew", fmt.Sprintf(`{"node_id":"n","instance_id":"i","term":%d,"extend_by_ms":%d}`, term, ms))
	}
	renew(60_000).want(200).has("ok", true)
	renew(60_001).want(400).has("error", "INVALID_TTL", "max_ttl_ms", 60_000)
	r.resign("g", "n", "i", term).want(200)
	r.campaign("g", "n", "j", 60*time.Second).want(400).has("error", "INVALID_TTL", "max_ttl_ms", 5000)
	term = r.lead("g", "n", "k", 5*time.Second)
	r.do("POST", "/v1/groups/g/renew", fmt.Sprintf(`{"node_id":"n","instance_id":"k","term":%d,"extend_by_ms":60000}`, term)).
		want(400).has("max_ttl_ms", 5000)
}

func TestRetryAfterOfThePolicy(t *testing.T) {
	r := newRig(t)
	r.do("PUT", "/v1/groups/g", `{"policy":{"retry_after_ms":8000}}`).want(200)
	r.lead("g", "n", "i", time.Minute)
	if ms := r.campaign("g", "m", "j", time.Minute).want(200).num("retry_after_ms"); ms < 8000 || ms > 8801 {
		t.Errorf("retry_after_ms %d", ms)
	}
	r.lead("h", "n", "i", time.Minute)
	if ms := r.campaign("h", "m", "j", time.Minute).want(200).num("retry_after_ms"); ms < 100 || ms > 5000 {
		t.Errorf("retry_after_ms %d", ms)
	}
}

// A node that is taken off the list drains and goes, and does not come back.
func TestNodeTakenOffTheListStepsDown(t *testing.T) {
	r := newRig(t)
	term := r.lead("g", "a", "i", time.Minute)
	r.do("PUT", "/v1/groups/g", `{"allowed_nodes":["b"]}`).want(200)
	a := r.do("POST", "/v1/groups/g/renew", fmt.Sprintf(`{"node_id":"a","instance_id":"i","term":%d,"extend_by_ms":60000}`, term)).want(200)
	a.has("leader.ending.reason", "STEPPED_DOWN", "leader.ending.note", "taken off allowed_nodes")
	r.resign("g", "a", "i", term).want(200)
	r.campaign("g", "a", "j", time.Minute).want(403).has("error", "UNAUTHORIZED")
	r.lead("g", "b", "k", time.Minute)
}

func TestStepDownGentlyAndAtOnce(t *testing.T) {
	r := newRig(t)
	term := r.lead("g", "a", "i", time.Minute)
	r.do("POST", "/v1/groups/g/step-down", fmt.Sprintf(`{"term":%d,"reason":"too late"}`, term+1)).want(409).has("error", "NOT_LEADER", "current_leader.node_id", "a")
	r.do("POST", "/v1/groups/g/step-down", `{"reason":"drain az-a"}`).want(200).has("term", int(term), "node_id", "a")
	r.do("GET", "/v1/groups/g/leader", "").want(200).has("leader.node_id", "a", "leader.ending.note", "drain az-a")
	r.campaign("g", "b", "j", time.Minute).want(200).has("is_leader", false, "leader.ending.reason", "STEPPED_DOWN")
	r.do("POST", "/v1/groups/g/step-down", `{"reason":"it hangs","immediate":true}`).want(200)
	r.do("GET", "/v1/groups/g/leader", "").want(200).has("leader", nil)
	r.do("POST", "/v1/groups/g/step-down", `{"reason":"again"}`).want(409).has("error", "NOT_LEADER", "current_leader", nil)
	r.lead("g", "b", "j", time.Minute)
	r.do("POST", "/v1/groups/g/step-down", `{"reason":"hand over","successor":"c"}`).want(409).has("error", "CONFLICT", "reason", "not_in_line")
	r.do("GET", "/v1/groups/g/leader", "").want(200).has("leader.node_id", "b", "leader.ending", nil)
	if found := r.log.find(map[string]any{"audit": true, "act": "step_down", "note": "it hangs", "immediate": true, "node": "a"}); len(found) != 1 {
		t.Errorf("audit: %v", found)
	}
}

// A step-down that arrives twice ends two leaderships, unless it names its term.
func TestStepDownArrivesTwice(t *testing.T) {
	for _, named := range []bool{false, true} {
		r := newRig(t)
		request := `{"reason":"it hangs","immediate":true}`
		if term := r.lead("g", "a", "i", time.Minute); named {
			request = fmt.Sprintf(`{"reason":"it hangs","immediate":true,"term":%d}`, term)
		}
		r.do("POST", "/v1/groups/g/step-down", request).want(200).has("node_id", "a")
		r.lead("g", "b", "j", time.Minute)
		if named {
			r.do("POST", "/v1/groups/g/step-down", request).want(409).has("error", "NOT_LEADER", "current_leader.node_id", "b")
		} else {
			r.do("POST", "/v1/groups/g/step-down", request).want(200).has("node_id", "b")
		}
	}
}
