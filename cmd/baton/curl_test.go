package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// curl sends a request as a shell script does and returns status and body.
func curl(t *testing.T, args ...string) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := runCommand(t, ctx, cleanEnv(), "curl", append([]string{"-sS", "-w", "\n%{http_code}"}, args...)...)
	if r.code != 0 {
		t.Fatalf("curl %q: %v", args, r)
	}
	at := strings.LastIndex(r.stdout, "\n")
	status, err := strconv.Atoi(r.stdout[at+1:])
	if err != nil {
		t.Fatalf("curl printed no status: %v", r)
	}
	return status, r.stdout[:at]
}

// anything in a wanted body stands for a value that the example cannot know.
type anything func(v any) error

func aNumber(v any) error {
	if n, ok := v.(json.Number); ok {
		if _, err := n.Int64(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%v is not a whole number", v)
}

// soon is a stamp of the next minute: an example's lease_expires_at_ms.
func soon(v any) error {
	n, ok := v.(json.Number)
	if !ok {
		return fmt.Errorf("%v is not a number", v)
	}
	ms, err := n.Int64()
	if left := time.Until(time.UnixMilli(ms)); err != nil || left < -time.Minute || left > time.Minute {
		return fmt.Errorf("%v is not a stamp of about now", v)
	}
	return nil
}

type object map[string]any

// matches reports what got lacks of want. Fields that want does not have are allowed.
func matches(path string, got, want any) error {
	switch want := want.(type) {
	case anything:
		if err := want(got); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	case object:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is %v: want an object", path, got)
		}
		for k, w := range want {
			v, ok := g[k]
			if !ok {
				return fmt.Errorf("%s has no %q", path, k)
			}
			if err := matches(path+"."+k, v, w); err != nil {
				return err
			}
		}
		return nil
	case json.Number, string, bool, nil:
		if !reflect.DeepEqual(got, want) {
			return fmt.Errorf("%s is %v: want %v", path, got, want)
		}
		return nil
	}
	return fmt.Errorf("%s: cannot compare with a %T", path, want)
}

func parse(t *testing.T, body string) map[string]any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(body))
	dec.UseNumber()
	var v map[string]any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("not a JSON object: %v\n%s", err, body)
	}
	return v
}

func check(t *testing.T, what string, status int, body string, wantStatus int, want object) map[string]any {
	t.Helper()
	got := parse(t, body)
	if status != wantStatus {
		t.Fatalf("%s: status %d, want %d: %s", what, status, wantStatus, body)
	}
	if err := matches("body", got, want); err != nil {
		t.Fatalf("%s: %v: %s", what, err, body)
	}
	return got
}

func termOf(body map[string]any) string {
	return body["leader"].(map[string]any)["term"].(json.Number).String()
}

// streamed is what curl hears of a watch in two seconds: types of events and who leads.
func streamed(t *testing.T, url string) (types []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := runCommand(t, ctx, cleanEnv(), "curl", "-sS", "-N", "--max-time", "2", url)
	if r.code != 28 { // curl's own: the time is over
		t.Fatalf("curl of the stream: %v", r)
	}
	for _, line := range strings.Split(r.stdout, "\n") {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		e := parse(t, data)
		if err := matches("event", e, object{"group_id": "payments-coordinator", "ts_ms": anything(soon), "term": anything(aNumber)}); err != nil {
			t.Error(err)
		}
		types = append(types, fmt.Sprintf("%v %v", e["type"], e["leader_node_id"]))
	}
	return types
}

