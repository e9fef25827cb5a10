package raftstore

import "testing"

// The simulation can fail: each of these breaks one rule, and must be caught.
// Rules that chance would take long to catch have schedules of their own.

func TestSimulationCatchesTrustFromReceipt(t *testing.T) {
	mustCatch(t, trial{}, fromReceipt)
}

func TestSimulationCatchesRenewalOfWhatIsBeingEnded(t *testing.T) {
	mustCatch(t, trial{endsOpen: true}, fromSend)
}

func TestSimulationCatchesArmingBeforeTheBarrier(t *testing.T) {
	mustCatch(t, trial{armsFirst: true}, fromSend)
}

func mustCatch(t *testing.T, broken trial, trust trusted) {
	t.Helper()
	onOneProcessor(t)
	const most = 100
	for seed := *firstSeed; seed < *firstSeed+most; seed++ {
		if c := simulate(t, seed, broken, trust); len(c.check.problems) > 0 {
			t.Logf("seed %d: %s", seed, c.check.problems[0])
			return
		}
	}
	t.Fatalf("%d runs of a broken store, and nothing was found", most)
}
