package httpfence_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"baton"
	"baton/fence"
	"baton/fence/fencetest"
	"baton/fence/httpfence"
	"baton/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

const resource = "orders"

func token(term baton.Term, instance string) baton.Token {
	return baton.Token{Group: "payments", Term: term, InstanceID: instance}
}

// logs is a protected resource: append-only logs in memory, behind a guard.
type logs struct {
	mu      sync.Mutex
	entries map[string][]entry
	between sync.Map // of functions that a request runs, by their number in its header
}

type entry struct{ Claim, Value string }

func byQuery(r *http.Request) string { return r.URL.Query().Get("resource") }

func (l *logs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := byQuery(r)
	if r.Method == http.MethodGet {
		l.mu.Lock()
		defer l.mu.Unlock()
		_ = json.NewEncoder(w).Encode(l.entries[name])
		return
	}
	value, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c, err := httpfence.ClaimFrom(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if f, ok := l.between.LoadAndDelete(r.Header.Get("Between")); ok {
		f.(func())()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries == nil {
		l.entries = make(map[string][]entry)
	}
	l.entries[name] = append(l.entries[name], entry{fence.FormatHeader(c), string(value)})
}

// remote is the client's side of logs.
type remote struct {
	*httpfence.Ledger
	logs *logs
	base string
	http *http.Client
}

func (r *remote) url(resource string) string {
	return r.base + "/?resource=" + url.QueryEscape(resource)
}

func (r *remote) Append(ctx context.Context, resource string, c fence.Claim, value string, between func()) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url(resource), strings.NewReader(value))
	if err != nil {
		return err
	}
	if between != nil {
		key := fmt.Sprintf("%p", &between)
		r.logs.between.Store(key, between)
		req.Header.Set("Between", key)
	}
	resp, err := r.Do(req, c)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("append: %s", resp.Status)
	}
	return nil
}

func (r *remote) Log(ctx context.Context, resource string) ([]fencetest.Entry, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url(resource), nil)
	if err != nil {
		return nil, err
	}
	resp, err := r.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var lines []entry
	if err := json.NewDecoder(resp.Body).Decode(&lines); err != nil {
		return nil, err
	}
	entries := make([]fencetest.Entry, len(lines))
	for i, line := range lines {
		c, err := fence.ParseHeader(line.Claim)
		if err != nil {
			return nil, err
		}
		entries[i] = fencetest.Entry{Claim: c, Value: line.Value}
	}
	return entries, nil
}

// start serves logs over TCP.
func start(t testing.TB, cfg httpfence.Config) *remote {
	t.Helper()
	l := new(logs)
	srv := httptest.NewServer(httpfence.New(cfg).Protect(byQuery, l))
	t.Cleanup(srv.Close)
	return connect(t, srv, l)
}

func connect(t testing.TB, srv *httptest.Server, l *logs) *remote {
	base := srv.Client().Transport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 64
	t.Cleanup(base.CloseIdleConnections)
	r := &remote{logs: l, base: srv.URL, http: &http.Client{Transport: base}}
	r.Ledger = httpfence.NewLedger(r.http, r.url)
	return r
}

func TestConformance(t *testing.T) {
	fencetest.Run(t, fencetest.Options{}, func(t *testing.T) fencetest.Subject { return start(t, httpfence.Config{}) })
}

func TestConformanceWithBacking(t *testing.T) {
	fencetest.Run(t, fencetest.Options{Writes: 1000}, func(t *testing.T) fencetest.Subject {
		return start(t, httpfence.Config{Ledger: new(fence.Memory)})
	})
}

func TestConformanceHTTP2(t *testing.T) {
	fencetest.Run(t, fencetest.Options{Writes: 500}, func(t *testing.T) fencetest.Subject {
		l := new(logs)
		srv := httptest.NewUnstartedServer(httpfence.New(httpfence.Config{}).Protect(byQuery, l))
		srv.EnableHTTP2 = true
		srv.StartTLS()
		t.Cleanup(srv.Close)
		r := connect(t, srv, l)
		resp, err := r.http.Get(r.base)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.ProtoMajor != 2 {
			t.Fatalf("the server speaks %s", resp.Proto)
		}
		return r
	})
}

