package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"baton"
	"baton/api"
)

// serve runs one request through the handler, without a network, and checks
// what must hold of any answer: it is documented JSON, and no server's fault.
// A target that reaches no handler, since it cannot be parsed, is nil.
func (r *rig) serve(t *testing.T, method, target, body string) *httptest.ResponseRecorder {
	t.Helper()
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil
	}
	req := httptest.NewRequestWithContext(t.Context(), method, "/", strings.NewReader(body))
	req.URL, req.RequestURI = u, target
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	if w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%s %q: %d, %s", method, target, w.Code, w.Header().Get("Content-Type"))
	}
	if w.Code >= 400 {
		var e api.Error
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Message == "" {
			t.Fatalf("%s %q: %d %s", method, target, w.Code, w.Body)
		}
		kind, ok := baton.KindByCode(e.Code)
		if !ok || kind.HTTP != w.Code && w.Code != http.StatusMethodNotAllowed || w.Code >= 500 {
			t.Fatalf("%s %q: %d %s", method, target, w.Code, w.Body)
		}
	}
	return w
}

func FuzzBodies(f *testing.F) {
	r := newRig(f)
	for _, s := range []string{
		`{"node_id":"n","lease_ttl_ms":5000}`,
		`{"node_id":"n","term":1,"extend_by_ms":5000}`,
		`{"group_id":"g","policy":{"min_ttl_ms":2000,"max_ttl_ms":15000},"allowed_nodes":["a"]}`,
		`{"reason":"x","immediate":true,"successor":"n"}`,
		`{"node_id":"n","lease_ttl_ms":1e9}`, `{"term":18446744073709551615}`, `{`, `nul`, `[]`, `{"policy":[x`, `{"policy":{"a":1,"A":`, `{"policy":{}]`, ``, `{"metadata":{"a":"\ud800"}}`,
	} {
		for op := range 6 {
			f.Add(op, s)
		}
	}
	ops := [][2]string{
		{"POST", "/v1/groups/g/campaign"}, {"POST", "/v1/groups/g/renew"}, {"POST", "/v1/groups/g/resign"},
		{"POST", "/v1/groups/g/step-down"}, {"POST", "/v1/groups"}, {"PUT", "/v1/groups/h"},
	}
	f.Fuzz(func(t *testing.T, op int, body string) {
		if strings.Contains(strings.ToLower(body), "wait_ms") {
			return // would wait
		}
		o := ops[uint(op)%uint(len(ops))]
		r.serve(t, o[0], o[1], body)
	})
}

func FuzzIDs(f *testing.F) {
	r := newRig(f)
	for _, s := range []string{"g", "payments-coordinator", ".", "..", "%2e%2e", "a%2Fb", "a/b", "", "%", "%zz", "a?b", "a#b", "\x00", "ü", strings.Repeat("x", 200)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		w := r.serve(t, "GET", "/v1/groups/"+id+"/leader", "")
		if w != nil && w.Code == 200 && baton.ValidateID("group_id", id) != nil && !strings.ContainsAny(id, "%?") {
			t.Fatalf("id %q was accepted", id)
		}
		body, err := json.Marshal(api.CampaignRequest{NodeID: id, LeaseTTL: 5000})
		if err != nil {
			t.Fatal(err)
		}
		if w := r.serve(t, "POST", "/v1/groups/ids/campaign", string(body)); (w.Code == 200) != (baton.ValidateID("node_id", id) == nil) {
			t.Fatalf("node %q: %d %s", id, w.Code, w.Body)
		}
	})
}

func FuzzCursors(f *testing.F) {
	r := newRig(f)
	first := r.do("GET", "/v1/groups/g/watch?wait_ms=0", "").want(200)
	for _, s := range []string{"", "0", "-1", first.str("cursor"), first.str("cursor") + "0", "a:b:c", "a\nid: x", strings.Repeat("9", 256), "ü"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		w := r.serve(t, "GET", "/v1/groups/g/watch?wait_ms=0&cursor="+url.QueryEscape(cursor), "")
		if w.Code != 200 {
			return
		}
		var out api.WatchResponse
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
			t.Fatal(err)
		}
		if len(out.Events) == 0 && out.Cursor != cursor {
			t.Fatalf("cursor %q became %q", cursor, out.Cursor)
		}
	})
}
