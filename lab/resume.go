package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"
)

// plan is what a run was to do, so that one that was cut off is told from one
// that is complete. It is the file plan.json beside the results.
type plan struct {
	Began       time.Time `json:"began,omitzero"`
	Profile     Profile   `json:"profile"`
	Experiments []string  `json:"experiments"`
	Backends    []string  `json:"backends"`
	Seed        uint64    `json:"seed"`
	Broken      string    `json:"broken,omitempty"`
	Complete    bool      `json:"complete"`
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
	return replaceFile(planPath(dir), append(text, '\n'))
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

// has reports whether a result is of this run.
func (p plan) has(r Result) bool {
	return r.Run.Equal(p.Began) && p.sameWork(plan{Profile: r.Profile, Seed: r.Seed, Broken: r.Broken})
}

type resultKey struct {
	number  int
	backend string
}

// resume writes down what is planned, and returns the results that a run which
// was cut off has left of it. Results of other runs stay until this one has the
// same experiment on the same backend.
func (r *runner) resume() (map[resultKey]Result, error) {
	r.plan = plan{Began: time.Now().UTC(), Profile: r.Profile, Backends: r.Backends, Seed: r.Seed, Broken: r.Broken}
	for _, e := range r.Experiments {
		r.plan.Experiments = append(r.plan.Experiments, e.Name)
	}
	before, err := readPlan(r.Out)
	if err != nil {
		return nil, err
	}
	run := "a new run"
	if before != nil && !before.Complete && before.sameWork(r.plan) {
		run, r.plan.Began = "the run that was cut off", before.Began
	}
	results, err := ReadResults(r.Out)
	if err != nil && !errors.Is(err, errNoResults) {
		return nil, err
	}
	kept := map[resultKey]Result{}
	var others []Result
	for _, result := range results {
		switch {
		case !slices.Contains(r.plan.Experiments, result.Name) || !slices.Contains(r.Backends, result.Backend):
		case r.plan.has(result):
			kept[resultKey{result.Number, result.Backend}] = result
		default:
			others = append(others, result)
		}
	}
	if len(others) > 0 {
		r.progress.note("%s with seed %d: it replaces the results of runs before, experiment by experiment (%s)", run, r.Seed, runsOf(others))
	}
	return kept, r.plan.save(r.Out)
}

// runsOf says by what runs results are.
func runsOf(results []Result) string {
	counts := map[string]int{}
	for _, r := range results {
		counts[fmt.Sprintf("of profile %s with seed %d", r.Profile.Name, r.Seed)]++
	}
	var all []string
	for _, run := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%d %s", counts[run], run))
	}
	return strings.Join(all, ", ")
}

// unfinished says that the last run in dir was cut off, and which results are its own; empty if it was not.
func unfinished(dir string, results []Result) (string, error) {
	p, err := readPlan(dir)
	if err != nil || p == nil || p.Complete {
		return "", err
	}
	own := 0
	for _, r := range results {
		if p.has(r) {
			own++
		}
	}
	says := fmt.Sprintf("The last run, of profile %s with seed %d, is not complete: %d of the %d results here are its own", p.Profile.Name, p.Seed, own, len(results))
	if own < len(results) {
		says += ", the others are of runs before"
	}
	return says + ".", nil
}
