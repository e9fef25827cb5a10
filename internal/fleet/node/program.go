package node

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"baton"
	"baton/fenced/fencedclient"
	"baton/internal/fleet"
)

// The exit statuses of the program, beside baton.ExitOverrun.
const (
	exitOK = iota
	exitFailed
	// exitUsage: it was started wrongly: bad flags, an address that is taken.
	exitUsage
)

// usageError is what no repetition will change.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// Main runs the program until ctx ends; then the leader's work is stopped and
// the lease given back. It returns the exit status. When it serves it says so on
// stdout: "node n1 serves http://...".
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err != nil {
		return complain(stderr, &usageError{fmt.Errorf("%w (see node -help)", err)})
	}
	handler := slog.Handler(slog.NewTextHandler(stderr, nil))
	if o.logJSON {
		handler = slog.NewJSONHandler(stderr, nil)
	}
	log := slog.New(handler)
	n := &Node{opt: o, bare: log, log: log.With("node", o.nodeID), clock: newClock(o.skew), metrics: newMetrics(), exit: baton.ExitOnOverrun}
	if err := n.run(ctx, stdout); err != nil {
		return complain(stderr, err)
	}
	return exitOK
}

// complain says what is wrong in one line and returns the exit status.
func complain(stderr io.Writer, err error) int {
	_, _ = fmt.Fprintf(stderr, "node: %s\n", strings.Join(strings.Fields(err.Error()), " "))
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}

// idleConnections are kept open to the resource: writes to it are made one at
// a time per resource.
const idleConnections = 8

func (n *Node) run(ctx context.Context, stdout io.Writer) (err error) {
	transport := &http.Transport{MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: time.Minute}
	defer transport.CloseIdleConnections()
	n.resource, err = fencedclient.New(n.opt.resource, &http.Client{Transport: n.sent.through(transport)})
	if err != nil {
		return &usageError{err}
	}
	listener, err := net.Listen("tcp", n.opt.http)
	if err != nil {
		return &usageError{err}
	}
	n.address = listener.Addr().String()
	if err := n.openFiles(); err != nil {
		return errors.Join(&usageError{err}, listener.Close())
	}
	defer func() { err = errors.Join(err, n.closeFiles()) }()
	n.warn()
	n.metrics.showStatus(n.status)

	server := &http.Server{Handler: n.handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	served := make(chan error, 1)
	go func() {
		err := server.Serve(listener)
		stop(err) // a node that nobody can ask is not one
		served <- err
	}()
	n.events.Log(fleet.Event{Type: fleet.Started})
	context.AfterFunc(ctx, func() { n.events.Log(fleet.Event{Type: fleet.Stopping}) })
	_, _ = fmt.Fprintf(stdout, "node %s serves http://%s\n", n.opt.nodeID, n.address)

	err = n.participate(running)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil // as asked
	}
	return errors.Join(err, n.shutdown(server, served))
}

// shutdown lets requests finish: those that wait for a number have been failed
// when the work ended.
func (n *Node) shutdown(server *http.Server, served <-chan error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, server.Close())
	}
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve HTTP: %w", failed))
	}
	return err
}

func (n *Node) openFiles() (err error) {
	if n.opt.events != "" {
		if n.events, err = fleet.OpenEventLog(n.opt.events, n.opt.nodeID, n.opt.skew); err != nil {
			return err
		}
	}
	if n.opt.pidFile != "" {
		return fleet.WritePIDFile(n.opt.pidFile)
	}
	return nil
}

func (n *Node) closeFiles() error {
	n.events.Log(fleet.Event{Type: fleet.Stopped})
	var err error
	if n.opt.pidFile != "" {
		err = os.Remove(n.opt.pidFile)
	}
	return errors.Join(err, n.events.Close())
}

// warn says loudly what was broken on purpose, and what was asked for in vain.
func (n *Node) warn() {
	if len(n.opt.idle) > 0 {
		n.log.Warn("flags that have no say with this backend, where the lease is twice the -election-timeout", "flags", n.opt.idle, "backend", n.opt.backend, "lease", n.opt.ttl)
	}
	if n.opt.unsafeTrust != "" {
		n.log.Warn("LEASES ARE TRUSTED FROM THE RECEIPT OF ANSWERS AND WITHOUT A MARGIN: this node will lead for longer than it may; for experiments only")
	}
	if n.opt.unsafeLinger > 0 {
		n.log.Warn("THE LEADER'S WORK GOES ON AFTER ITS LEADERSHIP: two nodes will act at once; for experiments only", "for", n.opt.unsafeLinger)
	}
}
