package storetest

import (
	"fmt"
	"testing"
	"time"

	"baton"
	"baton/storetest/history"
)

// RunFaulty checks what must hold of a store whatever the network does to its
// requests: the history stays right, and once the network is well again the
// group can be led. Each seed is a run of its own.
func RunFaulty(t *testing.T, h Harness, seeds ...uint64) {
	var runs []Case
	for _, seed := range seeds {
		runs = append(runs, Case{
			Name:  fmt.Sprintf("seed=%d", seed),
			Check: func(t T, h Harness) { CheckFaulty(t, h, seed) },
		})
	}
	runTogether(t, h, runs)
}

// CheckFaulty is one run of RunFaulty. It may run in a testing/synctest bubble if the store of h may.
func CheckFaulty(t T, h Harness, seed uint64) {
	e := newEnv(t, h)
	log := history.NewLog(e.clock)
	var clients []baton.Store
	var networks []*Faults
	for i := range uint64(3) {
		s, faults := Faulty(e.back.Open(), FaultConfig{
			Seed: seed<<8 + i, Clock: e.clock,
			LostRequest: .05, LostReply: .08, Duplicate: .08, Late: .08,
			Delay: .2, MaxDelay: e.short / 2, Outage: .005, MaxOutage: e.short / 2,
		})
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Errorf("close a faulty store: %v", err)
			}
		})
		networks = append(networks, faults)
		clients = append(clients, log.Record(fmt.Sprintf("client-%d", i), s))
	}
	e.load(60, 4).run(t.Context(), clients)
	for i, n := range networks {
		n.Heal()
		n.Settle()
		t.Logf("network %d: %v", i, n.Injected())
	}
	e.judge(log, history.Options{Duplicates: true, Timeout: time.Minute})

	last := e.get(e.store)
	next, _ := e.takeOver(clients[0], candidate("node-after"), e.long, e.lapse(max(last.TTL, e.short)))
	if next.Term <= last.Term {
		t.Errorf("term %d after %d", next.Term, last.Term)
	}
}
