package httpapi_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Everything here is refused as documented, and changes nothing.
func TestBadInput(t *testing.T) {
	r := newRig(t)
	term := r.lead("g", "leader", "i", time.Minute)
	r.do("POST", "/v1/groups", `{"group_id":"kept","policy":{"max_ttl_ms":9000}}`).want(201)

	long := strings.Repeat("x", 129)
	pairs := make([]string, 33)
	for i := range pairs {
		pairs[i] = fmt.Sprintf(`"k%d":"v"`, i)
	}
	campaign := func(fields string) string { return `{"node_id":"n","lease_ttl_ms":5000,` + fields + `}` }
	for _, tc := range []struct {
		name, method, path, body string
		status                   int
		code, field              string
	}{
		{"empty body", "POST", "/v1/groups/g/campaign", ``, 400, "INVALID_ARGUMENT", "body"},
		{"cut short", "POST", "/v1/groups/g/campaign", `{"node_id":"n"`, 400, "INVALID_ARGUMENT", "body"},
		{"an array", "POST", "/v1/groups/g/campaign", `[]`, 400, "INVALID_ARGUMENT", "body"},
		{"null", "PUT", "/v1/groups/kept", `null`, 400, "INVALID_ARGUMENT", "body"},
		{"two values", "POST", "/v1/groups/g/campaign", `{} {}`, 400, "INVALID_ARGUMENT", "body"},
		{"no node", "POST", "/v1/groups/g/campaign", `{"lease_ttl_ms":5000}`, 400, "INVALID_ARGUMENT", "node_id"},
		{"node of the wrong type", "POST", "/v1/groups/g/campaign", `{"node_id":17,"lease_ttl_ms":5000}`, 400, "INVALID_ARGUMENT", "node_id"},
		{"node with a slash", "POST", "/v1/groups/g/campaign", `{"node_id":"a/b","lease_ttl_ms":5000}`, 400, "INVALID_ARGUMENT", "node_id"},
		{"node too long", "POST", "/v1/groups/g/campaign", `{"node_id":"` + long + `","lease_ttl_ms":5000}`, 400, "INVALID_ARGUMENT", "node_id"},
		{"node is dots", "POST", "/v1/groups/g/campaign", `{"node_id":"..","lease_ttl_ms":5000}`, 400, "INVALID_ARGUMENT", "node_id"},
		{"odd instance", "POST", "/v1/groups/g/campaign", campaign(`"instance_id":"ü"`), 400, "INVALID_ARGUMENT", "instance_id"},
		{"too many pairs", "POST", "/v1/groups/g/campaign", campaign(`"metadata":{` + strings.Join(pairs, ",") + `}`), 400, "INVALID_ARGUMENT", "metadata"},
		{"too much metadata", "POST", "/v1/groups/g/campaign", campaign(`"metadata":{"a":"` + strings.Repeat("x", 4096) + `"}`), 400, "INVALID_ARGUMENT", "metadata"},
		{"metadata of numbers", "POST", "/v1/groups/g/campaign", campaign(`"metadata":{"a":1}`), 400, "INVALID_ARGUMENT", "metadata"},
		{"no ttl", "POST", "/v1/groups/g/campaign", `{"node_id":"n"}`, 400, "INVALID_TTL", "lease_ttl_ms"},
		{"ttl too short", "POST", "/v1/groups/g/campaign", `{"node_id":"n","lease_ttl_ms":499}`, 400, "INVALID_TTL", "lease_ttl_ms"},
		{"ttl too long", "POST", "/v1/groups/g/campaign", `{"node_id":"n","lease_ttl_ms":300001}`, 400, "INVALID_TTL", "lease_ttl_ms"},
		{"ttl negative", "POST", "/v1/groups/g/campaign", `{"node_id":"n","lease_ttl_ms":-5000}`, 400, "INVALID_TTL", "lease_ttl_ms"},
		{"ttl overflows nanoseconds", "POST", "/v1/groups/g/campaign", `{"node_id":"n","lease_ttl_ms":9223372036854775807}`, 400, "INVALID_TTL", "lease_ttl_ms"},
		{"ttl overflows", "POST", "/v1/groups/g/campaign", `{"node_id":"n","lease_ttl_ms":92233720368547758070}`, 400, "INVALID_ARGUMENT", "lease_ttl_ms"},
		{"ttl with a fraction", "POST", "/v1/groups/g/campaign", `{"node_id":"n","lease_ttl_ms":5000.5}`, 400, "INVALID_ARGUMENT", "lease_ttl_ms"},
		{"wait negative", "POST", "/v1/groups/g/campaign", campaign(`"wait_ms":-1`), 400, "INVALID_ARGUMENT", "wait_ms"},
		{"renew without term", "POST", "/v1/groups/g/renew", `{"node_id":"leader","extend_by_ms":5000}`, 400, "INVALID_ARGUMENT", "term"},
		{"renew with term beyond exact numbers", "POST", "/v1/groups/g/renew", `{"node_id":"leader","term":9007199254740992,"extend_by_ms":5000}`, 400, "INVALID_ARGUMENT", "term"},
		{"renew by nothing", "POST", "/v1/groups/g/renew", fmt.Sprintf(`{"node_id":"leader","term":%d}`, term), 400, "INVALID_TTL", "extend_by_ms"},
		{"renew by too much", "POST", "/v1/groups/g/renew", fmt.Sprintf(`{"node_id":"leader","term":%d,"extend_by_ms":300001}`, term), 400, "INVALID_TTL", "extend_by_ms"},
		{"resign for a successor that is no id", "POST", "/v1/groups/g/resign", fmt.Sprintf(`{"node_id":"leader","term":%d,"successor":"a b"}`, term), 400, "INVALID_ARGUMENT", "successor"},
		{"step-down without a reason", "POST", "/v1/groups/g/step-down", `{}`, 400, "INVALID_ARGUMENT", "reason"},
		{"step-down with an essay", "POST", "/v1/groups/g/step-down", `{"reason":"` + strings.Repeat("x", 2000) + `"}`, 400, "INVALID_ARGUMENT", "reason"},
		{"policy misspelt", "PUT", "/v1/groups/kept", `{"policy":{"max_tll_ms":1000}}`, 400, "INVALID_ARGUMENT", "body"},
		{"limit given twice", "PUT", "/v1/groups/kept", `{"policy":{"max_ttl_ms":1000,"max_ttl_ms":null}}`, 400, "INVALID_ARGUMENT", "policy.max_ttl_ms"},
		{"list given twice", "PUT", "/v1/groups/kept", `{"allowed_nodes":["a"],"Allowed_Nodes":[]}`, 400, "INVALID_ARGUMENT", "Allowed_Nodes"},
		{"policy given twice", "POST", "/v1/groups", `{"group_id":"x","policy":{"max_ttl_ms":1000},"policy":{}}`, 400, "INVALID_ARGUMENT", "policy"},
		{"policy upside down", "PUT", "/v1/groups/kept", `{"policy":{"min_ttl_ms":5000,"max_ttl_ms":1000}}`, 400, "INVALID_ARGUMENT", "policy.min_ttl_ms"},
		{"policy negative", "PUT", "/v1/groups/kept", `{"policy":{"min_ttl_ms":-5}}`, 400, "INVALID_ARGUMENT", "policy.min_ttl_ms"},
		{"policy above all bounds", "PUT", "/v1/groups/kept", `{"policy":{"max_ttl_ms":600001}}`, 400, "INVALID_ARGUMENT", "policy.max_ttl_ms"},
		{"policy below the store's floor", "PUT", "/v1/groups/kept", `{"policy":{"min_ttl_ms":9}}`, 400, "INVALID_ARGUMENT", "policy.min_ttl_ms"},
		{"allowed node is no id", "PUT", "/v1/groups/kept", `{"allowed_nodes":["a","b/c"]}`, 400, "INVALID_ARGUMENT", "allowed_nodes"},
		{"body names another group", "PUT", "/v1/groups/kept", `{"group_id":"other"}`, 400, "INVALID_ARGUMENT", "group_id"},
		{"create without id", "POST", "/v1/groups", `{}`, 400, "INVALID_ARGUMENT", "group_id"},
		{"create with a version", "POST", "/v1/groups", `{"group_id":"x","version":3}`, 400, "INVALID_ARGUMENT", "version"},
		{"create what is there", "POST", "/v1/groups", `{"group_id":"kept"}`, 409, "CONFLICT", ""},
		{"change of a version that is past", "PUT", "/v1/groups/kept", `{"version":999}`, 409, "CONFLICT", ""},
		{"delete a held group", "DELETE", "/v1/groups/g", ``, 409, "CONFLICT", ""},
		{"delete an unknown group", "DELETE", "/v1/groups/nope", ``, 404, "NOT_FOUND", ""},
		{"read an unknown group", "GET", "/v1/groups/nope", ``, 404, "NOT_FOUND", ""},
		{"group with an encoded slash", "GET", "/v1/groups/a%2Fb/leader", ``, 400, "INVALID_ARGUMENT", "group_id"},
		{"group with an encoded space", "GET", "/v1/groups/a%20b/leader", ``, 400, "INVALID_ARGUMENT", "group_id"},
		{"group too long", "GET", "/v1/groups/" + long + "/leader", ``, 400, "INVALID_ARGUMENT", "group_id"},
		{"group is dots", "GET", "/v1/groups/%2e%2e/leader", ``, 400, "INVALID_ARGUMENT", "path"},
		{"empty group", "GET", "/v1/groups//leader", ``, 400, "INVALID_ARGUMENT", "path"},
		{"empty group at the end", "GET", "/v1/groups/", ``, 400, "INVALID_ARGUMENT", "path"},
		{"slash at the end", "GET", "/v1/groups/g/leader/", ``, 400, "INVALID_ARGUMENT", "path"},
		{"probe of a node that is no id", "GET", "/v1/groups/g/is-leader/a%20b", ``, 400, "INVALID_ARGUMENT", "node_id"},
		{"cursor with a line break", "GET", "/v1/groups/g/watch?wait_ms=0&cursor=a%0Ab", ``, 400, "INVALID_ARGUMENT", "cursor"},
		{"cursor too long", "GET", "/v1/groups/g/watch?wait_ms=0&cursor=" + strings.Repeat("c", 257), ``, 400, "INVALID_ARGUMENT", "cursor"},
		{"cursor that cannot be decoded", "GET", "/v1/groups/g/watch?wait_ms=0&cursor=%zz", ``, 400, "INVALID_ARGUMENT", "query"},
		{"query with a semicolon", "GET", "/v1/groups/g/watch?cursor=c;wait_ms=0", ``, 400, "INVALID_ARGUMENT", "query"},
		{"wait that is no number", "GET", "/v1/groups/g/watch?wait_ms=soon", ``, 400, "INVALID_ARGUMENT", "wait_ms"},
		{"wait that is negative", "GET", "/v1/groups/g/watch?wait_ms=-1", ``, 400, "INVALID_ARGUMENT", "wait_ms"},
		{"no such path", "GET", "/v2/groups", ``, 404, "NOT_FOUND", ""},
		{"post to the root", "POST", "/", ``, 404, "NOT_FOUND", ""},
		{"no such action", "POST", "/v1/groups/g/abdicate", `{}`, 404, "NOT_FOUND", ""},
		{"no such file of the dashboard", "GET", "/ui/nothing.js", ``, 404, "NOT_FOUND", ""},
		{"no such method", "PATCH", "/v1/groups/g", `{}`, 405, "INVALID_ARGUMENT", "method"},
		{"get instead of post", "GET", "/v1/groups/g/campaign", ``, 405, "INVALID_ARGUMENT", "method"},
		{"huge body", "POST", "/v1/groups/g/campaign", `{"node_id":"` + strings.Repeat("x", 70<<10) + `"}`, 413, "TOO_LARGE", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := r.do(tc.method, tc.path, tc.body)
			a.t = t
			a.want(tc.status).has("error", tc.code)
			if tc.field != "" && !strings.HasPrefix(a.str("field"), tc.field) {
				t.Errorf("field %q, want %s: %s", a.str("field"), tc.field, a.body)
			}
			if a.str("message") == "" {
				t.Errorf("no message: %s", a.body)
			}
		})
	}
	r.do("GET", "/v1/groups/g/leader", "").want(200).has("leader.node_id", "leader", "leader.term", int(term))
	r.do("GET", "/v1/groups/kept", "").want(200).has("policy.max_ttl_ms", 9000, "version", 1)
	if allow := r.do("PATCH", "/v1/groups/g", `{}`).header.Get("Allow"); allow != "DELETE, GET, PUT" {
		t.Errorf("Allow: %q", allow)
	}
}

