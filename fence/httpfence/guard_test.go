package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"baton"
	"baton/fence"
	"baton/fence/httpfence"
)

func mustAdopt(t testing.TB, l fence.Ledger, tok baton.Token) {
	t.Helper()
	if _, err := l.Adopt(t.Context(), resource, tok); err != nil {
		t.Fatalf("adopt %v: %v", tok, err)
	}
}

// hold writes under tok and returns when it is inside; release lets it return.
func hold(t *testing.T, g *httpfence.Guard, tok baton.Token) (ctx context.Context, release func()) {
	t.Helper()
	inside, end, done := make(chan context.Context), make(chan struct{}), make(chan error)
	go func() {
		done <- g.Write(t.Context(), resource, fence.Unordered(tok), func(ctx context.Context) error {
			inside <- ctx
			<-end
			return nil
		})
	}()
	return <-inside, func() {
		t.Helper()
		close(end)
		if err := <-done; err != nil {
			t.Errorf("the write that was held: %v", err)
		}
	}
}

func write(t *testing.T, g *httpfence.Guard, tok baton.Token) error {
	t.Helper()
	return g.Write(t.Context(), resource, fence.Unordered(tok), func(context.Context) error { return nil })
}

// A handler that never returns keeps the successor out, and the past as well.
func TestFrozenHandler(t *testing.T) {
	g := httpfence.New(httpfence.Config{})
	a, b, c := token(5, "a"), token(6, "b"), token(7, "c")
	mustAdopt(t, g, a)
	inside, release := hold(t, g, a)

	impatient, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // it has to get there first
	defer cancel()
	if _, err := g.Adopt(impatient, resource, b); !errors.Is(err, context.DeadlineExceeded) || fence.Refused(err) {
		t.Errorf("adopt past a frozen handler: got %v, want its context's error", err)
	}
	if !errors.Is(context.Cause(inside), fence.ErrStale) {
		t.Errorf("the handler's context: got %v, want it ended as stale", context.Cause(inside))
	}
	if err := write(t, g, a); !errors.Is(err, fence.ErrStale) {
		t.Errorf("write of the past: got %v, want stale", err)
	}
	if err := write(t, g, b); !errors.Is(err, fence.ErrNotAdopted) {
		t.Errorf("write of the one that could not adopt: got %v, want not adopted", err)
	}
	if _, err := g.Adopt(t.Context(), resource, a); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the past adopts again: got %v, want stale", err)
	}

	// An even later one takes over from those that wait.
	waiting := make(chan error)
	go func() { _, err := g.Adopt(t.Context(), resource, b); waiting <- err }()
	later := make(chan error)
	go func() { _, err := g.Adopt(t.Context(), resource, c); later <- err }()
	if err := <-waiting; !errors.Is(err, fence.ErrStale) {
		t.Errorf("adopt that was overtaken while it waited: got %v, want stale", err)
	}
	release()
	if err := <-later; err != nil {
		t.Errorf("adopt after the handler returned: %v", err)
	}
	if err := write(t, g, c); err != nil {
		t.Errorf("write of the successor: %v", err)
	}
}

func TestAdoptWaitIsBounded(t *testing.T) {
	r := start(t, httpfence.Config{AdoptWait: 500 * time.Millisecond}) // enough for a handler that has been let go to return
	a := token(5, "a")
	mustAdopt(t, r, a)
	inside, end, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		// Its connection may be cut; its effect is what counts.
		_ = r.Append(t.Context(), resource, fence.Unordered(a), "a", func() { close(inside); <-end })
	}()
	<-inside
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url(resource), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(httpfence.ActHeader, httpfence.ActAdopt)
	req.Header.Set(fence.Header, fence.FormatHeader(fence.Unordered(token(6, "b"))))
	resp, err := r.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("got %s, want 503 with Retry-After", resp.Status)
	}
	close(end)
	<-done
	mustAdopt(t, r, token(6, "b"))
}

// A leader that froze half-way through its request does not keep its successor
// out, and does not leave a connection that harms later requests.
func TestFrozenClient(t *testing.T) {
	guard := httpfence.New(httpfence.Config{})
	entered, result := make(chan struct{}), make(chan error, 1)
	srv := httptest.NewServer(guard.Protect(httpfence.Fixed(resource), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		_, err := io.ReadAll(r.Body)
		result <- err
	})))
	defer srv.Close()
	mustAdopt(t, guard, token(5, "a"))

	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n%s: group=payments, term=5, instance=a\r\n\r\nhalf", fence.Header)
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	mustAdopt(t, guard, token(6, "b"))
	if err := <-result; err == nil {
		t.Error("the handler read a request that was never sent in full")
	}
}