// The guard lets go of the resource before the handler is called.
func TestSuiteSeesTornWrites(t *testing.T) {
	fencetest.MustFail(t, fencetest.Options{}, func(t *testing.T) fencetest.Subject {
		l, guard := new(logs), httpfence.New(httpfence.Config{})
		ledger := guard.Protect(byQuery, http.NotFoundHandler())
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Header.Get(httpfence.ActHeader) != "":
				ledger.ServeHTTP(w, r)
				return
			case r.Method == http.MethodGet:
				l.ServeHTTP(w, r)
				return
			}
			c, err := httpfence.ReadClaim(r)
			if err == nil {
				err = guard.Write(r.Context(), byQuery(r), c, func(context.Context) error { return nil })
			}
			if err != nil {
				httpfence.WriteError(w, err)
				return
			}
			l.ServeHTTP(w, r.WithContext(httpfence.WithClaim(r.Context(), c)))
		}))
		t.Cleanup(srv.Close)
		return connect(t, srv, l)
	}, "PausedBetweenCheckAndEffect")
}

// inProcess writes through the guard without HTTP.
type inProcess struct {
	*httpfence.Guard
	mu   sync.Mutex
	logs map[string][]fencetest.Entry
}

func (p *inProcess) Append(ctx context.Context, resource string, c fence.Claim, value string, between func()) error {
	return p.Write(ctx, resource, c, func(context.Context) error {
		if between != nil {
			between()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.logs[resource] = append(p.logs[resource], fencetest.Entry{Claim: c, Value: value})
		return nil
	})
}

func (p *inProcess) Log(_ context.Context, resource string) ([]fencetest.Entry, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.logs[resource]), nil
}

func TestConformanceInProcess(t *testing.T) {
	fencetest.Run(t, fencetest.Options{}, func(*testing.T) fencetest.Subject {
		return &inProcess{Guard: httpfence.New(httpfence.Config{}), logs: make(map[string][]fencetest.Entry)}
	})
}

// What goes over the wire, to the byte: clients in other languages rely on it.
func TestWire(t *testing.T) {
	r := start(t, httpfence.Config{})
	const a = "group=payments, term=5, instance=a"
	for _, tt := range []struct {
		name, method, act string
		claims            []string
		resource          string
		status            int
		refused, held     string // headers of the answer
		body              string
	}{
		{name: "read before adopt", method: "GET", act: "read", status: 200,
			body: `{"group_id":"","term":0,"instance_id":"","last_seq":0}`},
		{name: "write before adopt", method: "POST", claims: []string{a}, status: 412, refused: "NOT_ADOPTED",
			body: `{"error":"NOT_ADOPTED","message":"resource \"orders\" refuses payments/5/a, which has not adopted it: it belongs to nobody","resource":"orders","held":{"group_id":"","term":0,"instance_id":"","last_seq":0}}`},
		{name: "adopt", method: "POST", act: "adopt", claims: []string{a}, status: 200,
			body: `{"group_id":"payments","term":5,"instance_id":"a","last_seq":0}`},
		{name: "write", method: "PUT", claims: []string{a + ", seq=7"}, status: 200},
		{name: "repeat", method: "PUT", claims: []string{a + ", seq=7"}, status: 412, refused: "REPEAT", held: a + ", seq=7"},
		{name: "advance", method: "POST", act: "advance", claims: []string{a + ", seq=8"}, status: 200,
			body: `{"group_id":"payments","term":5,"instance_id":"a","last_seq":8}`},
		{name: "advance without a number", method: "POST", act: "advance", claims: []string{a}, status: 400, refused: "INVALID_ARGUMENT"},
		{name: "stale", method: "DELETE", claims: []string{"group=payments, term=4, instance=z"}, status: 412, refused: "STALE", held: a + ", seq=8",
			body: `{"error":"STALE","message":"resource \"orders\" refuses payments/4/z as stale: it belongs to payments/5/a, last number 8","resource":"orders","held":{"group_id":"payments","term":5,"instance_id":"a","last_seq":8}}`},
		{name: "same term, other instance", method: "PATCH", claims: []string{"group=payments, term=5, instance=z"}, status: 412, refused: "STALE", held: a + ", seq=8"},
		{name: "stale adopt", method: "POST", act: "adopt", claims: []string{"group=payments, term=4, instance=z"}, status: 412, refused: "STALE", held: a + ", seq=8"},
		{name: "other group", method: "POST", claims: []string{"group=other, term=9, instance=a"}, status: 412, refused: "WRONG_GROUP", held: a + ", seq=8"},
		{name: "later term", method: "POST", claims: []string{"group=payments, term=6, instance=b"}, status: 412, refused: "NOT_ADOPTED", held: a + ", seq=8"},
		{name: "no claim", method: "POST", status: 400, refused: "INVALID_ARGUMENT"},
		{name: "two claims", method: "POST", claims: []string{a, a}, status: 400, refused: "INVALID_ARGUMENT"},
		{name: "token 0", method: "POST", claims: []string{"group=payments, term=0, instance=a"}, status: 400, refused: "INVALID_ARGUMENT"},
		{name: "negative number", method: "POST", claims: []string{a + ", seq=-1"}, status: 400, refused: "INVALID_ARGUMENT"},
		{name: "huge number", method: "POST", claims: []string{a + ", seq=99999999999999999999"}, status: 400, refused: "INVALID_ARGUMENT"},
		{name: "malformed", method: "POST", claims: []string{"term=5"}, status: 400, refused: "INVALID_ARGUMENT"},
		{name: "long header", method: "POST", claims: []string{"group=" + strings.Repeat("g", 10_000) + ", term=5, instance=a"}, status: 400, refused: "INVALID_ARGUMENT"},
		{name: "bad resource", method: "POST", resource: "a b", claims: []string{a}, status: 400, refused: "INVALID_ARGUMENT"},
		{name: "unknown act", method: "POST", act: "dance", claims: []string{a}, status: 400, refused: "INVALID_ARGUMENT"},
		{name: "adopt by GET", method: "GET", act: "adopt", claims: []string{a}, status: 405},
		{name: "reads are not fenced", method: "GET", status: 200},
	} {
		name := tt.resource
		if name == "" {
			name = resource
		}
		req, err := http.NewRequestWithContext(t.Context(), tt.method, r.url(name), nil)
		if err != nil {
			t.Fatal(err)
		}
		if tt.act != "" {
			req.Header.Set("Baton-Fence-Act", tt.act)
		}
		for _, c := range tt.claims {
			req.Header.Add("Baton-Fence", c)
		}
		resp, err := r.http.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		refused, held := resp.Header.Get("Baton-Fence-Refused"), resp.Header.Get("Baton-Fence")
		if resp.StatusCode != tt.status || refused != tt.refused || held != tt.held {
			t.Errorf("%s: got %d, %q, %q; want %d, %q, %q", tt.name, resp.StatusCode, refused, held, tt.status, tt.refused, tt.held)
		}
		if got := string(bytes.TrimSpace(body)); tt.body != "" && got != tt.body {
			t.Errorf("%s: got body\n%s\nwant\n%s", tt.name, got, tt.body)
		}
	}
}