func TestUnknownFieldsAreIgnoredOutsidePolicies(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/v1/groups/g/campaign", `{"node_id":"n","lease_ttl_ms":5000,"colour":"red"}`).want(200).has("is_leader", true)
}

// Paths that a client library would never send, straight onto the wire.
func TestRawPaths(t *testing.T) {
	r := newRig(t)
	for _, target := range []string{
		"/v1/groups/../../healthz",
		"/v1/./groups",
		"/v1/groups/a/../b/leader",
		"//v1/groups",
		"/v1/groups/%2e/leader",
		"/v1/groups/%2E%2E/campaign",
		"/v1/groups/%00/leader",
		"/ui/../v1/groups",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", target)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		if resp.StatusCode != 400 || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s, %s", target, resp.Status, resp.Header.Get("Content-Type"))
		}
		_ = resp.Body.Close()
		_ = conn.Close()
	}
}

// A page of another site, open in an operator's browser, is not the operator.
func TestCrossOriginWritesAreRefused(t *testing.T) {
	r := newRig(t)
	r.lead("g", "n", "i", time.Minute)
	header := http.Header{"Origin": {"https://elsewhere.example"}, "Sec-Fetch-Site": {"cross-site"}}
	r.doContext(t.Context(), "POST", "/v1/groups/g/step-down", `{"reason":"x","immediate":true}`, header).want(403).has("error", "UNAUTHORIZED")
	r.do("GET", "/v1/groups/g/leader", "").want(200).has("leader.node_id", "n")
}
