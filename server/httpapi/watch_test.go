package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"baton/api"
	"baton/server/httpapi"
)

const changed, lost = "LEADER_CHANGED", "LEADER_LOST"

func TestStreamTellsEveryChange(t *testing.T) {
	r := newRig(t)
	w := r.watch("g", "")
	defer w.close()
	w.wantEvent(lost, 0, "")
	term := r.lead("g", "a", "1", time.Minute)
	w.wantEvent(changed, term, "a")
	r.resign("g", "a", "1", term).want(200)
	if e := w.wantEvent(lost, term, ""); e.Reason != "RESIGNED" || e.PreviousNodeID != "a" {
		t.Errorf("event %+v", e)
	}
	term = r.lead("g", "b", "2", time.Minute)
	w.wantEvent(changed, term, "b")
	r.do("POST", "/v1/groups/g/step-down", `{"reason":"x","immediate":true}`).want(200)
	if e := w.wantEvent(lost, term, ""); e.Reason != "STEPPED_DOWN" {
		t.Errorf("event %+v", e)
	}
}

// However often a watcher reconnects with its cursor, it sees each change once.
func TestReconnectMissesNothingAndRepeatsNothing(t *testing.T) {
	r := newRig(t)
	w := r.watch("g", "")
	cursor := w.event().Cursor
	var want, got []string
	for i := range 20 {
		instance := fmt.Sprint("i", i)
		term := r.lead("g", "n", instance, time.Minute)
		r.resign("g", "n", instance, term).want(200)
		want = append(want, fmt.Sprint(changed, term), fmt.Sprint(lost, term))
		for range i % 4 { // sometimes none, sometimes more than one change at a time
			if len(got) == len(want) {
				break
			}
			e := w.event()
			got, cursor = append(got, fmt.Sprint(e.Type, e.Term)), e.Cursor
		}
		w.close()
		w = r.watch("g", cursor)
	}
	for len(got) < len(want) {
		e := w.event()
		got = append(got, fmt.Sprint(e.Type, e.Term))
	}
	w.close()
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// A server that was restarted, on a store that was not, goes on where the last one ended.
func TestCursorSurvivesAServersRestart(t *testing.T) {
	store := memory(t)
	first := newRig(t, withStore(store))
	term := first.lead("g", "a", "1", time.Minute)
	w := first.watch("g", "")
	cursor := w.wantEvent(changed, term, "a").Cursor
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := first.handler.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	w.close()
	first.resign("g", "a", "1", term).want(200) // while nobody watches

	second := newRig(t, withStore(store))
	w = second.watch("g", cursor)
	defer w.close()
	w.wantEvent(lost, term, "")
	w.wantEvent(changed, second.lead("g", "b", "2", time.Minute), "b")

	// And on a store that has forgotten everything, the latest state is told, as a gap.
	third := newRig(t)
	term = third.lead("g", "c", "3", time.Minute)
	w2 := third.watch("g", cursor)
	defer w2.close()
	if e := w2.event(); !e.Gap || e.LeaderNodeID != "c" || e.Term != uint64(term) {
		t.Errorf("event %+v", e)
	}
}

func TestLongPoll(t *testing.T) {
	r := newRig(t)
	poll := func(query string, header http.Header) (out api.WatchResponse) {
		t.Helper()
		a := r.doContext(t.Context(), "GET", "/v1/groups/g/watch"+query, "", header).want(200)
		if err := json.Unmarshal(a.body, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	term := r.lead("g", "a", "1", time.Minute)
	state := poll("?wait_ms=0", nil)
	if len(state.Events) != 1 || state.Events[0].Term != uint64(term) || state.Cursor != state.Events[0].Cursor {
		t.Fatalf("state %+v", state)
	}
	if none := poll("?wait_ms=1&cursor="+state.Cursor, nil); len(none.Events) != 0 || none.Cursor != state.Cursor {
		t.Errorf("nothing happened: %+v", none)
	}
	// JSON by Accept alone is a long-poll too; it is there before the change.
	answers := make(chan answer, 1)
	go func() {
		a, err := r.try(t.Context(), "GET", "/v1/groups/g/watch?cursor="+state.Cursor, "", http.Header{"Accept": {"application/json"}})
		if err != nil {
			t.Error(err)
		}
		answers <- a
	}()
	eventually(t, "the poll waits", func() bool { return r.metric("baton_watchers") == "1" })
	r.resign("g", "a", "1", term).want(200)
	a := <-answers
	if !strings.Contains(string(a.body), `"type":"LEADER_LOST"`) {
		t.Errorf("poll answered %s", a.body)
	}
	// All that happened since comes in order, over one poll or several.
	next := r.lead("g", "b", "2", time.Minute)
	var terms []string
	cursor := state.Cursor
	for len(terms) < 2 {
		p := poll("?wait_ms=1000&cursor="+cursor, nil)
		for _, e := range p.Events {
			terms = append(terms, fmt.Sprint(e.Type, e.Term))
		}
		cursor = p.Cursor
	}
	if want := fmt.Sprint(lost, term, " ", changed, next); strings.Join(terms, " ") != want {
		t.Errorf("got %v, want %s", terms, want)
	}
	// A cursor of elsewhere is a gap, not an error.
	foreign := poll("?wait_ms=60000&cursor=of-another-server:7", nil)
	if len(foreign.Events) != 1 || !foreign.Events[0].Gap || foreign.Events[0].Term != uint64(next) {
		t.Errorf("foreign cursor: %+v", foreign)
	}
	// The header wins over the query.
	if p := poll("?wait_ms=1&cursor="+state.Cursor, http.Header{"Last-Event-Id": {cursor}}); len(p.Events) != 0 {
		t.Errorf("header did not win: %+v", p)
	}
}

func TestHeartbeats(t *testing.T) {
	r := newRig(t, withHTTP(func(c *httpapi.Config) { c.Heartbeat = 10 * time.Millisecond }))
	w := r.watch("g", "")
	defer w.close()
	for beats := 0; beats < 3; {
		m, err := w.next()
		if err != nil {
			t.Fatal(err)
		}
		if m.comment != "" {
			beats++
		}
	}
}

// The time limit is for accepting a message, not for there being none.
func TestSilenceIsNotSlowness(t *testing.T) {
	t.Parallel()
	for name, http2 := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is silence
			r := newRig(t, func(c *rigConfig) {
				c.http2 = http2
				// No shorter: it is also what the machine may stand still for while something is written.
				c.http.WriteTimeout = 4 * time.Second
				c.http.Heartbeat = 5 * time.Second
			})
			term := r.lead("g", "a", "1", time.Minute)
			w := r.watch("g", "")
			defer w.close()
			w.wantEvent(changed, term, "a")
			r.do("POST", "/v1/groups/g/campaign", `{"node_id":"b","instance_id":"2","wait_ms":4500}`).want(200).has("leader.node_id", "a")
			r.do("GET", "/v1/groups/g/watch?wait_ms=4500&cursor=%20", "").want(400)
			for beats := 0; beats < 2; {
				m, err := w.next()
				if err != nil {
					t.Fatal(err)
				}
				if m.comment != "" {
					beats++
				}
			}
			r.resign("g", "a", "1", term).want(200)
			w.wantEvent(lost, term, "")
		})
	}
}

