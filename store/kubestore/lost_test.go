package kubestore_test

import (
	"net/http"
	"testing"

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
