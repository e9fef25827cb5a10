package consulstore_test

import (
	"net/http"
	"testing"

	"baton"
	"baton/internal/testserver"
	"baton/store/consulstore"
	"baton/storetest/drill"
	"baton/storetest/history"
)

// The sessions and transactions that one call of the store is made of have bad luck.
func TestHistoryWithRequestsLostLateAndRepeated(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Consul)
	luck := drill.NewLuck(1, 25, ttl+ttl/2)
	luck.Repeats = true
	f := startFleet(t, func() baton.Store {
		next := &http.Transport{MaxIdleConnsPerHost: 10}
		t.Cleanup(func() { luck.Settle(); next.CloseIdleConnections() })
		return open(t, consulstore.Config{Address: host(t, server.URL), Transport: luck.Transport(next, nil)})
	})
	f.More("grants in spite of bad luck", 25)
	f.Judge(history.Options{Duplicates: true})
	luck.Settle()
}
