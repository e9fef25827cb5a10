package raftpeer

import (
	"bytes"
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"baton"
)

// Two of three are a majority: with one away for many leases there is one takeover if it led, and
// none if it did not, and whoever leads then goes on leading; also when it is back. The log has
// a line for each peer that another one misses, not a stream of them.
func TestOneOfThreeAway(t *testing.T) {
	dies := func(_ *simGroup, n *simNode) (back func()) {
		n.crash()
		return func() { n.start(nil) }
	}
	cutOff := func(c *simGroup, n *simNode) (back func()) {
		c.isolate(n, time.Hour, true, true)
		return c.net.Heal
	}
	for _, tt := range []struct {
		name  string
		leads bool
		away  func(*simGroup, *simNode) (back func())
		// missed is how often the log has that a peer is away: one that is cut off misses both others.
		missed int
	}{
		{"the leader dies", true, dies, 1},
		{"the leader is cut off", true, cutOff, 3},
		{"a follower dies", false, dies, 1},
		{"a follower is cut off", false, cutOff, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onOneProcessor(t)
			for seed := uint64(1); seed <= 2; seed++ {
				var log bytes.Buffer
				c := &simGroup{t: t, log: slog.New(slog.NewTextHandler(&log, nil)), rng: rand.New(rand.NewPCG(seed, 0)), rates: slightly, check: newChecker(), lease: DefaultLease(DefaultElectionTimeout)}
				synctest.Test(t, func(t *testing.T) { c.sendAway(t.Context(), seed, tt.leads, tt.away) })
				for _, problem := range c.check.problems {
					t.Errorf("seed %d: %s", seed, problem)
				}
				said := log.String()
				missed, back := strings.Count(said, "a peer is away"), strings.Count(said, "a peer is back")
				if missed != tt.missed || back < 1 || back > missed || strings.Contains(said, "level=ERROR") || strings.Count(said, "level=WARN") > 8 {
					t.Errorf("seed %d: %d peers missed, want %d; %d back; the log:\n%s", seed, missed, tt.missed, back, said)
				}
			}
		})
	}
}

func (c *simGroup) sendAway(ctx context.Context, seed uint64, leads bool, away func(*simGroup, *simNode) func()) {
	var end context.CancelFunc
	c.over, end = context.WithCancel(ctx)
	c.patient = true
	c.begin(3, seed)
	c.net.Calm()
	time.Sleep(3 * time.Second)
	_, before := c.check.leads()
	var gone *simNode
	for _, n := range c.nodes {
		if (n == c.leader()) == leads {
			gone = n
		}
	}
	back := away(c, gone)
	time.Sleep(10 * c.lease)
	leader, term := c.check.leads()
	takeovers := baton.Term(0)
	if leads {
		takeovers = 1
	}
	if leader == "" || leader == gone.name || term != before+takeovers {
		c.check.problem("%s is away, and %q leads in term %d; the last term before was %d", gone.name, leader, term, before)
	}
	keeps := func(when string) {
		for range 50 {
			time.Sleep(c.lease)
			if now, at := c.check.leads(); now != leader || at != term {
				c.check.problem("%q led in term %d, and %s %q in term %d: %s", leader, term, when, now, at, c.describe())
				return
			}
		}
	}
	keeps("with " + gone.name + " away")
	back()
	keeps("when " + gone.name + " was back")
	end()
	for _, n := range c.nodes {
		n.crash()
	}
	c.ending.Wait()
}
