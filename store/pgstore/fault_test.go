package pgstore_test

import (
	"context"
	"testing"
	"time"

	"baton"
	"baton/internal/testserver"
	"baton/store/pgstore"
	"baton/storetest"
	"baton/storetest/history"
)

// patience is far beyond what anything here takes.
const patience = time.Minute

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("still not after %v: %s", patience, what)
		}
	}
}

func open(t *testing.T, cfg pgstore.Config) *pgstore.Store {
	t.Helper()
	s, err := pgstore.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// fault is something that happens to a server, and passes.
type fault struct {
	begin, end func(*testing.T, *testserver.Server)
	always     bool // it is one of the two that every run has
}

func cut(d testserver.Direction) fault {
	return fault{
		begin: func(t *testing.T, s *testserver.Server) { s.Cut(t, d) },
		end:   func(t *testing.T, s *testserver.Server) { s.Heal(t) },
	}
}

var faults = map[string]fault{
	"killed": {
		begin:  func(t *testing.T, s *testserver.Server) { s.Kill(t) },
		end:    func(t *testing.T, s *testserver.Server) { s.Restart(t) },
		always: true,
	},
	"paused": {
		begin:  func(t *testing.T, s *testserver.Server) { s.Pause(t) },
		end:    func(t *testing.T, s *testserver.Server) { s.Resume(t) },
		always: true,
	},
	"cut off":                 cut(testserver.BothWays),
	"requests do not arrive":  cut(testserver.ToServer),
	"answers do not arrive":   cut(testserver.ToClient),
	"connections are refused": {begin: func(t *testing.T, s *testserver.Server) { s.Refuse(t) }, end: func(t *testing.T, s *testserver.Server) { s.Heal(t) }},
}

// With Postgres gone for longer than the lease lasts nothing can be decided,
// and everything says so in bounded time; when it is back, the same stores go
// on. Through all of it nobody is granted what another was promised.
func TestHistoryWithTheServerAway(t *testing.T) {
	t.Parallel()
	for name, f := range faults {
		if !f.always && !storetest.AllFaults() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Start(t, testserver.Postgres)
			cfg := pgstore.Config{URL: server.URL, Timeout: 2 * time.Second}
			fleet := storetest.StartFleet(t, storetest.FleetConfig{Open: func() baton.Store { return open(t, cfg) }})
			fleet.More("grants before the fault", 10)
			outage := storetest.BeforeOutage(t, open(t, cfg))
			f.begin(t, server)
			outage.During() // two seconds, twice as long as the leases of the fleet
			f.end(t, server)
			outage.After()
			fleet.More("grants after the fault", 10)
			fleet.Judge(history.Options{})
		})
	}
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
		return open(t, pgstore.Config{URL: server.URL, Timeout: 400 * time.Millisecond})
	}})
	fleet.More("grants before", 10)
	for range 12 {
		server.Pause(t)
		rest(t.Context(), 600*time.Millisecond)
		server.Resume(t)
		fleet.More("a grant in between", 1)
	}
	fleet.Judge(history.Options{})
}

func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
