package raftstore

import (
	"sync/atomic"
	"time"
)

// metrics counts what the operator of a cluster wants to see. The server
// exports them; a program that embeds the store reads Stats.
type metrics struct {
	served    atomic.Uint64
	forwarded atomic.Uint64
	rounds    tally
	commits   tally
}

// tally sums up one kind of step.
type tally struct {
	steps, failures, shared, nanos atomic.Uint64
}

func (t *tally) add(took time.Duration, shared int, err error) {
	t.steps.Add(1)
	if err != nil {
		t.failures.Add(1)
	}
	t.shared.Add(uint64(max(0, shared)))
	t.nanos.Add(uint64(max(0, took)))
}

func newMetrics() *metrics { return &metrics{} }

func (m *metrics) round(took time.Duration, shared int, err error) { m.rounds.add(took, shared, err) }
func (m *metrics) committed(took time.Duration, shared int, err error) {
	m.commits.add(took, shared, err)
}

// Steps is how often something was done, how often it failed, how many
// requests it served, and how long all of it took.
type Steps struct {
	Count    uint64
	Failures uint64
	Requests uint64
	Total    time.Duration
}

func (t *tally) read() Steps {
	return Steps{Count: t.steps.Load(), Failures: t.failures.Load(), Requests: t.shared.Load(), Total: time.Duration(t.nanos.Load())}
}
