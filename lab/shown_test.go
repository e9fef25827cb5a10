package lab

import (
	"testing"

	"baton/fenced/fencedclient"
)

// A target that nothing was held against is neither met nor missed.
func TestShown(t *testing.T) {
	damaged := func(v Check) []Verdict { return []Verdict{{Name: v.Name}} }
	for _, tt := range []struct {
		name                string
		arm                 ArmResult
		leader, stale, rise string
	}{
		{"nothing happened", ArmResult{}, "not exercised", "not exercised", "not exercised"},
		{"writes of one leader", ArmResult{Audit: fencedclient.Audit{Writes: 9}}, "yes", "not exercised", "not exercised"},
		{"a failover and a late write", ArmResult{Audit: fencedclient.Audit{Writes: 9}, Refused: 1, Failovers: make([]Failover, 1)}, "yes", "yes", "yes"},
		{"a late write got in", ArmResult{Audit: fencedclient.Audit{Writes: 9, SeqsFell: 1}, Fell: make([]Write, 1)}, "no", "no", "no"},
		{"a refusal that is not on record", ArmResult{Verdicts: damaged(AllStaleRefused)}, "not exercised", "no", "not exercised"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.arm.Fencing = true
			rows := MustBeShown([]Result{{Arms: []ArmResult{tt.arm}}})
			for i, want := range []string{tt.leader, tt.stale, tt.rise} {
				if rows[i].Met != want {
					t.Errorf("%s: %s: %q, want %q", rows[i].What, rows[i].Measured, rows[i].Met, want)
				}
			}
		})
	}
}