func TestHeadOfAWatchEnds(t *testing.T) {
	r := newRig(t)
	resp, err := r.client.Head(r.url + "/v1/groups/g/watch")
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v", resp, err)
	}
	_ = resp.Body.Close()
}

func TestThousandWatchersAllGetAChange(t *testing.T) {
	r := newRig(t)
	const n = 1000
	streams := make([]*stream, n)
	for i := range streams {
		w, err := r.tryWatch("g", "")
		if err != nil {
			t.Fatal(err)
		}
		defer w.close()
		streams[i] = w
		if _, err := w.tryEvent(); err != nil {
			t.Fatal(err)
		}
	}
	term := r.lead("g", "a", "1", time.Minute)
	var wg sync.WaitGroup
	for _, w := range streams {
		wg.Go(func() {
			if e, err := w.tryEvent(); err != nil || e.Term != uint64(term) || e.LeaderNodeID != "a" {
				t.Errorf("event %+v, %v", e, err)
			}
		})
	}
	wg.Wait()
}

// A watcher that does not read is dropped; the others do not notice.
func TestStuckWatcherDelaysNobody(t *testing.T) {
	r := newRig(t, func(c *rigConfig) {
		c.http.WriteTimeout = 5 * time.Second // those who read have it too, on a machine that stands still
		c.sendBuffer = 16 << 10
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(conn, "GET /v1/groups/g/watch HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stuck one watches", func() bool { return r.metric("baton_watchers") == "1" })
	w := r.watch("g", "")
	defer w.close()
	w.event()

	// Long metadata fills the stuck one's buffers, of the kernel too.
	padding := strings.Repeat("x", 4000)
	dropped := func() bool {
		return len(r.log.find(map[string]any{"msg": "watcher dropped: it did not read"})) > 0
	}
	deadline := time.Now().Add(soon)
	for i := 0; !dropped(); i++ {
		if time.Now().After(deadline) {
			t.Fatal("the stuck watcher was never dropped")
		}
		a := r.do("POST", "/v1/groups/g/campaign", fmt.Sprintf(`{"node_id":"n","instance_id":"i%d","lease_ttl_ms":60000,"metadata":{"p":%q}}`, i, padding)).want(200).has("is_leader", true)
		term := a.num("leader.term")
		w.wantEvent(changed, term, "n")
		r.resign("g", "n", fmt.Sprint("i", i), term).want(200)
		w.wantEvent(lost, term, "")
	}
	eventually(t, "only one watches", func() bool { return r.metric("baton_watchers") == "1" })
}

func TestTooManyWatches(t *testing.T) {
	r := newRig(t, withHTTP(func(c *httpapi.Config) { c.MaxWatches = 1 }))
	w := r.watch("g", "")
	defer w.close()
	a := r.do("GET", "/v1/groups/g/watch?wait_ms=0", "").want(429).has("error", "RATE_LIMITED")
	if a.header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
}

func TestShutdownSaysGoodbye(t *testing.T) {
	r := newRig(t)
	term := r.lead("g", "a", "1", time.Minute)
	w := r.watch("g", "")
	defer w.close()
	cursor := w.event().Cursor
	answers := make(chan answer, 2)
	for _, req := range [][3]string{
		{"GET", "/v1/groups/g/watch?wait_ms=60000&cursor=" + cursor, ""},
		{"POST", "/v1/groups/g/campaign", `{"node_id":"b","lease_ttl_ms":5000,"wait_ms":60000}`},
	} {
		go func() {
			a, err := r.try(t.Context(), req[0], req[1], req[2], nil)
			if err != nil {
				t.Error(err)
			}
			answers <- a
		}()
	}
	eventually(t, "all wait", func() bool {
		return r.metric("baton_watchers") == "2" && r.metric("baton_waiting_campaigns") == "1"
	})
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := r.handler.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	bye, err := w.next()
	for err == nil && bye.name == "" {
		bye, err = w.next()
	}
	if err != nil || bye.name != api.SSEBye || bye.retry == "" {
		t.Errorf("last message %+v, %v", bye, err)
	}
	if _, err := w.next(); !errors.Is(err, io.EOF) {
		t.Errorf("after goodbye: %v", err)
	}
	for range 2 {
		a := (<-answers).want(200)
		if a.at("cursor") == nil {
			a.has("is_leader", false, "leader.term", int(term))
		} else {
			a.has("cursor", cursor)
		}
	}
	// Other requests go on; new watches are sent elsewhere.
	r.do("GET", "/v1/groups/g/leader", "").want(200)
	r.do("GET", "/readyz", "").want(503).has("error", "BACKEND_UNAVAILABLE")
	r.do("GET", "/v1/groups/g/watch?wait_ms=0", "").want(503)
}
