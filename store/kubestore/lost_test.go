package kubestore_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"baton"
	"baton/internal/testserver"
	"baton/store/kubestore"
	"baton/storetest"
	"baton/storetest/drill"
	"baton/storetest/history"
)

// The reads and updates that one call of the store is made of have bad luck.
func TestHistoryWithRequestsLostLateAndRepeated(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t, testserver.Kubernetes)
	namespace := freshNamespace(t, client(t, s))
	luck := drill.NewLuck(1, 20, faultTTL+faultTTL/2)
	luck.Repeats = true
	isWatch := func(request *http.Request) bool { return request.URL.Query().Get("watch") != "" }
	f := storetest.StartFleet(t, storetest.FleetConfig{TTL: faultTTL, Patience: drill.Patience, Open: func() baton.Store {
		cfg := config(t, s.URL, "admin")
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return luck.Transport(next, isWatch) })
		store, err := kubestore.New(kubestore.Config{REST: cfg, Namespace: namespace})
		drill.Opened(t, store, err)
		t.Cleanup(luck.Settle) // before the store is closed
		return store
	}})
	f.More("grants in spite of bad luck", 40)
	f.Judge(history.Options{Duplicates: true})
	luck.Settle()
}

// twice is a way on which writes of Leases and of what is registered are carried out
// twice, and the answer is that to the copy.
type twice struct{ next http.RoundTripper }

func (w twice) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodPut && request.Method != http.MethodPost {
		return w.next.RoundTrip(request)
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	_ = request.Body.Close()
	send := func() (*http.Response, error) {
		r := request.Clone(request.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
		return w.next.RoundTrip(r)
	}
	if strings.Contains(request.URL.Path, "/leases") || bytes.Contains(body, []byte("baton-policy-")) {
		first, err := send()
		if err != nil {
			return nil, err
		}
		_ = first.Body.Close()
	}
	return send()
}

// WrappedRoundTripper is how client-go finds the connections to close.
func (w twice) WrappedRoundTripper() http.RoundTripper { return w.next }

// A copy is refused for what the first has done, and that is no refusal.
func TestWritesThatComeTwice(t *testing.T) {
	t.Parallel()
	server := testserver.Shared(t, testserver.Kubernetes)
	cfg := config(t, server.URL, "admin")
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return twice{next} })
	store, err := kubestore.New(kubestore.Config{REST: cfg, Namespace: freshNamespace(t, client(t, server)), Timeout: drill.Patience})
	s := drill.Opened(t, store, err)
	l := drill.Lead(t, s, "g", "i-1", time.Minute)
	if _, err := s.Renew(t.Context(), l.ID(), time.Minute); err != nil {
		t.Errorf("renew: %v", err)
	}
	drill.Release(t, s, l)
	g := baton.Group{ID: "g", AllowedNodes: []string{"a"}}
	for range 2 {
		if g, err = s.PutGroup(t.Context(), g); err != nil {
			t.Fatalf("put: %v", err)
		}
	}
}
