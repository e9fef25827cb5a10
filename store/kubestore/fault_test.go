package kubestore_test

import (
	"testing"
	"time"

	"baton"
	"baton/internal/testserver"
	"baton/store/kubestore"
	"baton/storetest"
	"baton/storetest/drill"
)

const faultTTL = 2 * time.Second

// A fault hits the API server and its etcd.
func TestHistoryUnderFaults(t *testing.T) {
	t.Parallel()
	drill.Outages(t, storetest.FleetConfig{TTL: faultTTL, Patience: drill.Patience}, func(t *testing.T) drill.Site {
		s := testserver.Start(t, testserver.Kubernetes)
		namespace := freshNamespace(t, client(t, s))
		return drill.Site{Server: s, Open: func(timeout time.Duration) baton.Store {
			store, err := kubestore.New(kubestore.Config{REST: config(t, s.URL, "admin"), Namespace: namespace, Timeout: timeout})
			return drill.Opened(t, store, err)
		}}
	})
}
