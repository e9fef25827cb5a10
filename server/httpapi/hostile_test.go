package httpapi_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"baton/api"
	"baton/server"
	"baton/server/httpapi"
)

// raw writes text straight onto a connection and reads one answer. The connection stays open.
func (r *rig) raw(text string) (*net.TCPConn, *bufio.Reader, *http.Response) {
	r.t.Helper()
	conn := r.dial(text)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		r.t.Fatalf("%q: %v", text, err)
	}
	return conn, in, resp
}

func (r *rig) dial(text string) *net.TCPConn {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(soon)); err != nil {
		r.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		r.t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// A page on the web whose name was made to mean 127.0.0.1 is its own origin
// there. Only the Host header tells that it is not the operator's.
func TestRebundNameIsRefused(t *testing.T) {
	r := newRig(t, withHTTP(func(c *httpapi.Config) { c.Hosts = []string{"Baton.internal"} }))
	r.lead("g", "n", "i", time.Minute)
	stepDown := `{"reason":"x","immediate":true}`
	for host, status := range map[string]int{
		"evil.example":              403,
		"evil.example:7400":         403,
		"127.0.0.1.evil.example":    403,
		"localhost.evil.example":    403,
		"notlocalhost":              403,
		"0.0.0.0:7400":              403,
		"192.168.0.7":               403,
		"[::ffff:192.168.0.7]:7400": 403,
		"elsewhere.baton.internal":  403,
		"localhost":                 200,
		"LOCALHOST:1":               200,
		"localhost.":                200,
		"baton.localhost:7400":      200,
		"127.0.0.1":                 200,
		"127.0.1.1:80":              200,
		"[::1]:7400":                200,
		"[::1]":                     200,
		"baton.INTERNAL:443":        200,
		"":                          200, // nothing that a browser could send
	} {
		_, _, resp := r.raw("GET /v1/groups/g/leader HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")
		if resp.StatusCode != status {
			t.Errorf("read for host %q: %s, want %d", host, resp.Status, status)
		}
		if status == 200 {
			continue
		}
		_, _, resp = r.raw(fmt.Sprintf("POST /v1/groups/g/step-down HTTP/1.1\r\nHost: %s\r\nOrigin: http://%s\r\nSec-Fetch-Site: same-origin\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", host, host, len(stepDown), stepDown))
		var body api.Error
		if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || resp.StatusCode != 403 || body.Code != "UNAUTHORIZED" || !strings.Contains(body.Message, "loopback") {
			t.Errorf("write for host %q: %s, %+v, %v", host, resp.Status, body, err)
		}
	}
	r.do("GET", "/v1/groups/g/leader", "").want(200).has("leader.node_id", "n")

	// The name in the request line counts like the header.
	_, _, resp := r.raw("GET http://evil.example/v1/groups/g/leader HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	if resp.StatusCode != 403 {
		t.Errorf("absolute form: %s", resp.Status)
	}
	any := newRig(t, withHTTP(func(c *httpapi.Config) { c.Hosts = []string{"*"} }))
	if _, _, resp := any.raw("GET /healthz HTTP/1.1\r\nHost: baton.example\r\nConnection: close\r\n\r\n"); resp.StatusCode != 200 {
		t.Errorf("any host: %s", resp.Status)
	}
}

// A server that listens on all addresses has names that it cannot know.
func TestHostIsNotJudgedBeyondLoopback(t *testing.T) {
	r := newRig(t, func(c *rigConfig) { c.listen = "0.0.0.0:0" })
	_, port, err := net.SplitHostPort(strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	r.url = "http://127.0.0.1:" + port
	if _, _, resp := r.raw("GET /healthz HTTP/1.1\r\nHost: baton.example\r\nConnection: close\r\n\r\n"); resp.StatusCode != 200 {
		t.Errorf("status %s", resp.Status)
	}
}

// A client that has closed its half of the connection still reads the answer:
// what could not be found out for it is no success.
func TestHalfClosedClientIsNotToldOK(t *testing.T) {
	store := &broken{Store: memory(t)}
	r := newRig(t, withStore(store), withService(func(c *server.Config) { c.StoreTimeout = soon }))
	store.state.Store(hangs)
	for _, target := range []string{"/v1/groups/g/is-leader/n", "/v1/groups/g/leader", "/readyz", "/v1/groups/g/watch"} {
		right, got := r.halfClosed(target)
		// A stream begins after a quarter of a second, if it is not seen by then that the client is gone.
		for tries := 1; !right && strings.HasSuffix(target, "/watch") && tries < 5; tries++ {
			right, got = r.halfClosed(target)
		}
		if !right {
			t.Errorf("%s: %s", target, got)
		}
	}
}

// halfClosed asks and closes its half. No answer is not a wrong one.
func (r *rig) halfClosed(target string) (right bool, got string) {
	r.t.Helper()
	conn := r.dial("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if err := conn.CloseWrite(); err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return true, ""
	}
	body, _ := io.ReadAll(resp.Body)
	return resp.StatusCode == 503 && resp.Header.Get("Content-Type") == "application/json", fmt.Sprintf("%s %q", resp.Status, body)
}

// A body that is announced and never sent holds a connection no longer than BodyTimeout.
func TestUnsentBodyDoesNotHoldTheConnection(t *testing.T) {
	r := newRig(t, withHTTP(func(c *httpapi.Config) { c.BodyTimeout = 100 * time.Millisecond }))
	for _, line := range []string{"GET /healthz", "GET /nothing/here", "POST /v1/groups/g/campaign", "GET /v1/groups/g/watch?wait_ms=1", "POST /v1/groups/./x"} {
		_, in, resp := r.raw(line + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
		_, _ = io.Copy(io.Discard, resp.Body)
		if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: the connection was not closed: %v", line, err)
		}
	}
}

// A stream outlives the time that a body may take.
func TestStreamOutlivesTheBodyTimeout(t *testing.T) {
	r := newRig(t, withHTTP(func(c *httpapi.Config) {
		c.BodyTimeout = 30 * time.Millisecond
		c.Heartbeat = 20 * time.Millisecond
	}))
	w := r.watch("g", "")
	defer w.close()
	for beats := 0; beats < 5; {
		m, err := w.next()
		if err != nil {
			t.Fatal(err)
		}
		if m.comment != "" {
			beats++
		}
	}
}
