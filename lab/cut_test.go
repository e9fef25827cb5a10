package lab_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"baton/internal/leak"
	"baton/lab"
)

// A run that is cut off in its second experiment is gone on with: the first is not run
// again, and the results of both are there.
func TestCutAndResumed(t *testing.T) {
	defer leak.None(t, goleak.IgnoreCurrent())
	ctx, cut := context.WithCancel(t.Context())
	defer cut()
	ran := map[string]int{}
	experiment := func(number int, name string, script func()) lab.Experiment {
		return lab.Experiment{
			Number: number, Name: name, Findings: func(lab.Result) []string { return nil },
			Arms: func(lab.Setting) []lab.Arm {
				return []lab.Arm{{
					Name: "only", TTL: 2 * time.Second, Checks: lab.Fenced(),
					Script: func(ctx context.Context, _ *lab.Stage) error {
						ran[name]++
						script()
						return ctx.Err()
					},
				}}
			},
		}
	}
	quick, err := lab.ProfileNamed("quick")
	if err != nil {
		t.Fatal(err)
	}
	quick.Parallel = 1
	o := lab.Options{
		Profile: quick, Backends: []string{"baton"}, Seed: seed, Out: t.TempDir(), Programs: programs, Progress: testLog{t},
		Experiments: []lab.Experiment{experiment(1, "first", func() {}), experiment(2, "second", cut)},
	}
	var interrupted *lab.InterruptedError
	if results, err := lab.Run(ctx, o); !errors.Is(err, context.Canceled) || !errors.As(err, &interrupted) || interrupted.Done != 1 || interrupted.Of != 2 || len(results) != 1 {
		t.Fatalf("cut off: %d results, %v", len(results), err)
	}
	results, err := lab.Run(t.Context(), o)
	if err != nil || len(results) != 2 || results[0].Name != "first" || results[1].Name != "second" {
		t.Fatalf("gone on with: %d results, %v", len(results), err)
	}
	if ran["first"] != 1 || ran["second"] != 2 {
		t.Errorf("the first ran %d times, the second %d times", ran["first"], ran["second"])
	}
	for _, r := range results {
		for _, f := range r.Failed() {
			t.Error(f)
		}
	}
	if results, err = lab.Run(t.Context(), o); err != nil || len(results) != 2 || ran["first"] != 2 {
		t.Errorf("once more, from the begin: %d results, %v, the first ran %d times", len(results), err, ran["first"])
	}
}
