package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"baton"
	"baton/internal/leak"
	"baton/server"
	"baton/server/httpapi"
	"baton/store/memstore"
)

func TestMain(m *testing.M) { leak.Main(m) }

// soon is far beyond what anything here takes: a test that waits this long has failed.
const soon = 2 * time.Minute

// rig is a server on a real port, as a program would run it.
type rig struct {
	t       testing.TB
	url     string
	client  *http.Client
	svc     *server.Service
	handler *httpapi.Handler
	log     *logBuffer
}

type rigOption func(*rigConfig)

type rigConfig struct {
	store baton.Store
	svc   server.Config
	http  httpapi.Config
	// sendBuffer is how much the kernel holds for a client that does not read; 0 lets it grow to megabytes.
	sendBuffer int
	// http2 serves TLS with HTTP/2.
	http2 bool
	// listen is the address to serve on; a free port of 127.0.0.1 if empty.
	listen string
}

func withStore(s baton.Store) rigOption { return func(c *rigConfig) { c.store = s } }
func withService(f func(*server.Config)) rigOption {
	return func(c *rigConfig) { f(&c.svc) }
}
func withHTTP(f func(*httpapi.Config)) rigOption { return func(c *rigConfig) { f(&c.http) } }

func memory(t testing.TB) *memstore.Store {
	t.Helper()
	s, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func newRig(t testing.TB, options ...rigOption) *rig {
	t.Helper()
	r := &rig{t: t, log: &logBuffer{}}
	var cfg rigConfig
	cfg.svc.PolicyAge = -1
	for _, o := range options {
		o(&cfg)
	}
	if cfg.store == nil {
		cfg.store = memory(t)
	}
	logger := slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	cfg.svc.Logger, cfg.http.Logger = logger, logger
	svc, err := server.New(cfg.store, cfg.svc)
	if err != nil {
		t.Fatal(err)
	}
	r.svc, r.handler = svc, httpapi.New(svc, cfg.http)
	ts := httptest.NewUnstartedServer(nil)
	ts.Config = httpapi.NewServer(r.handler, logger)
	if cfg.listen != "" {
		_ = ts.Listener.Close()
		if ts.Listener, err = net.Listen("tcp", cfg.listen); err != nil {
			t.Fatal(err)
		}
	}
	if cfg.sendBuffer > 0 {
		ts.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
			if err := c.(*net.TCPConn).SetWriteBuffer(cfg.sendBuffer); err != nil {
				t.Error(err)
			}
			return ctx
		}
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 1024}
	if cfg.http2 {
		ts.EnableHTTP2 = true
		ts.StartTLS()
		transport = ts.Client().Transport.(*http.Transport)
	} else {
		ts.Start()
	}
	r.url = ts.URL
	r.client = &http.Client{Transport: newContract(t, transport)}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := r.handler.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		transport.CloseIdleConnections()
		ts.CloseClientConnections()
		ts.Close()
		svc.Close()
	})
	return r
}

// answer is a response that was read to its end.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
	m      map[string]any
}

// do sends a request; body is JSON text, "" for none.
func (r *rig) do(method, path, body string) answer {
	r.t.Helper()
	return r.doContext(r.t.Context(), method, path, body, nil)
}

func (r *rig) doContext(ctx context.Context, method, path, body string, header http.Header) answer {
	r.t.Helper()
	a, err := r.try(ctx, method, path, body, header)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (r *rig) try(ctx context.Context, method, path, body string, header http.Header) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{t: r.t, status: resp.StatusCode, header: resp.Header, body: raw}
	if resp.Header.Get("Content-Type") == "application/json" {
		if err := json.Unmarshal(raw, &a.m); err != nil {
			return a, fmt.Errorf("body %q: %w", raw, err)
		}
	}
	return a, nil
}

func (a answer) want(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// at returns what is at a path such as "leader.term".
func (a answer) at(path string) any {
	var v any = a.m
	for _, k := range strings.Split(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

// has checks fields: path, value, path, value...
func (a answer) has(pairs ...any) answer {
	a.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		got, want := a.at(pairs[i].(string)), pairs[i+1]
		if n, ok := want.(int); ok {
			want = float64(n)
		}
		if got != want {
			a.t.Errorf("%s is %v, want %v: %s", pairs[i], got, want, a.body)
		}
	}
	return a
}

func (a answer) str(path string) string { s, _ := a.at(path).(string); return s }
func (a answer) num(path string) int64  { f, _ := a.at(path).(float64); return int64(f) }

func (r *rig) campaign(group, node, instance string, ttl time.Duration) answer {
	r.t.Helper()
	return r.do("POST", "/v1/groups/"+group+"/campaign",
		fmt.Sprintf(`{"node_id":%q,"instance_id":%q,"lease_ttl_ms":%d}`, node, instance, ttl.Milliseconds()))
}

// lead campaigns and must win; it returns the term.
func (r *rig) lead(group, node, instance string, ttl time.Duration) int64 {
	r.t.Helper()
	a := r.campaign(group, node, instance, ttl).want(200).has("is_leader", true)
	return a.num("leader.term")
}

func (r *rig) resign(group, node, instance string, term int64) answer {
	r.t.Helper()
	return r.do("POST", "/v1/groups/"+group+"/resign", fmt.Sprintf(`{"node_id":%q,"instance_id":%q,"term":%d}`, node, instance, term))
}

// eventually polls until ok, without a limit that a slow machine could reach.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(soon)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", soon, what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// metric reads one sample of /metrics.
func (r *rig) metric(sample string) string {
	r.t.Helper()
	for line := range bytes.Lines(r.do("GET", "/metrics", "").want(200).body) {
		if v, ok := strings.CutPrefix(string(line), sample+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
