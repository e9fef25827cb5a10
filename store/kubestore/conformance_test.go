package kubestore_test

import (
	"testing"

	"baton"
	"baton/internal/testserver"
	"baton/store/kubestore"
	"baton/storetest"
	"baton/storetest/drill"
)

// harness gives every check a namespace of its own.
func harness(t *testing.T, s *testserver.Server, restart func()) storetest.Harness {
	c := client(t, s)
	return storetest.Harness{Start: func(check storetest.T) storetest.Backing {
		namespace := freshNamespace(t, c)
		return storetest.Backing{
			Open: func() baton.Store {
				store, err := kubestore.New(kubestore.Config{REST: config(t, s.URL, "admin"), Namespace: namespace, Timeout: drill.Unhurried})
				if err != nil {
					check.Fatalf("open: %v", err)
				}
				return store
			},
			Restart: restart,
		}
	}}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Kubernetes)
	storetest.Run(t, harness(t, s, func() {
		s.Kill(t)
		s.Restart(t)
	}))
}

func TestConformanceBehindAFaultyNetwork(t *testing.T) {
	t.Parallel()
	storetest.RunFaulty(t, harness(t, testserver.Shared(t, testserver.Kubernetes), nil), 1, 2)
}
