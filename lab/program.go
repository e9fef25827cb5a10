package lab

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The exit statuses of the program.
const (
	exitOK = iota
	// exitFailed: an experiment could not be run.
	exitFailed
	exitUsage
	// exitChecks: everything ran, and a check failed.
	exitChecks
	// exitInterrupted: a signal came; everything that was started has ended.
	exitInterrupted = 130
)

const usage = `lab runs experiments on fleets of real processes and checks what came of them.

usage: lab list                   the experiments
       lab run [flags]            runs them, and writes results and a report
       lab report [flags]         writes report.html and result.json anew, and what
                                  --findings names

Run it inside the checkout: it builds the programs it runs, and gets servers by testservers/.
A result has the command, the seed and the configuration that made it. Ctrl-C ends
everything that was started; the same command goes on where it was.

Exit status: 0 all checks passed; 1 could not be run; 2 bad usage; 3 a check failed;
130 interrupted.

flags:
`

// Main is the program. It returns the exit status.
func Main(ctx context.Context, experiments []Experiment, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		help(stdout)
		return exitOK
	}
	err := runProgram(ctx, experiments, args[0], args[1:], stdout, stderr)
	var (
		wrong  *usageError
		failed *failedError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		help(stdout)
		return exitOK
	}
	_, _ = fmt.Fprintf(stderr, "lab: %v\n", err)
	switch {
	case errors.As(err, &wrong):
		return exitUsage
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &failed):
		return exitChecks
	}
	return exitFailed
}

// usageError is a command that was given wrongly.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() + " (see lab help)" }
func (e *usageError) Unwrap() error { return e.err }

// failedError are checks that failed.
type failedError struct{ failed []string }

func (e *failedError) Error() string {
	return fmt.Sprintf("%d checks failed:\n  %s", len(e.failed), strings.Join(e.failed, "\n  "))
}

// flagValues are the flags of all commands.
type flagValues struct {
	profile, only, backend, out, stores, broken, bin, findings string
	seed                                                       uint64
	jobs                                                       int64
}

func newFlags(v *flagValues) *flag.FlagSet {
	flags := flag.NewFlagSet("lab", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&v.profile, "profile", "quick", "how much to do: `quick|short|full`; quick does not hold runs to targets of speed")
	flags.StringVar(&v.only, "only", "", "the experiments to run, by number or name, with commas (default all)")
	flags.StringVar(&v.backend, "backend", strings.Join(backendNames(), ","), "what the fleets elect with, with commas")
	flags.Uint64Var(&v.seed, "seed", 0, "what chance decides: clock skews, when faults strike (default drawn, and shown; that of a run that was cut off, if there is one)")
	flags.Int64Var(&v.jobs, "jobs", 0, "how many jobs the work set of experiment 8 has, such as 100000000 (default the profile's)")
	flags.StringVar(&v.out, "out", "lab-results", "`directory` for results, logs and the report")
	flags.StringVar(&v.stores, "stores", "", "backends that run already, as `name=URL` with commas, such as etcd=etcd://127.0.0.1:2379 (default starts them)")
	flags.StringVar(&v.bin, "bin", "", "`directory` with the programs baton, node, fenced and chaos (default builds them)")
	flags.StringVar(&v.findings, "findings", "", "`page` to put tables and figures into, between its marks, such as docs/findings.md")
	flags.StringVar(&v.broken, "broken", "", "`receipt`: nodes trust leases from the receipt of answers, without a margin. The checks must fail")
	return flags
}

func help(w io.Writer) {
	var v flagValues
	flags := newFlags(&v)
	flags.SetOutput(w)
	_, _ = io.WriteString(w, usage)
	flags.PrintDefaults()
}

func runProgram(ctx context.Context, experiments []Experiment, command string, args []string, stdout, stderr io.Writer) error {
	var v flagValues
	flags := newFlags(&v)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return &usageError{err}
	}
	if flags.NArg() > 0 {
		return &usageError{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	}
	switch command {
	case "list":
		return list(experiments, v, stdout)
	case "run":
		return runAll(ctx, experiments, v, stdout, stderr)
	case "report":
		return report(experiments, v, stdout)
	}
	return &usageError{fmt.Errorf("unknown command %q", command)}
}

