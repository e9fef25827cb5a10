package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"baton/server"
)

// A store that cannot decide is told as such: no hang, no guess.
func TestStoreUnreachable(t *testing.T) {
	for name, state := range map[string]int32{"fails at once": fails, "does not answer": hangs} {
		t.Run(name, func(t *testing.T) {
			store := &broken{Store: memory(t)}
			r := newRig(t, withStore(store), withService(func(c *server.Config) { c.StoreTimeout = 100 * time.Millisecond }))
			// Where the store has all the time it takes.
			term := newRig(t, withStore(store)).lead("g", "a", "1", time.Minute)
			store.state.Store(state)
			for _, q := range [][3]string{
				{"POST", "/v1/groups/g/campaign", `{"node_id":"b","lease_ttl_ms":5000}`},
				{"POST", "/v1/groups/g/campaign", `{"node_id":"b","lease_ttl_ms":5000,"wait_ms":300}`},
				{"POST", "/v1/groups/g/renew", fmt.Sprintf(`{"node_id":"a","instance_id":"1","term":%d,"extend_by_ms":5000}`, term)},
				{"POST", "/v1/groups/g/renew", fmt.Sprintf(`{"node_id":"a","term":%d,"extend_by_ms":5000}`, term)},
				{"POST", "/v1/groups/g/resign", fmt.Sprintf(`{"node_id":"a","instance_id":"1","term":%d}`, term)},
				{"POST", "/v1/groups/g/step-down", `{"reason":"x"}`},
				{"GET", "/v1/groups/g/leader", ""},
				{"GET", "/v1/groups/g/is-leader/a", ""},
				{"GET", "/v1/groups/g/members", ""},
				{"GET", "/v1/groups/g/watch?wait_ms=20000", ""},
				{"GET", "/v1/groups/g/watch?wait_ms=0", ""}, // no events would be a state that nobody told
				{"GET", "/v1/groups/g/history", ""},
				{"GET", "/v1/groups", ""},
				{"GET", "/v1/groups/g", ""},
				{"GET", "/readyz", ""},
			} {
				a := r.do(q[0], q[1], q[2]).want(503).has("error", "BACKEND_UNAVAILABLE")
				if a.header.Get("Retry-After") == "" || a.num("retry_after_ms") == 0 {
					t.Errorf("%s %s: no hint when to come back: %v %s", q[0], q[1], a.header, a.body)
				}
			}
			if state == fails {
				// A stream begins after a quarter of a second, if it is not known by then that there is nothing to tell.
				eventually(t, "a watch that is refused", func() bool { return r.do("GET", "/v1/groups/g/watch", "").status == 503 })
			}
			r.do("GET", "/healthz", "").want(200)
			if got := r.metric("baton_store_quorum_healthy"); got != "0" {
				t.Errorf("baton_store_quorum_healthy is %s", got)
			}
			store.state.Store(works)
			// Within a tenth of a second, which a machine that stands still does not give it each time.
			eventually(t, "ready again", func() bool {
				return r.do("GET", "/readyz", "").status == 200 && r.metric("baton_store_quorum_healthy") == "1"
			})
			eventually(t, "the leader told again", func() bool {
				a := r.do("GET", "/v1/groups/g/leader", "")
				return a.status == 200 && a.str("leader.node_id") == "a"
			})
		})
	}
}

func TestStreamEndsWithTheStoresError(t *testing.T) {
	store := memory(t)
	r := newRig(t, withStore(store))
	w := r.watch("g", "")
	defer w.close()
	w.event()
	_ = store.Close()
	_, err := w.tryEvent()
	if err == nil || !strings.Contains(err.Error(), "BACKEND_UNAVAILABLE") {
		t.Errorf("the stream ended with %v", err)
	}
}
