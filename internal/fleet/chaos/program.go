// Package chaos is the inside of baton/cmd/chaos: it kills, cuts off and
// freezes the leader of a running fleet, and tells what happened after.
package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"baton/internal/fleet"
	"baton/internal/fleet/proxy"
)

// The exit statuses of the program.
const (
	exitOK = iota
	exitFailed
	exitUsage
	// exitNoLeader: nobody led, or not any more, so nothing was done.
	exitNoLeader
	// exitUnsettled: it was done, and the fleet has not come to rest after.
	exitUnsettled
	// exitInterrupted: a signal came; whatever can be undone was undone.
	exitInterrupted = 130
)

const usage = `chaos harms or removes the leader of a running fleet and tells what happened after.

usage: chaos kill-leader [flags]                        kill -9
       chaos stop-leader [flags]                        SIGTERM: it hands over and ends
       chaos resign-leader [--to=NODE] [flags]          it hands over and goes on
       chaos gc-pause-leader --ms=N [flags]             stops the whole process, and lets it go on
       chaos partition-leader --secs=S [flags]          cuts it off from its backend, and heals that
       chaos slow-leader --delay-ms=N --secs=S [flags]  delays what it and its backend say
       chaos proxy [flags]                              runs the proxy that the last two need
       chaos status [--settled] [flags]                 harms nobody: who leads? Waits until the fleet has settled

It touches only processes that the fleet file names, after checking that they are
its nodes. Ctrl-C undoes what can be undone.

Exit status: 0 done, and somebody leads; 1 failed; 2 bad usage; 3 nobody led, or not any
more, nothing done; 4 done, and the fleet has not settled in time; 130 interrupted.

flags:
`

// options are the flags of all commands; those that a command does not have stay zero.
type options struct {
	fleet     string
	output    string
	wait      time.Duration
	ms        int64
	secs      float64
	delayMS   int64
	direction string
	to        string
	settled   bool
}

func (o options) seconds() time.Duration { return time.Duration(o.secs * float64(time.Second)) }

// commands are those that harm a leader. Each adds the flags it has and makes
// the action of what they say.
var commands = []struct {
	name  string
	flags func(o *options, flags *flag.FlagSet)
	make  func(o options) (action, error)
}{
	{"kill-leader", nil, func(options) (action, error) { return killLeader(), nil }},
	{"stop-leader", nil, func(options) (action, error) { return stopLeader(), nil }},
	{"resign-leader", resignFlags, func(o options) (action, error) { return resignLeader(o.to), nil }},
	{"gc-pause-leader", pauseFlags, func(o options) (action, error) {
		if o.ms <= 0 {
			return action{}, errors.New("--ms, how long to stop it, must be positive")
		}
		return pauseLeader(time.Duration(o.ms) * time.Millisecond), nil
	}},
	{"partition-leader", faultFlags, func(o options) (action, error) {
		says := fmt.Sprintf("cut off from its backend for %v (%s)", o.seconds(), o.direction)
		return faultOf(o, "partition-leader", says, proxy.Trouble{Cut: true})
	}},
	{"slow-leader", slowFlags, func(o options) (action, error) {
		if o.delayMS <= 0 {
			return action{}, errors.New("--delay-ms, how much later everything arrives, must be positive")
		}
		says := fmt.Sprintf("%d ms away from its backend for %v (%s)", o.delayMS, o.seconds(), o.direction)
		return faultOf(o, "slow-leader", says, proxy.Trouble{DelayMS: o.delayMS})
	}},
}

func faultOf(o options, name, says string, trouble proxy.Trouble) (action, error) {
	direction := proxy.Direction(o.direction)
	if !slices.Contains(proxy.Directions, direction) {
		return action{}, fmt.Errorf("--direction is %q: want one of %v", o.direction, proxy.Directions)
	}
	if o.secs <= 0 {
		return action{}, fmt.Errorf("--secs, how long it lasts, must be positive, such as --secs=5; it is %v", o.secs)
	}
	return faultLeader(name, says, trouble.In(direction), o.seconds()), nil
}

func pauseFlags(o *options, flags *flag.FlagSet) {
	flags.Int64Var(&o.ms, "ms", 0, "gc-pause-leader: how long to stop it, in `milliseconds`")
}

func resignFlags(o *options, flags *flag.FlagSet) {
	flags.StringVar(&o.to, "to", "", "resign-leader: the `node` that goes first, where the backend can")
}

func statusFlags(o *options, flags *flag.FlagSet) {
	flags.BoolVar(&o.settled, "settled", false, "status: wait until one node leads and acts, and all that run answer and follow it")
}

func faultFlags(o *options, flags *flag.FlagSet) {
	flags.Float64Var(&o.secs, "secs", 0, "partition-leader, slow-leader: how long, in `seconds`")
	flags.StringVar(&o.direction, "direction", string(proxy.Both), "partition-leader, slow-leader: which `way`: both, to-backend or from-backend")
}

