package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The marks between which a page has what the lab wrote.
const (
	findingsBegin = "<!-- lab: begin -->"
	findingsEnd   = "<!-- lab: end -->"
)

// WriteFindings puts the figures of a report beside the page at path, and its
// tables and sentences into it, between two marks. The rest of the page stays.
func WriteFindings(path string, s Summary, experiments []Experiment) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := bytes.Index(page, []byte(findingsBegin)), bytes.Index(page, []byte(findingsEnd))
	if begin < 0 || end < begin {
		return fmt.Errorf("write findings: %s has no place for them between %s and %s", path, findingsBegin, findingsEnd)
	}
	figures, err := findingsFigures(s.Results)
	if err != nil {
		return err
	}
	dir := filepath.Join(filepath.Dir(path), "figures")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var errs error
	for _, f := range figures {
		errs = errors.Join(errs, os.WriteFile(filepath.Join(dir, f.Name+".svg"), append(f.SVG, '\n'), 0o644))
	}
	if errs != nil {
		return errs
	}
	text := slices.Concat(page[:begin+len(findingsBegin)], []byte("\n"+findingsText(s, experiments, figures)), page[end:])
	return os.WriteFile(path, text, 0o644)
}

// findingsFigures are those that compare backends, and who acted when in the
// runs that are about it.
func findingsFigures(results []Result) ([]Figure, error) {
	all, err := acrossFigures(results)
	if err != nil {
		return nil, err
	}
	for _, r := range byNumber(results) {
		if r.Name != "partition" && r.Name != "gcpause" || slices.ContainsFunc(all, func(f Figure) bool { return f.Name == "acting-"+r.Name }) {
			continue
		}
		a := r.Arms[len(r.Arms)-1]
		f, err := a.lanes()
		if err != nil {
			return nil, err
		}
		f.Name, f.Caption = "acting-"+r.Name, fmt.Sprintf("Experiment %d on %s, %s. %s", r.Number, r.Backend, a.Name, f.Caption)
		counts, err := a.counts()
		if err != nil {
			return nil, err
		}
		counts.Name, counts.Caption = "leaders-"+r.Name, fmt.Sprintf("Experiment %d on %s, %s: leaders_acting over time.", r.Number, r.Backend, a.Name)
		all = append(all, f, counts)
	}
	return all, nil
}

func findingsText(s Summary, experiments []Experiment, figures []Figure) string {
	var b strings.Builder
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format+"\n", args...) }
	results := byNumber(s.Results)
	say("")
	if s.Unfinished != "" {
		say("**%s**\n", s.Unfinished)
	}
	for _, line := range origins(results) {
		say("%s", line)
	}
	say("\n| what | target | measured | met |\n|---|---|---|---|")
	for _, row := range s.Shown {
		say("| %s | %s | %s | %s |", row.What, row.Target, row.Measured, row.Met)
	}
	for _, e := range experiments {
		b.WriteString(experimentTable(e, of(results, e.Name)))
	}
	say("\n### Figures")
	for _, f := range figures {
		say("\n![%s](figures/%s.svg)\n\n%s", f.Name, f.Name, f.Caption)
	}
	return b.String() + "\n"
}

// experimentTable has a line for each backend.
func experimentTable(e Experiment, results []Result) string {
	if len(results) == 0 {
		return ""
	}
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "\n### Experiment %d: %s\n\n%s\n\n%s\n\n", e.Number, e.Name, e.Question, "`"+strings.Join(commandsOf(results), "`\n`")+"`")
	columns := slices.Concat([]string{"backend"}, e.Columns, []string{"taken by the host"})
	_, _ = fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, r := range results {
		_, _ = fmt.Fprintf(&b, "| %s | %s | %s |\n", r.Backend+verdictNote(r), strings.Join(e.Row(r), " | "), taken(r))
	}
	return b.String()
}

// taken is how much of the processors' time others of the host had, in the arm with the worst ten seconds.
func taken(r Result) string {
	var most *HostTally
	for _, a := range r.Arms {
		if a.Host != nil && (most == nil || a.Host.Worst > most.Worst) {
			most = a.Host
		}
	}
	return most.String()
}

func verdictNote(r Result) string {
	if r.OK {
		return ""
	}
	return fmt.Sprintf(" **%d checks failed**: %s", len(r.Failed()), strings.Join(r.Failed(), "; "))
}

// origins say where, when and of what the results are: a line for each that differs.
func origins(results []Result) []string {
	var all []string
	for _, r := range results {
		line := fmt.Sprintf("Profile %s, seed %d, sources %s, %s; %d x %s, %s %s, %s.", r.Profile.Name, r.Seed, r.Machine.Commit,
			r.Began.Format("2006-01-02"), r.Machine.CPUs, r.Machine.CPU, r.Machine.OS, r.Machine.Kernel, r.Machine.Go)
		if !slices.Contains(all, line) {
			all = append(all, line)
		}
	}
	var versions []string
	for _, r := range results {
		if line := r.Backend + ": " + r.BackendVersion; !slices.Contains(versions, line) {
			versions = append(versions, line)
		}
	}
	return append(all, "Backends: "+strings.Join(versions, "; ")+".")
}
