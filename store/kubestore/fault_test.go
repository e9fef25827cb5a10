package kubestore_test

import (
	"testing"
	"time"

	"baton"
	"baton/internal/testserver"
	"baton/store/kubestore"
	"baton/storetest"
	"baton/storetest/history"
)

const faultTTL = 2 * time.Second

// Each fault hits the API server and its etcd, while it is asked to grant, renew
// and release. Meanwhile everything says so in bounded time; when the server is
// back, the same stores go on.
func TestHistoryUnderFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct {
		name       string
		often      bool // in every run
		begin, end func(*testing.T, *testserver.Server)
	}{
		{"killed", true,
			func(t *testing.T, s *testserver.Server) { s.Kill(t) },
			func(t *testing.T, s *testserver.Server) { s.Restart(t) }},
		{"paused", true,
			func(t *testing.T, s *testserver.Server) { s.Pause(t) },
			func(t *testing.T, s *testserver.Server) { s.Resume(t) }},
		{"cut off", false,
			func(t *testing.T, s *testserver.Server) { s.Cut(t, testserver.BothWays) },
			func(t *testing.T, s *testserver.Server) { s.Heal(t) }},
		{"deaf", false,
			func(t *testing.T, s *testserver.Server) { s.Cut(t, testserver.ToServer) },
			func(t *testing.T, s *testserver.Server) { s.Heal(t) }},
		{"dumb", false,
			func(t *testing.T, s *testserver.Server) { s.Cut(t, testserver.ToClient) },
			func(t *testing.T, s *testserver.Server) { s.Heal(t) }},
		{"refusing", false,
			func(t *testing.T, s *testserver.Server) { s.Refuse(t) },
			func(t *testing.T, s *testserver.Server) { s.Heal(t) }},
	} {
		if !fault.often && !storetest.AllFaults() {
			continue
		}
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			s := testserver.Start(t, testserver.Kubernetes)
			namespace := freshNamespace(t, client(t, s))
			f := storetest.StartFleet(t, storetest.FleetConfig{
				Open: func() baton.Store { return open(t, s, namespace) }, TTL: faultTTL, Patience: patience,
			})
			f.More("grants before the fault", 10)
			cfg := config(t, s.URL, "admin")
			held, err := kubestore.New(kubestore.Config{REST: cfg, Namespace: namespace, Timeout: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = held.Close() })
			outage := storetest.BeforeOutage(t, held)
			fault.begin(t, s)
			outage.During() // which lasts longer than a lease of the fleet
			fault.end(t, s)
			outage.After()
			f.More("grants after the fault", 10)
			f.Judge(history.Options{})
		})
	}
}
