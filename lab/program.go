package lab

import (
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

usage: lab list [flags]           the experiments, and about how long they take;
                                  of the flags --profile, --only, --backend
       lab run [flags]            runs them, and writes results and a report
       lab report [flags]         writes report.html and result.json anew, and what
                                  --findings names; of the flags --out, --findings

Run it inside the checkout: it builds the programs it runs, and gets servers by testservers/.
A result is that of a whole experiment on one backend; it has the command, the seed and
the configuration that made it. Ctrl-C ends everything that was started and keeps the
results that are complete; the same command goes on with the others. After a run that is
complete it begins a new one, whose results replace those before one by one.

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

// commandFlags are the flags that each command takes; nil is all.
var commandFlags = map[string][]string{
	"list":   {"profile", "only", "backend"},
	"run":    nil,
	"report": {"out", "findings"},
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
	flags.StringVar(&v.broken, "broken", "", "`receipt`: nodes trust leases from the receipt of answers, without a margin; not for raft and bully. The checks must fail")
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
	takes, known := commandFlags[command]
	if !known {
		return &usageError{fmt.Errorf("unknown command %q", command)}
	}
	if flags.NArg() > 0 {
		return &usageError{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	}
	var foreign error
	flags.Visit(func(f *flag.Flag) {
		if takes != nil && !slices.Contains(takes, f.Name) {
			foreign = fmt.Errorf("lab %s takes no --%s: its flags are --%s", command, f.Name, strings.Join(takes, ", --"))
		}
	})
	if foreign != nil {
		return &usageError{foreign}
	}
	switch command {
	case "list":
		return list(experiments, v, stdout)
	case "run":
		return runAll(ctx, experiments, v, stdout, stderr)
	default:
		return report(experiments, v, stdout)
	}
}

// list shows the experiments, and about how long they take.
func list(experiments []Experiment, v flagValues, stdout io.Writer) error {
	o, err := v.options(experiments)
	if err != nil {
		return &usageError{err}
	}
	for _, e := range o.Experiments {
		_, _ = fmt.Fprintf(stdout, "%d  %-11s  %s\n", e.Number, e.Name, e.Question)
	}
	_, _ = fmt.Fprintf(stdout, "\nAbout how long they take, profile %s%s:\n", o.Profile.Name, atOnce(o.Profile.Parallel))
	for _, name := range o.Backends {
		b, err := BackendNamed(name)
		if err != nil {
			return &usageError{err}
		}
		_, _ = fmt.Fprintf(stdout, "%-11s", name)
		var sum, longest time.Duration
		for _, e := range o.Experiments {
			var takes time.Duration
			for _, a := range e.Arms(newSetting(o.Profile, b, "")) {
				takes, longest = takes+a.Takes, max(longest, a.Takes)
			}
			sum += takes
			_, _ = fmt.Fprintf(stdout, "  %d: %v", e.Number, takes.Round(time.Second))
		}
		_, _ = fmt.Fprintf(stdout, "  in all %v\n", max(sum/time.Duration(max(o.Profile.Parallel, 1)), longest).Round(time.Second))
	}
	return nil
}

// atOnce says what the times of a list are of.
func atOnce(fleets int) string {
	if fleets <= 1 {
		return ", one fleet after the other"
	}
	return fmt.Sprintf(" (each experiment with one fleet after the other; in all with %d fleets at once, as a run has them)", fleets)
}

func runAll(ctx context.Context, experiments []Experiment, v flagValues, stdout, stderr io.Writer) error {
	o, err := v.options(experiments)
	if err != nil {
		return &usageError{err}
	}
	o.Progress = stderr
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
	if s.Unfinished != "" {
		_, _ = fmt.Fprintln(stdout, s.Unfinished)
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
