package fenced

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The exit statuses of the program.
const (
	ExitOK = iota
	// ExitFailed: it could not go on, such as without its database.
	ExitFailed
	// ExitUsage: it was started wrongly: bad flags, an address that is taken.
	ExitUsage
)

const fencingOff = "FENCING IS OFF: writes of past leaders are accepted, and data will be damaged; for experiments only"

// options are the program's flags.
type options struct {
	listen   string
	db       string
	fencing  onOff
	insecure bool
	timeout  time.Duration
	drain    time.Duration
	logJSON  bool
}

// onOff is a flag that is on or off.
type onOff bool

// String implements flag.Value.
func (f *onOff) String() string {
	if *f {
		return "on"
	}
	return "off"
}

// Set implements flag.Value.
func (f *onOff) Set(s string) error {
	switch s {
	case "on":
		*f = true
	case "off":
		*f = false
	default:
		return errors.New("want on or off")
	}
	return nil
}

const usage = `fenced is the protected resource of the fleet: ticks, sequences and checkpoints
that only the present leader can write.

usage: fenced [flags]

`

// parse returns flag.ErrHelp after it has printed the help to stdout.
func parse(args []string, stdout io.Writer) (options, error) {
	o := options{fencing: true}
	flags := flag.NewFlagSet("fenced", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:7410", "`address` to serve HTTP on; port 0 takes a free one")
	flags.StringVar(&o.db, "db", "fenced.db", "where the data is: postgres://... or the `path` of an SQLite file, made if it is not there")
	flags.Var(&o.fencing, "fencing", "`on|off`; off accepts any token, for the experiment that shows why not to")
	flags.BoolVar(&o.insecure, "insecure", false, "allow an address beyond this machine; there is no authentication")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Second, "how long a request may take")
	flags.DurationVar(&o.drain, "drain", 15*time.Second, "how long requests may go on after SIGTERM")
	flags.BoolVar(&o.logJSON, "log-json", false, "log in JSON")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(stdout)
			_, _ = io.WriteString(stdout, usage)
			flags.PrintDefaults()
		}
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.timeout <= 0 || o.drain <= 0:
		return o, errors.New("-timeout and -drain must be positive")
	case o.db == "":
		return o, errors.New("-db is empty")
	}
	return o, o.validateListen()
}

func (o *options) validateListen() error {
	host, port, err := net.SplitHostPort(o.listen)
	if err != nil {
		return fmt.Errorf("-listen %q: want host:port", o.listen)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("-listen %q: port must be 0 to 65535", o.listen)
	}
	if ip := net.ParseIP(host); !o.insecure && host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return fmt.Errorf("-listen %q is beyond this machine, and there is no authentication: say -insecure if you mean it", o.listen)
	}
	return nil
}

// openTimeout is how long opening the database may take, which is no request: there may be a schema to install.
const openTimeout = 10 * time.Second

// Main runs the program until ctx ends, then lets requests that are under way
// finish. It returns the exit status. When it serves it says so on stdout:
// "listening on http://...".
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return ExitOK
	}
	if err != nil {
		return complain(stderr, ExitUsage, fmt.Errorf("%w (see fenced -help)", err))
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	if o.logJSON {
		log = slog.New(slog.NewJSONHandler(stderr, nil))
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return complain(stderr, ExitUsage, err)
	}
	opening, cancel := context.WithTimeout(ctx, max(o.timeout, openTimeout))
	store, err := Open(opening, o.db, bool(o.fencing), o.timeout)
	cancel()
	if err != nil {
		_ = listener.Close()
		return complain(stderr, ExitFailed, err)
	}
	if !o.fencing {
		log.Warn(fencingOff)
	}
	err = serve(ctx, listener, NewServer(store, log, o.timeout), o.drain, func() {
		log.Info("serving", "address", listener.Addr().String(), "database", store.kind, "fencing", o.fencing.String())
		_, _ = fmt.Fprintf(stdout, "listening on http://%s\n", listener.Addr())
	})
	if err := errors.Join(err, store.Close()); err != nil {
		return complain(stderr, ExitFailed, err)
	}
	log.Info("stopped")
	return ExitOK
}

// complain says what is wrong in one line; some errors would take more.
func complain(stderr io.Writer, status int, err error) int {
	_, _ = fmt.Fprintf(stderr, "fenced: %s\n", strings.Join(strings.Fields(err.Error()), " "))
	return status
}

// serve answers requests until ctx ends, and then waits for those under way.
func serve(ctx context.Context, listener net.Listener, handler http.Handler, drain time.Duration, ready func()) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		WriteTimeout:      2 * auditTime,
		IdleTimeout:       2 * time.Minute,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	ready()
	select {
	case err := <-ended:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	err := server.Shutdown(draining)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests were still under way %v after the stop: %w", drain, err), server.Close())
	}
	<-ended
	return err
}