// The examples of the API's description, sent as they stand there. Only terms
// and stamps are what they happen to be.
func TestExamplesOfTheAPI(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	v1 := s.url + "/v1"
	group := v1 + "/groups/payments-coordinator"

	status, body := curl(t, "-X", "POST", v1+"/groups", "-d", `{
  "group_id": "payments-coordinator",
  "policy": { "min_ttl_ms": 2000, "max_ttl_ms": 15000 },
  "allowed_nodes": ["node_03", "node_09", "node_17"]
}`)
	check(t, "create the group", status, body, 201, object{
		"group_id": "payments-coordinator",
		"policy":   object{"min_ttl_ms": json.Number("2000"), "max_ttl_ms": json.Number("15000")},
	})

	status, body = curl(t, "-X", "POST", group+"/campaign", "-H", "Content-Type: application/json", "-d", `{
  "node_id": "node_17",
  "lease_ttl_ms": 15000,
  "metadata": {
    "ip": "10.0.1.7",
    "zone": "az-a",
    "version": "1.4.2"
  }
}`)
	won := check(t, "win", status, body, 200, object{
		"is_leader": true,
		"leader":    object{"node_id": "node_17", "term": anything(aNumber), "lease_expires_at_ms": anything(soon)},
	})
	term := termOf(won)

	// Without -H: curl then says that it sends a form, as every hurried user does.
	status, body = curl(t, "-X", "POST", group+"/campaign", "-d", `{"node_id": "node_03", "lease_ttl_ms": 5000}`)
	check(t, "lose", status, body, 200, object{
		"is_leader":      false,
		"leader":         object{"node_id": "node_17", "term": json.Number(term), "lease_expires_at_ms": anything(soon)},
		"retry_after_ms": anything(aNumber),
	})

	status, body = curl(t, "-X", "POST", group+"/renew", "-d", `{
  "node_id": "node_17",
  "term": `+term+`,
  "extend_by_ms": 15000
}`)
	check(t, "renew", status, body, 200, object{
		"ok":     true,
		"leader": object{"node_id": "node_17", "term": json.Number(term), "lease_expires_at_ms": anything(soon)},
	})

	status, body = curl(t, group+"/leader")
	check(t, "read the leader", status, body, 200, object{"leader": object{
		"node_id": "node_17", "term": json.Number(term), "lease_expires_at_ms": anything(soon),
		"metadata": object{"zone": "az-a", "version": "1.4.2"},
	}})

	status, body = curl(t, group+"/members")
	check(t, "list the members", status, body, 200, object{"members": anything(func(v any) error {
		if all, ok := v.([]any); !ok || len(all) != 2 {
			return fmt.Errorf("%v: want both who campaigned", v)
		}
		return nil
	})})

	status, body = curl(t, group+"/watch?wait_ms=0")
	watched := check(t, "watch, the state", status, body, 200, object{"cursor": anything(func(any) error { return nil })})
	cursor, _ := watched["cursor"].(string)

	status, body = curl(t, "-X", "POST", group+"/resign", "-d", `{ "node_id": "node_17", "term": `+term+` }`)
	check(t, "resign", status, body, 200, object{"ok": true})

	status, body = curl(t, group+"/leader")
	check(t, "read the vacant group", status, body, 200, object{"leader": nil, "term": json.Number(term)})

	status, body = curl(t, "-X", "POST", group+"/campaign", "-d", `{"node_id": "node_09", "lease_ttl_ms": 15000}`)
	next := termOf(check(t, "another wins", status, body, 200, object{"is_leader": true}))
	if next <= term {
		t.Errorf("term %s after %s", next, term)
	}

	// The old leader comes back late.
	status, body = curl(t, "-X", "POST", group+"/renew", "-d", `{"node_id": "node_17", "term": `+term+`, "extend_by_ms": 5000}`)
	check(t, "renew too late", status, body, 409, object{
		"ok": false, "error": "NOT_LEADER",
		"current_leader": object{"node_id": "node_09", "term": json.Number(next)},
	})
	status, body = curl(t, "-X", "POST", group+"/resign", "-d", `{"node_id": "node_17", "term": `+term+`}`)
	check(t, "resign too late", status, body, 409, object{"error": "NOT_LEADER"})

	// The stream, from where the long-poll left off: -N prints as it comes, --max-time ends it.
	var types []string
	eventually(t, "two events before the time is over", func() bool { // it may pass while the server stands still
		types = streamed(t, group+"/watch?cursor="+cursor)
		return len(types) >= 2
	})
	if want := []string{"LEADER_LOST ", "LEADER_CHANGED node_09"}; !reflect.DeepEqual(types[:min(2, len(types))], want) {
		t.Errorf("the stream gave %q: want %q", types, want)
	}

	status, body = curl(t, "-X", "POST", group+"/campaign", "-d", `{"node_id": "node_17", "lease_ttl_ms": 60000}`)
	check(t, "a TTL outside the policy", status, body, 400, object{"error": "INVALID_TTL", "min_ttl_ms": json.Number("2000"), "max_ttl_ms": json.Number("15000")})
	status, body = curl(t, "-X", "POST", group+"/campaign", "-d", `{"node_id": "node_99", "lease_ttl_ms": 5000}`)
	check(t, "a node that is not allowed", status, body, 403, object{"error": "UNAUTHORIZED"})
}
