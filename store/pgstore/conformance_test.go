package pgstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"baton"
	"baton/internal/leak"
	"baton/internal/testserver"
	"baton/store/pgstore"
	"baton/storetest"
	"baton/storetest/drill"
)

func TestMain(m *testing.M) { leak.Main(m) }

var schemas atomic.Int64

// fresh is the URL of a schema of its own in the server's database.
func fresh(url string) string { return fmt.Sprintf("%s&baton_schema=test_%d", url, schemas.Add(1)) }

// harness gives every check a schema of its own in one server.
func harness(url string, restart func()) storetest.Harness {
	return storetest.Harness{
		Parallel: 8, // each check has several stores, and each store connections of its own
		Start: func(t storetest.T) storetest.Backing {
			cfg := pgstore.Config{URL: url, Schema: fmt.Sprintf("test_%d", schemas.Add(1)), Timeout: drill.Unhurried}
			return storetest.Backing{
				Open: func() (s baton.Store) {
					// Many open at once, and most install a schema first: on a busy
					// machine that may take longer than a call is given.
					if err := drill.Answer(func() (err error) { s, err = pgstore.New(t.Context(), cfg); return err }); err != nil {
						t.Fatalf("open: %v", err)
					}
					return s
				},
				Restart: restart,
			}
		},
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Postgres, testserver.Setting("max_connections", "400"))
	storetest.Run(t, harness(server.URL, func() {
		server.Kill(t)
		server.Restart(t)
	}))
}

func TestConformanceBehindAFaultyNetwork(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Postgres)
	storetest.RunFaulty(t, harness(server.URL, nil), 1, 2)
}
