package lab

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// plannedRun is what is kept for a run of two experiments on two backends.
type plannedRun struct {
	*runner
	kept []string
	said string
}

func planRun(t *testing.T, dir string, change func(r *runner)) plannedRun {
	t.Helper()
	quick, err := ProfileNamed("quick")
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	r := &runner{
		Options:  Options{Out: dir, Profile: quick, Seed: 5, Backends: []string{"baton", "etcd"}, Experiments: []Experiment{{Number: 1, Name: "one"}, {Number: 2, Name: "two"}}},
		progress: newProgress(&said, 0, 1),
	}
	if change != nil {
		change(r)
	}
	found, err := r.resume()
	if err != nil {
		t.Fatal(err)
	}
	p := plannedRun{runner: r, said: said.String()}
	for _, k := range slices.SortedFunc(maps.Keys(found), func(a, b resultKey) int { return a.number - b.number }) {
		p.kept = append(p.kept, fmt.Sprintf("%d on %s", k.number, k.backend))
	}
	return p
}

// done saves a result of the run.
func (p plannedRun) done(t *testing.T, number int, backend string) {
	t.Helper()
	b, err := BackendNamed(backend)
	if err != nil {
		t.Fatal(err)
	}
	k := &task{Experiment: p.Experiments[number-1], setting: newSetting(p.Profile, b, p.Broken)}
	p.begin(k)
	if err := k.result.save(p.Out); err != nil {
		t.Fatal(err)
	}
}

func (p plannedRun) keeps(t *testing.T, when string, want ...string) {
	t.Helper()
	if !slices.Equal(p.kept, want) {
		t.Errorf("%s: %q is kept, want %q", when, p.kept, want)
	}
}

// A run that was cut off is gone on with, by the same options alone.
func TestPlanOfARun(t *testing.T) {
	dir := t.TempDir()
	first := planRun(t, dir, nil)
	first.keeps(t, "of nothing")
	first.done(t, 1, "etcd")
	if seed, ok := UnfinishedSeed(dir, first.Profile); !ok || seed != 5 {
		t.Errorf("the seed of what was cut off: %d, %t", seed, ok)
	}
	again := planRun(t, dir, nil)
	again.keeps(t, "after the cut", "1 on etcd")
	if again.said != "" {
		t.Errorf("it replaces nothing, and says %q", again.said)
	}
	planRun(t, dir, func(r *runner) { r.Backends = []string{"etcd"} }).keeps(t, "with fewer backends", "1 on etcd")
	wider := planRun(t, dir, func(r *runner) { r.Backends = []string{"etcd", "redis"} })
	wider.done(t, 2, "redis")
	planRun(t, dir, func(r *runner) { r.Backends = []string{"etcd", "redis"} }).keeps(t, "with more backends", "1 on etcd", "2 on redis")
	planRun(t, dir, func(r *runner) { r.Seed = 6 }).keeps(t, "with another seed")
	if err := first.plan.complete(filepath.Join(dir, "none")); err == nil {
		t.Error("a plan was saved nowhere")
	}
}

// A run after one that is complete takes nothing from it, and nothing from the
// directory before it has better; cut off, it knows its own.
func TestNewRunReplacesOneByOne(t *testing.T) {
	dir := t.TempDir()
	old := planRun(t, dir, nil)
	old.done(t, 1, "baton")
	old.done(t, 2, "baton")
	if err := old.plan.complete(dir); err != nil {
		t.Fatal(err)
	}
	if _, ok := UnfinishedSeed(dir, old.Profile); ok {
		t.Error("what is complete is unfinished")
	}
	summary(t, dir, "")

	next := planRun(t, dir, nil)
	next.keeps(t, "of a complete run")
	if want := "a new run with seed 5: it replaces the results of runs before, experiment by experiment (2 of profile quick with seed 5)"; !strings.Contains(next.said, want) {
		t.Errorf("it says %q, want %q", next.said, want)
	}
	summary(t, dir, "0 of the 2 results here are its own, the others are of runs before.")
	next.done(t, 2, "baton")
	summary(t, dir, "1 of the 2 results here are its own")

	resumed := planRun(t, dir, nil)
	resumed.keeps(t, "of both", "2 on baton")
	if want := "the run that was cut off with seed 5: it replaces the results of runs before, experiment by experiment (1 of profile quick"; !strings.Contains(resumed.said, want) {
		t.Errorf("it says %q, want %q", resumed.said, want)
	}
	resumed.done(t, 1, "baton")
	summary(t, dir, "2 of the 2 results here are its own.")
	if err := resumed.plan.complete(dir); err != nil {
		t.Fatal(err)
	}
	summary(t, dir, "")
}

// summary looks at what a report of two results says of the run they are of.
func summary(t *testing.T, dir, unfinished string) {
	t.Helper()
	s, err := Report(dir, nil)
	if err != nil || len(s.Results) != 2 || (s.Unfinished == "") != (unfinished == "") || !strings.Contains(s.Unfinished, unfinished) {
		t.Errorf("%d results, %v, %q; want %q", len(s.Results), err, s.Unfinished, unfinished)
	}
}

// Plans and results that were written before they said when their run began.
func TestRunWithoutATimeIsGoneOnWith(t *testing.T) {
	dir := t.TempDir()
	run := planRun(t, dir, nil)
	run.plan.Began = time.Time{}
	if err := run.plan.save(dir); err != nil {
		t.Fatal(err)
	}
	run.done(t, 1, "baton")
	planRun(t, dir, nil).keeps(t, "of such a run", "1 on baton")
}
