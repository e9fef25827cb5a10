package pgstore_test

import (
	"cmp"
	"testing"
	"time"

	"baton"
	"baton/internal/storecall"
	"baton/internal/testserver"
	"baton/store/pgstore"
	"baton/storetest"
	"baton/storetest/drill"
	"baton/storetest/history"
)

func open(t *testing.T, cfg pgstore.Config) *pgstore.Store {
	t.Helper()
	cfg.Timeout = cmp.Or(cfg.Timeout, drill.Unhurried)
	s, err := pgstore.New(t.Context(), cfg)
	return drill.Opened(t, s, err)
}

// insist opens a store whose timeout is short.
func insist(t *testing.T, cfg pgstore.Config) *pgstore.Store {
	t.Helper()
	return drill.Insist(t, func() (*pgstore.Store, error) { return pgstore.New(t.Context(), cfg) })
}

func TestHistoryWithTheServerAway(t *testing.T) {
	t.Parallel()
	drill.Outages(t, storetest.FleetConfig{}, func(t *testing.T) drill.Site {
		server := testserver.Start(t, testserver.Postgres)
		return drill.Site{Server: server, Open: func(timeout time.Duration) baton.Store {
			return insist(t, pgstore.Config{URL: server.URL, Timeout: timeout})
		}}
	})
}

// A server that stops and goes on all the time is slow: some requests are
// answered, others are given up and arrive later.
func TestHistoryWithASlowServer(t *testing.T) {
	t.Parallel()
	if !storetest.AllFaults() {
		return
	}
	server := testserver.Start(t, testserver.Postgres)
	fleet := storetest.StartFleet(t, storetest.FleetConfig{Open: func() baton.Store {
		return insist(t, pgstore.Config{URL: server.URL, Timeout: 400 * time.Millisecond})
	}})
	fleet.More("grants before", 10)
	for range 12 {
		server.Pause(t)
		_ = storecall.Pause(t.Context(), 600*time.Millisecond)
		server.Resume(t)
		fleet.More("a grant in between", 1)
	}
	fleet.Judge(history.Options{})
}