func TestTransportWithoutToken(t *testing.T) {
	r := start(t, httpfence.Config{})
	client := &http.Client{Transport: &httpfence.Transport{Base: r.http.Transport}}
	body := &closed{Reader: strings.NewReader("x")}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url(resource), body)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(req); !errors.Is(err, baton.ErrInvalidArgument) {
		t.Errorf("a write without a token: got %v, want it not sent", err)
	}
	if !body.done {
		t.Error("the body of a request that was not sent is left open")
	}
}

type closed struct {
	io.Reader
	done bool
}

func (c *closed) Close() error { c.done = true; return nil }

// A handler's own 412 is its own business.
func TestForeign412(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "If-Match", http.StatusPreconditionFailed)
	}))
	defer srv.Close()
	base := http.DefaultTransport.(*http.Transport).Clone()
	defer base.CloseIdleConnections()
	l := httpfence.NewLedger(&http.Client{Transport: base}, func(string) string { return srv.URL })
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := l.Do(req, fence.Unordered(token(5, "a")))
	if err != nil || resp.StatusCode != http.StatusPreconditionFailed {
		t.Fatalf("got %v, %v, want the handler's 412", resp, err)
	}
	_ = resp.Body.Close()
	if _, err := l.Adopt(t.Context(), resource, token(5, "a")); err == nil || fence.Refused(err) {
		t.Errorf("adopt at a server that is no guard: got %v, want an error that is no refusal", err)
	}
}

// TestForeign200: something else answers in the guard's place, and knows nothing of it.
func TestForeign200(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"status": "maintenance"}`)
	}))
	defer server.Close()
	ledger := httpfence.NewLedger(server.Client(), func(string) string { return server.URL })
	tok := baton.Token{Group: "payments", Term: 5, InstanceID: "a"}
	if _, err := ledger.Adopt(t.Context(), "log", tok); err == nil || fence.Refused(err) {
		t.Errorf("adopt: got %v, want an error that is no refusal", err)
	}
	if err := ledger.Advance(t.Context(), "log", fence.Ordered(tok, 1)); err == nil || fence.Refused(err) {
		t.Errorf("advance: got %v, want an error that is no refusal", err)
	}
}
