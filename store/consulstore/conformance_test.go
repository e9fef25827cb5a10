package consulstore_test

import (
	"context"
	"testing"

	"baton"
	"baton/internal/testserver"
	"baton/store/consulstore"
	"baton/storetest"
	"baton/storetest/drill"
)

// harness gives every check a prefix of its own in one Consul. The checks wait
// for twenty seconds and more, so many of them run at once.
func harness(server *testserver.Server, t testing.TB, restart func()) storetest.Harness {
	return storetest.Harness{Parallel: 24, Start: func(check storetest.T) storetest.Backing {
		prefix := freshPrefix()
		return storetest.Backing{
			Open: func() baton.Store {
				s, err := consulstore.New(context.Background(), consulstore.Config{Address: host(t, server.URL), Prefix: prefix, Timeout: drill.Unhurried})
				if err != nil {
					check.Fatalf("open: %v", err)
				}
				return s
			},
			Restart: restart,
		}
	}}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Consul)
	storetest.Run(t, harness(server, t, func() {
		server.Kill(t)
		server.Restart(t)
	}))
}

func TestConformanceBehindAFaultyNetwork(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Consul)
	storetest.RunFaulty(t, harness(server, t, nil), 1, 2)
}
