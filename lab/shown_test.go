package lab

import (
	"slices"
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

// The commands make what was run and nothing else.
func TestCommandsOfResults(t *testing.T) {
	result := func(profile string, number int, backend, more string) Result {
		p, err := ProfileNamed(profile)
		if err != nil {
			t.Fatal(err)
		}
		b, err := BackendNamed(backend)
		if err != nil {
			t.Fatal(err)
		}
		r := &runner{Options: Options{Profile: p, Seed: 7, Broken: more}}
		k := &task{Experiment: Experiment{Number: number}, setting: newSetting(p, b, more)}
		return Result{Number: number, Backend: backend, Command: r.command(k)}
	}
	got := commandsOf([]Result{
		result("quick", 2, "etcd", ""), result("quick", 2, "baton", ""),
		result("quick", 1, "etcd", ""), result("quick", 1, "baton", ""),
		result("quick", 3, "baton", ""), result("full", 3, "raft", ""), result("quick", 3, "redis", "receipt"),
	})
	want := []string{
		"go run ./cmd/lab run --profile quick --only 1,2 --backend baton,etcd --seed 7",
		"go run ./cmd/lab run --profile quick --only 3 --backend baton --seed 7",
		"go run ./cmd/lab run --profile quick --only 3 --backend redis --seed 7 --broken receipt",
		"go run ./cmd/lab run --profile full --only 3 --backend raft --seed 7",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Wherever a backend's servers were, it is described once, and without what may be secret.
func TestOriginsNameABackendOnce(t *testing.T) {
	b, err := BackendNamed("etcd")
	if err != nil {
		t.Fatal(err)
	}
	var results []Result
	for _, url := range []string{"etcd://u:secret@127.0.0.1:1", "etcd://127.0.0.1:2"} {
		s, err := b.open(t.Context(), starter{stores: map[string]string{"etcd": url}})
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, Result{Backend: b.Name, BackendVersion: s.version})
	}
	lines := origins(results)
	if got, want := lines[len(lines)-1], "Backends: etcd: etcd, a server that ran already."; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