func TestConnectionAfterCut(t *testing.T) {
	r := start(t, httpfence.Config{})
	a, b := token(5, "a"), token(6, "b")
	mustAdopt(t, r, a)
	adopted := make(chan error, 1)
	began := time.Now()
	err := r.Append(t.Context(), resource, fence.Unordered(a), "a", func() {
		go func() { _, err := r.Adopt(t.Context(), resource, b); adopted <- err }()
		// Wait until the announcement is there.
		for {
			record, err := r.Read(t.Context(), resource)
			if err != nil || record.Token() == b {
				return
			}
		}
	})
	if err != nil && time.Since(began) < 250*time.Millisecond { // what a handler of the past has for its answer
		t.Errorf("the write that was inside: %v", err)
	}
	if err := <-adopted; err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := r.Append(t.Context(), resource, fence.Unordered(b), "b", nil); err != nil {
			t.Errorf("a later write: %v", err)
		}
	}
}

func TestPanickingHandlerLeaves(t *testing.T) {
	guard := httpfence.New(httpfence.Config{})
	srv := httptest.NewServer(guard.Protect(httpfence.Fixed(resource), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	})))
	defer srv.Close()
	base := http.DefaultTransport.(*http.Transport).Clone()
	defer base.CloseIdleConnections()
	l := httpfence.NewLedger(&http.Client{Transport: base}, func(string) string { return srv.URL })
	mustAdopt(t, l, token(5, "a"))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := l.Do(req, fence.Ordered(token(5, "a"), 1)); err == nil {
		_ = resp.Body.Close()
		t.Error("a handler that panicked answered")
	}
	mustAdopt(t, l, token(6, "b"))
}

// A process that starts again with the same ledger remembers.
func TestRestart(t *testing.T) {
	durable := new(fence.Memory)
	g := httpfence.New(httpfence.Config{Ledger: durable})
	a, b := token(5, "a"), token(6, "b")
	mustAdopt(t, g, a)
	mustAdopt(t, g, b)
	nothing := func(context.Context) error { return nil }
	if err := g.Write(t.Context(), resource, fence.Ordered(b, 7), nothing); err != nil {
		t.Fatal(err)
	}

	g = httpfence.New(httpfence.Config{Ledger: durable})
	if err := write(t, g, a); !errors.Is(err, fence.ErrStale) {
		t.Errorf("write of the past after a restart: got %v, want stale", err)
	}
	if _, err := g.Adopt(t.Context(), resource, a); !errors.Is(err, fence.ErrStale) {
		t.Errorf("adopt of the past after a restart: got %v, want stale", err)
	}
	if err := g.Write(t.Context(), resource, fence.Ordered(b, 7), nothing); !errors.Is(err, fence.ErrRepeat) {
		t.Errorf("repeat after a restart: got %v, want a repeat", err)
	}
	if err := g.Write(t.Context(), resource, fence.Ordered(b, 8), nothing); err != nil {
		t.Errorf("next write after a restart: %v", err)
	}

	// Somebody else moved the ledger on, which nobody should.
	if _, err := durable.Adopt(t.Context(), resource, token(9, "x")); err != nil {
		t.Fatal(err)
	}
	if err := g.Write(t.Context(), resource, fence.Ordered(b, 9), nothing); !errors.Is(err, fence.ErrStale) {
		t.Errorf("ordered write behind the ledger's back: got %v, want stale", err)
	}
	if err := write(t, g, b); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the guard did not learn of the later term: got %v, want stale", err)
	}
}

// broken is a ledger whose database is down when told so.
type broken struct {
	fence.Memory
	err error
}

func (b *broken) Adopt(ctx context.Context, resource string, t baton.Token) (fence.Record, error) {
	if b.err != nil {
		return fence.Record{}, b.err
	}
	return b.Memory.Adopt(ctx, resource, t)
}

func (b *broken) Advance(ctx context.Context, resource string, c fence.Claim) error {
	if b.err != nil {
		return b.err
	}
	return b.Memory.Advance(ctx, resource, c)
}

func TestBackingDown(t *testing.T) {
	durable := new(broken)
	g := httpfence.New(httpfence.Config{Ledger: durable})
	a, b := token(5, "a"), token(6, "b")
	mustAdopt(t, g, a)

	durable.err = errors.New("disk full")
	err := g.Write(t.Context(), resource, fence.Ordered(a, 1), func(context.Context) error {
		t.Error("the handler was called though its number is not on record")
		return nil
	})
	if !errors.Is(err, durable.err) {
		t.Errorf("ordered write: got %v, want the ledger's error", err)
	}
	if _, err := g.Adopt(t.Context(), resource, b); !errors.Is(err, durable.err) {
		t.Errorf("adopt: got %v, want the ledger's error", err)
	}
	if err := write(t, g, b); !errors.Is(err, fence.ErrNotAdopted) {
		t.Errorf("write of the one whose adopt failed: got %v, want not adopted", err)
	}

	durable.err = nil
	mustAdopt(t, g, b)
	if err := write(t, g, b); err != nil {
		t.Errorf("write after the ledger came back: %v", err)
	}
}
