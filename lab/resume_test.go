package lab

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A run that was cut off is gone on with, by the same options alone; one that is
// complete begins anew.
func TestPlanOfARun(t *testing.T) {
	quick, err := ProfileNamed("quick")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	newRunner := func(change func(r *runner)) *runner {
		r := &runner{Options: Options{Out: dir, Profile: quick, Seed: 5, Backends: []string{"baton", "etcd"}, Experiments: []Experiment{{Number: 1, Name: "one"}, {Number: 2, Name: "two"}}}}
		if change != nil {
			change(r)
		}
		return r
	}
	kept := func(change func(r *runner)) []int {
		t.Helper()
		found, err := newRunner(change).resume()
		if err != nil {
			t.Fatal(err)
		}
		var numbers []int
		for k := range found {
			numbers = append(numbers, k.number)
		}
		slices.Sort(numbers)
		return numbers
	}
	if got := kept(nil); got != nil {
		t.Errorf("of nothing, %v is kept", got)
	}
	done := Result{Number: 1, Name: "one", Backend: "etcd", Profile: quick, Seed: 5}
	if err := done.save(dir); err != nil {
		t.Fatal(err)
	}
	if seed, ok := UnfinishedSeed(dir, quick); !ok || seed != 5 {
		t.Errorf("the seed of what was cut off: %d, %t", seed, ok)
	}
	if got := kept(nil); !slices.Equal(got, []int{1}) {
		t.Errorf("after the cut, %v is kept, want the first", got)
	}
	if got := kept(func(r *runner) { r.Backends = []string{"etcd"} }); !slices.Equal(got, []int{1}) {
		t.Errorf("with fewer backends, %v is kept", got)
	}
	if err := newRunner(nil).plan.complete(filepath.Join(dir, "none")); err == nil {
		t.Error("a plan was saved nowhere")
	}
	if got := kept(func(r *runner) { r.Seed = 6 }); got != nil {
		t.Errorf("with another seed, %v is kept", got)
	}
	if _, err := os.Stat(filepath.Join(dir, done.file())); err == nil {
		t.Error("a run that begins anew leaves results of another")
	}

	r := newRunner(nil)
	if _, err := r.resume(); err != nil {
		t.Fatal(err)
	}
	if err := done.save(dir); err != nil {
		t.Fatal(err)
	}
	if err := r.plan.complete(dir); err != nil {
		t.Fatal(err)
	}
	if _, ok := UnfinishedSeed(dir, quick); ok {
		t.Error("what is complete is unfinished")
	}
	if got := kept(nil); got != nil {
		t.Errorf("after a complete run, %v is kept", got)
	}
}
