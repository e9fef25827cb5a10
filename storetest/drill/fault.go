package drill

import (
	"testing"
	"time"

	"baton"
	"baton/internal/testserver"
	"baton/storetest"
	"baton/storetest/history"
)

// Fault is something that happens to a server, and passes.
type Fault struct {
	Begin, End func(*testserver.Server, testing.TB)
	// Always: it is one of those that every run has. See storetest.AllFaults.
	Always bool
}

// Faults are those that all servers have.
var Faults = map[string]Fault{
	"killed":                 {Begin: (*testserver.Server).Kill, End: (*testserver.Server).Restart, Always: true},
	"paused":                 {Begin: (*testserver.Server).Pause, End: (*testserver.Server).Resume, Always: true},
	"cut off":                always(cut(testserver.BothWays)),
	"requests do not arrive": cut(testserver.ToServer),
	"answers do not arrive":  cut(testserver.ToClient),
	"answers are lost": {Begin: cut(testserver.ToClient).Begin, End: func(s *testserver.Server, t testing.TB) {
		s.Refuse(t) // which drops what was held back
		s.Heal(t)
	}},
	"connections are refused": {Begin: (*testserver.Server).Refuse, End: (*testserver.Server).Heal},
}

func cut(d testserver.Direction) Fault {
	return Fault{Begin: func(s *testserver.Server, t testing.TB) { s.Cut(t, d) }, End: (*testserver.Server).Heal}
}

func always(f Fault) Fault {
	f.Always = true
	return f
}

// Site is a store on a server that is there for one test.
type Site struct {
	Server *testserver.Server
	// Open returns a handle whose calls take this long at most. It is closed with the test.
	Open func(timeout time.Duration) baton.Store
}

// Outages has each fault hit the only server of a store, while a fleet
// campaigns, whose handles are the site's. With the server gone nothing can be decided, and everything
// says so in bounded time; when it is back, the same handles go on. Through all of it
// nobody is granted what another was promised.
func Outages(t *testing.T, fleet storetest.FleetConfig, start func(t *testing.T) Site) {
	for name, fault := range Faults {
		if !fault.Always && !storetest.AllFaults() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const timeout = 2 * time.Second
			site := start(t)
			cfg := fleet
			cfg.Open = func() baton.Store { return site.Open(timeout) }
			f := storetest.StartFleet(t, cfg)
			f.More("grants before the fault", 10)
			outage := storetest.BeforeOutage(t, site.Open(timeout))
			fault.Begin(site.Server, t)
			outage.During() // which takes the timeout, and that is as long as a lease of the fleet or longer
			fault.End(site.Server, t)
			outage.After()
			f.More("grants after the fault", 10)
			f.Judge(history.Options{})
		})
	}
}
