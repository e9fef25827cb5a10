// Command bench measures Baton's raft store beside etcd: the same work, on the
// same machine, in the same run, as real processes.
//
//	bench [-full] [-only renewals,cycles,...] [-o text|json]
//	bench stores [-heavy] [-only postgres,redis,...]
//
// Contenders take turns in short slices, so that whatever else the machine does
// meets all of them; the result that counts is the ratio. How to read the
// figures is in docs/benchmarks.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// measures are what can be asked for with -only, in the order of a run.
var measures = []string{"renewals", "cycles", "reads", "handover", "crash", "scale"}

// everybody is who can be asked for with -contenders.
var everybody = []string{"baton", "etcd", "baton x3", "etcd x3"}

const usage = `Measures Baton's raft store beside etcd: the same work, in the same run.

usage: bench [flags]
       bench ` + storesCommand + ` [flags]    what every store costs, the table of docs/stores.md; -help has its flags

`

// settings are the flags.
type settings struct {
	full      bool
	who       string
	only      string
	output    string
	profile   string
	scale     string
	rounds    int
	slice     time.Duration
	clients   int
	shared    bool
	handovers int
	crashes   int
}

func main() {
	// A child is told of its parent's death by the death of the thread that
	// started it. The main thread lives as long as the process.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// The first signal cleans up; from then on the next one kills.
	context.AfterFunc(ctx, stop)
	if len(os.Args) > 1 {
		if child, ok := children[os.Args[1]]; ok {
			os.Exit(child(ctx, os.Args[2:]))
		}
	}
	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "bench: interrupted")
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (settings, error) {
	var s settings
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.Usage = func() {
		_, _ = io.WriteString(f.Output(), usage) // nobody is left to be told
		f.PrintDefaults()
	}
	f.BoolVar(&s.full, "full", false, "the long dose: more and longer slices, and a million leases")
	f.StringVar(&s.only, "only", strings.Join(measures, ","), "what to measure")
	f.StringVar(&s.who, "contenders", strings.Join(everybody, ","), "who is measured; ratios need the rival too")
	f.StringVar(&s.output, "o", "text", "how to print the result: text or json")
	f.StringVar(&s.profile, "profile", "", "directory for CPU profiles of the Baton servers, and of this program as client.pprof")
	f.StringVar(&s.scale, "scale", "", "numbers of leases on one server, with commas (100000; with -full 100000,1000000)")
	f.IntVar(&s.rounds, "rounds", 0, "how often each contender has its turn (3; with -full 9)")
	f.DurationVar(&s.slice, "slice", 0, "how long a turn lasts (1s; with -full 2s)")
	f.IntVar(&s.clients, "clients", 64, "clients at once, where there are many")
	f.BoolVar(&s.shared, "shared", false, "all clients share one client object of the contender's Go library, not one each")
	f.IntVar(&s.handovers, "handovers", 0, "handovers in a turn (25; with -full 60)")
	f.IntVar(&s.crashes, "crashes", 0, "leaders that fall silent in a turn (40; with -full 100)")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	dose := func(v *int, short, long int) {
		if *v == 0 {
			*v = short
			if s.full {
				*v = long
			}
		}
	}
	dose(&s.rounds, 3, 9)
	dose(&s.handovers, 25, 60)
	dose(&s.crashes, 40, 100)
	if s.slice == 0 {
		s.slice = time.Second
		if s.full {
			s.slice = 2 * time.Second
		}
	}
	if s.scale == "" {
		s.scale = "100000"
		if s.full {
			s.scale = "100000,1000000"
		}
	}
	for name := range strings.SplitSeq(s.only, ",") {
		if !slices.Contains(measures, name) {
			return s, fmt.Errorf("-only %q is not known: want some of %s", name, strings.Join(measures, ", "))
		}
	}
	for name := range strings.SplitSeq(s.who, ",") {
		if !slices.Contains(everybody, name) {
			return s, fmt.Errorf("-contenders %q is not known: want some of %s", name, strings.Join(everybody, ", "))
		}
	}
	if s.output != "text" && s.output != "json" {
		return s, fmt.Errorf("-o is %q: want text or json", s.output)
	}
	if f.NArg() > 0 || s.rounds < 1 || s.slice < 0 || s.clients < 1 || s.handovers < 1 || s.crashes < 1 {
		return s, fmt.Errorf("arguments make no sense: %q", args)
	}
	if _, err := s.scales(); err != nil {
		return s, err
	}
	return s, nil
}

func (s settings) wants(measure string) bool {
	return slices.Contains(strings.Split(s.only, ","), measure)
}

func (s settings) scales() ([]int, error) {
	var list []int
	for text := range strings.SplitSeq(s.scale, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 5_000_000 {
			return nil, fmt.Errorf("-scale has %q: want 1 to 5000000", text)
		}
		list = append(list, n)
	}
	return list, nil
}

// bench is one run.
type bench struct {
	settings
	stage  *stage
	report report
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	s, err := parse(args)
	if err != nil {
		return err
	}
	b := &bench{settings: s}
	if b.profile != "" {
		if b.profile, err = filepath.Abs(b.profile); err != nil {
			return err
		}
	}
	if b.stage, err = newStage(ctx, b.profile); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stage.close()) }()
	if b.profile != "" {
		stop, err := profileSelf(filepath.Join(b.profile, "client.pprof"))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	b.report.Machine = describeMachine(b.stage.dir)
	b.report.Command = strings.Join(append([]string{"go run -C bench ."}, args...), " ")
	if err := b.measure(ctx); err != nil {
		return err
	}
	b.report.Machine.LoadAfter = loadAverage()
	return b.report.print(out, s.output)
}

func (b *bench) measure(ctx context.Context) error {
	besides := slices.DeleteFunc(strings.Split(b.only, ","), func(m string) bool { return m == "scale" })
	if len(besides) > 0 {
		if err := b.sideBySide(ctx); err != nil {
			return err
		}
	}
	if !b.wants("scale") {
		return nil
	}
	sizes, err := b.scales()
	if err != nil {
		return err
	}
	for _, n := range sizes {
		if err := b.scaleTo(ctx, n); err != nil {
			return fmt.Errorf("scale to %d: %w", n, err)
		}
	}
	return nil
}

// sideBySide measures all contenders in turns.
func (b *bench) sideBySide(ctx context.Context) (err error) {
	contenders, err := b.stage.contenders(ctx, strings.Split(b.who, ","), b.shared)
	defer func() {
		for _, c := range contenders {
			err = errors.Join(err, c.Close())
		}
	}()
	if err != nil {
		return err
	}
	for _, c := range contenders {
		b.report.Contenders = append(b.report.Contenders, c.Name()+": "+c.Describe(ctx))
	}
	for _, m := range []struct {
		name string
		do   func(context.Context, []contender) error
	}{
		{"renewals", b.renewals}, {"cycles", b.cycles}, {"reads", b.reads},
		{"handover", b.handover}, {"crash", b.crash},
	} {
		if !b.wants(m.name) {
			continue
		}
		if err := m.do(ctx, contenders); err != nil {
			return fmt.Errorf("measure %s: %w", m.name, err)
		}
	}
	return nil
}

// progress tells whoever waits where the run is.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
