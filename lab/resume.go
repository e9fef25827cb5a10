package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
)

// plan is what a run was to do, so that one that was cut off is told from one
// that is complete. It is the file plan.json beside the results.
type plan struct {
	Profile     Profile  `json:"profile"`
	Experiments []string `json:"experiments"`
	Backends    []string `json:"backends"`
	Seed        uint64   `json:"seed"`
	Broken      string   `json:"broken,omitempty"`
	Complete    bool     `json:"complete"`
}

func planPath(dir string) string { return filepath.Join(dir, "plan.json") }

// readPlan returns nil if there is none.
func readPlan(dir string) (*plan, error) {
	text, err := os.ReadFile(planPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var p plan
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("read %s: %w", planPath(dir), err)
	}
	return &p, nil
}

func (p plan) save(dir string) error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(planPath(dir), append(text, '\n'), 0o644)
}

func (p plan) complete(dir string) error {
	p.Complete = true
	return p.save(dir)
}

// sameWork reports whether what one of the two brought is also what the other
// would: they may differ in which experiments and backends they have.
func (p plan) sameWork(q plan) bool {
	return reflect.DeepEqual(p.Profile, q.Profile) && p.Seed == q.Seed && p.Broken == q.Broken
}

// UnfinishedSeed is the seed of a run in dir that was cut off; false if there is none.
func UnfinishedSeed(dir string, p Profile) (uint64, bool) {
	before, err := readPlan(dir)
	if err != nil || before == nil || before.Complete || !reflect.DeepEqual(before.Profile, p) {
		return 0, false
	}
	return before.Seed, true
}

type resultKey struct {
	number  int
	backend string
}

// resume writes down what is planned, and returns the results that a run which
// was cut off has left of it.
func (r *runner) resume() (map[resultKey]Result, error) {
	r.plan = plan{Profile: r.Profile, Backends: r.Backends, Seed: r.Seed, Broken: r.Broken}
	for _, e := range r.Experiments {
		r.plan.Experiments = append(r.plan.Experiments, e.Name)
	}
	before, err := readPlan(r.Out)
	if err != nil {
		return nil, err
	}
	if before == nil || before.Complete || !before.sameWork(r.plan) {
		return nil, errors.Join(r.clear(), r.plan.save(r.Out))
	}
	kept := map[resultKey]Result{}
	results, err := ReadResults(r.Out)
	if err != nil && !errors.Is(err, errNoResults) {
		return nil, err
	}
	for _, result := range results {
		// Results of runs before that one, of other experiments, may lie here too.
		if result.Seed == r.Seed && result.Broken == r.Broken && reflect.DeepEqual(result.Profile, r.Profile) &&
			slices.Contains(before.Experiments, result.Name) && slices.Contains(before.Backends, result.Backend) {
			kept[resultKey{result.Number, result.Backend}] = result
		}
	}
	return kept, nil
}

// clear removes the results that this run makes anew.
func (r *runner) clear() error {
	for _, e := range r.Experiments {
		for _, b := range r.Backends {
			path := filepath.Join(r.Out, Result{Number: e.Number, Name: e.Name, Backend: b}.file())
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}
