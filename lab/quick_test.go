package lab_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"baton/internal/leak"
	"baton/lab"
	"baton/lab/all"
	"baton/lab/partition"
)

// seed is fixed, so that what fails once can fail again.
const seed = 5

// programs is where the fleet's programs are, built once.
var programs string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "lab-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	programs = dir
	if err := lab.Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// testLog shows progress as the test's log.
type testLog struct{ t *testing.T }

func (l testLog) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func run(t *testing.T, o lab.Options) []lab.Result {
	t.Helper()
	var err error
	if o.Profile, err = lab.ProfileNamed("quick"); err != nil {
		t.Fatal(err)
	}
	o.Progress, o.Seed, o.Programs = testLog{t}, seed, programs
	results, err := lab.Run(t.Context(), o)
	var missing *lab.MissingError
	switch {
	case errors.As(err, &missing) && os.Getenv("CI") != "true":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
	return results
}

// quickBackends are those whose experiments every run of the tests makes; the
// others' are for whoever has the time.
var quickBackends = []string{"baton", "etcd", "raft"}

// All experiments, on a backend by leases of our own, on one of others, and among
// peers; with -short on the first.
func TestQuick(t *testing.T) {
	defer leak.None(t, goleak.IgnoreCurrent())
	backends := quickBackends
	if testing.Short() {
		backends = backends[:1]
	}
	out := t.TempDir()
	results := run(t, lab.Options{Experiments: all.Experiments, Backends: backends, Out: out})
	if want := len(backends) * len(all.Experiments); len(results) != want {
		t.Errorf("%d results, want %d", len(results), want)
	}
	for _, r := range results {
		for range 2 {
			if !idle(r) {
				break
			}
			t.Logf("again, since it did not show what it is there to show: %v", r.Failed())
			r = run(t, lab.Options{Experiments: numbered(r.Number), Backends: []string{r.Backend}, Out: out})[0]
		}
		for _, f := range r.Failed() {
			t.Error(f)
		}
		for _, f := range r.Findings {
			t.Logf("%d %s on %s: %s", r.Number, r.Name, r.Backend, f)
		}
		shows(t, r)
	}
	reported(t, out)
}

// idle reports whether nothing is wrong with a run but that it shows too little: where the machine
// stands still for a second, a leader is unseated before its fault strikes, or a successor is late. What
// must never happen is an error the first time.
func idle(r lab.Result) bool {
	little := false
	for _, a := range r.Arms {
		for _, v := range a.Verdicts {
			if !v.OK && v.Kind == lab.Safety {
				return false
			}
			little = little || !v.OK && v.Kind == lab.Shown
		}
	}
	return little
}

func numbered(n int) []lab.Experiment {
	return slices.DeleteFunc(slices.Clone(all.Experiments), func(e lab.Experiment) bool { return e.Number != n })
}

// shows looks at what the experiments are there to show, past their own verdicts.
func shows(t *testing.T, r lab.Result) {
	t.Helper()
	for _, a := range r.Arms {
		switch {
		case !a.Fencing && a.Audit.SeqsFell+a.Audit.Duplicates == 0:
			t.Errorf("%s on %s, %s: no damage", r.Name, r.Backend, a.Name)
		case a.Fencing && (a.Audit.SeqsFell+a.Audit.Duplicates+a.Audit.TermsFell > 0 || len(a.Fell) > 0):
			t.Errorf("%s on %s, %s: damage in spite of fencing: %+v", r.Name, r.Backend, a.Name, a.Audit)
		}
		if r.Number == 4 && (len(a.Refusals) == 0 || a.Refusals[0].Token == "" || a.Refusals[0].HeldBy == "") {
			t.Errorf("%s on %s: no refused token is shown", r.Name, r.Backend)
		}
		for _, f := range a.Failovers {
			if f.Fault != "" && (f.GapMS <= 0 || f.AfterFaultMS <= 0) {
				t.Errorf("%s on %s, %s: a failover in no time: %+v", r.Name, r.Backend, a.Name, f)
			}
		}
	}
}

// reported looks at the report of the results in dir.
func reported(t *testing.T, dir string) {
	t.Helper()
	results, err := lab.ReadResults(dir)
	if err != nil {
		return // nothing ran; that was said
	}
	findings := filepath.Join(t.TempDir(), "findings.md")
	if err := os.WriteFile(findings, []byte("before\n<!-- lab: begin -->\nold\n<!-- lab: end -->\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	status := lab.Main(context.Background(), all.Experiments, []string{"report", "--out", dir, "--findings", findings}, &stdout, &stderr)
	failed := slices.ContainsFunc(results, func(r lab.Result) bool { return !r.OK })
	if (status == 0) == failed {
		t.Errorf("lab report ends with %d: %s", status, stderr.String())
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", "--seed 5", "leaders_acting", "What must be shown", "Failover against TTL"} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("the report has no %q", want)
		}
	}
	for _, not := range []string{"<script", "http-equiv", "src=", "ZgotmplZ"} {
		if bytes.Contains(page, []byte(not)) {
			t.Errorf("the report has %q: it must stand alone", not)
		}
	}
	written(t, findings)
	text, err := os.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s lab.Summary
	if err := json.Unmarshal(text, &s); err != nil || len(s.Results) != len(results) || s.OK == failed {
		t.Errorf("result.json: %v, %d results, ok %v", err, len(s.Results), s.OK)
	}
}

// written looks at a page that findings were put into.
func written(t *testing.T, path string) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	if !strings.HasPrefix(text, "before\n<!-- lab: begin -->\n") || !strings.HasSuffix(text, "<!-- lab: end -->\nafter\n") || strings.Contains(text, "\nold\n") {
		t.Errorf("the page is not what it was around the findings:\n%s", text)
	}
	for _, figure := range regexp.MustCompile(`\]\((figures/[^)]*)\)`).FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), figure[1])); err != nil {
			t.Error(err)
		}
	}
	for _, want := range []string{"| stale writes refused |", "figures/failover-ttl.svg", "--seed 5", "### Experiment 6: churn"} {
		if !strings.Contains(text, want) {
			t.Errorf("the findings have no %q", want)
		}
	}
}

// An elector that trusts leases from the receipt of answers, and without a
// margin, makes two nodes act at once. The lab sees it.
func TestBrokenElectorIsCaught(t *testing.T) {
	defer leak.None(t, goleak.IgnoreCurrent())
	sound := partition.Experiment
	sound.Arms = func(s lab.Setting) []lab.Arm { return partition.Experiment.Arms(s)[:1] }
	// Where the next leader is late for want of a processor, there is nothing to see.
	for range 3 {
		r := run(t, lab.Options{Experiments: []lab.Experiment{sound}, Backends: []string{"baton"}, Out: t.TempDir(), Broken: "receipt"})[0]
		if !r.OK && slices.ContainsFunc(r.Failed(), func(f string) bool { return strings.Contains(f, lab.OneByBelief.Name) }) {
			return
		}
	}
	t.Error("a broken elector passed")
}