// list shows the experiments, and about how long they take.
func list(experiments []Experiment, v flagValues, stdout io.Writer) error {
	p, err := ProfileNamed(v.profile)
	if err != nil {
		return &usageError{err}
	}
	for _, e := range experiments {
		_, _ = fmt.Fprintf(stdout, "%d  %-11s  %s\n", e.Number, e.Name, e.Question)
	}
	_, _ = fmt.Fprintf(stdout, "\nAbout how long they take, profile %s, %d fleets at once:\n", p.Name, p.Parallel)
	for _, name := range split(v.backend) {
		b, err := BackendNamed(name)
		if err != nil {
			return &usageError{err}
		}
		_, _ = fmt.Fprintf(stdout, "%-11s", name)
		var sum time.Duration
		for _, e := range experiments {
			var takes time.Duration
			for _, a := range e.Arms(newSetting(p, b, "")) {
				takes += a.Takes
			}
			sum += takes
			_, _ = fmt.Fprintf(stdout, "  %d: %v", e.Number, takes.Round(time.Second))
		}
		_, _ = fmt.Fprintf(stdout, "  in all %v\n", (sum / time.Duration(max(p.Parallel, 1))).Round(time.Second))
	}
	return nil
}

func runAll(ctx context.Context, experiments []Experiment, v flagValues, stdout, stderr io.Writer) error {
	o := Options{Seed: v.seed, Out: v.out, Stores: map[string]string{}, Broken: v.broken, Programs: v.bin, Backends: split(v.backend), Progress: stderr}
	var err error
	for _, pair := range split(v.stores) {
		name, url, ok := strings.Cut(pair, "=")
		if !ok {
			return &usageError{fmt.Errorf("--stores has %q: want name=URL", pair)}
		}
		o.Stores[name] = url
	}
	if o.Profile, err = ProfileNamed(v.profile); err != nil {
		return &usageError{err}
	}
	if v.jobs < 0 {
		return &usageError{fmt.Errorf("--jobs is %d: want a positive number", v.jobs)}
	}
	o.Profile.Work.Jobs = cmp.Or(v.jobs, o.Profile.Work.Jobs)
	if o.Experiments, err = choose(experiments, split(v.only)); err != nil {
		return &usageError{err}
	}
	for _, name := range o.Backends {
		if _, err := BackendNamed(name); err != nil {
			return &usageError{err}
		}
	}
	if unfinished, ok := UnfinishedSeed(o.Out, o.Profile); ok && o.Seed == 0 {
		o.Seed = unfinished
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64N(1 << 32)
	}
	_, _ = fmt.Fprintf(stderr, "seed %d\n", o.Seed)
	if _, err := Run(ctx, o); err != nil {
		return err
	}
	return report(experiments, v, stdout)
}

func report(experiments []Experiment, v flagValues, stdout io.Writer) error {
	s, err := Report(v.out, experiments)
	if err == nil && v.findings != "" {
		err = WriteFindings(v.findings, s, experiments)
	}
	if err != nil {
		return err
	}
	for _, r := range s.Results {
		verdict := "passed"
		if !r.OK {
			verdict = "FAILED"
		}
		_, _ = fmt.Fprintf(stdout, "%d %s on %s: %s\n", r.Number, r.Name, r.Backend, verdict)
		for _, f := range r.Findings {
			_, _ = fmt.Fprintf(stdout, "    %s\n", f)
		}
	}
	_, _ = fmt.Fprintln(stdout, "what must be shown:")
	for _, row := range s.Shown {
		_, _ = fmt.Fprintf(stdout, "    %s (%s): %s: %s\n", row.What, row.Target, row.Measured, row.Met)
	}
	_, _ = fmt.Fprintf(stdout, "report: %s\n", filepath.Join(v.out, "report.html"))
	if !s.OK {
		return &failedError{s.Failed}
	}
	return nil
}

// split splits at commas.
func split(s string) []string {
	var all []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}