func slowFlags(o *options, flags *flag.FlagSet) {
	faultFlags(o, flags)
	flags.Int64Var(&o.delayMS, "delay-ms", 0, "slow-leader: how much later everything arrives, in `milliseconds`")
}

func newFlags(o *options) *flag.FlagSet {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.fleet, "fleet", "fleet.json", "the fleet `file`")
	flags.StringVar(&o.output, "o", "text", "how to report: `text|json`")
	flags.DurationVar(&o.wait, "wait", 30*time.Second, "how long to wait for the fleet to settle")
	return flags
}

// Main runs one command. It returns the exit status.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		help(stdout)
		return exitOK
	}
	err := run(ctx, args[0], args[1:], stdout)
	if errors.Is(err, flag.ErrHelp) {
		help(stdout)
		return exitOK
	}
	status := exitStatus(ctx, err)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "chaos: %s\n", strings.Join(strings.Fields(err.Error()), " "))
	}
	return status
}

func help(w io.Writer) {
	var o options
	flags := newFlags(&o)
	resignFlags(&o, flags)
	statusFlags(&o, flags)
	pauseFlags(&o, flags)
	slowFlags(&o, flags)
	flags.SetOutput(w)
	_, _ = io.WriteString(w, usage)
	flags.PrintDefaults()
}

// usageError is a command that was given wrongly.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() + " (see chaos help)" }
func (e *usageError) Unwrap() error { return e.err }

func exitStatus(ctx context.Context, err error) int {
	var wrong *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &wrong):
		return exitUsage
	case errors.Is(err, errNoLeader), errors.Is(err, errUndone):
		return exitNoLeader
	case errors.Is(err, errUnsettled):
		return exitUnsettled
	case ctx.Err() != nil:
		return exitInterrupted
	}
	return exitFailed
}

func run(ctx context.Context, name string, args []string, stdout io.Writer) error {
	var o options
	flags := newFlags(&o)
	switch name {
	case "status":
		statusFlags(&o, flags)
		f, err := prepare(flags, &o, args)
		if err != nil {
			return err
		}
		return showStatus(ctx, f, o, stdout)
	case "proxy":
		f, err := prepare(flags, &o, args)
		if err != nil {
			return err
		}
		return serveProxy(ctx, f, stdout)
	}
	for _, c := range commands {
		if c.name != name {
			continue
		}
		if c.flags != nil {
			c.flags(&o, flags)
		}
		f, err := prepare(flags, &o, args)
		if err != nil {
			return err
		}
		a, err := c.make(o)
		if err != nil {
			return &usageError{err}
		}
		return harm(ctx, f, a, o, stdout)
	}
	return &usageError{fmt.Errorf("unknown command %q", name)}
}

// prepare parses the flags and reads the fleet file.
func prepare(flags *flag.FlagSet, o *options, args []string) (*fleet.File, error) {
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, &usageError{err}
	}
	switch {
	case flags.NArg() > 0:
		return nil, &usageError{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	case o.output != "text" && o.output != "json":
		return nil, &usageError{fmt.Errorf("-o is %q: want text or json", o.output)}
	}
	f, err := fleet.Load(o.fleet)
	if err != nil {
		return nil, &usageError{err}
	}
	return f, nil
}

func harm(ctx context.Context, f *fleet.File, a action, o options, stdout io.Writer) error {
	tell := stdout
	if o.output == "json" {
		tell = io.Discard
	}
	report, err := perform(ctx, f, a, o.wait, tell)
	if o.output == "json" && report.BeganAtNS != 0 {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		err = errors.Join(err, enc.Encode(report))
	} else if report.WritesRefused > 0 {
		_, err2 := fmt.Fprintf(tell, "             %d of its writes refused by the resource\n", report.WritesRefused)
		err = errors.Join(err, err2)
	}
	return err
}

func serveProxy(ctx context.Context, f *fleet.File, stdout io.Writer) error {
	if f.Proxy == "" {
		return &usageError{errors.New("the fleet file names no address for the proxy to take orders at")}
	}
	listener, err := net.Listen("tcp", f.Proxy)
	if err != nil {
		return &usageError{err}
	}
	p, err := proxy.Open(f)
	if err != nil {
		return errors.Join(&usageError{err}, listener.Close())
	}
	server := &http.Server{Handler: p.Handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	_, _ = fmt.Fprintf(stdout, "proxy of %d nodes takes orders at http://%s\n", len(p.Faults()), listener.Addr())
	select {
	case err = <-served:
		err = fmt.Errorf("take orders: %w", err)
	case <-ctx.Done():
		err = server.Close()
		<-served
	}
	return errors.Join(err, p.Close())
}
