package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"baton"
	"baton/server"
	"baton/server/httpapi"
	"baton/store/raftstore"
)

// shutdownTime is what requests have to finish in when the server ends.
const shutdownTime = 10 * time.Second

// serverFlags are the flags of the server.
type serverFlags struct {
	http           string
	store          string
	explicitGroups bool
	minTTL, maxTTL time.Duration
	minGiven       bool
	maxGiven       bool
	logFormat      string
	logLevel       string
	insecure       bool

	data            string
	peer            string
	peerGiven       bool
	serverID        string
	cluster         string
	join            bool
	electionTimeout time.Duration
}

// raftFlags mean nothing to other stores.
var raftFlags = []string{"cluster", "join", "data", "peer", "server-id", "election-timeout"}

func (a *app) serverCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the election service",
		Long: `Serves the election API over HTTP until Ctrl-C or SIGTERM: then it ends watches
with a hint to reconnect, lets requests finish, and exits. A second signal ends it
at once.

By itself it keeps the leases durably, in the directory --data. Three servers that
name each other with --cluster survive the loss of any one of them; nodes may talk to
any. How to run them, and how to replace one, is in docs/operations.md.

Without authentication it listens on loopback only, unless --insecure is given.`,
		Example: `  baton server
  baton server --server-id s1 --cluster s1=10.0.0.1:7402,s2=10.0.0.2:7402,s3=10.0.0.3:7402 \
    --http :7400 --insecure                    # one of three
  baton server --http 127.0.0.1:8400 --explicit-groups --log-format json
  baton server --http :7400 --insecure         # only in a network you trust
  baton server --store etcd://10.0.0.1:2379,10.0.0.2:2379/baton
  baton server --store postgres://baton@10.0.0.1/app      # several servers may share a store`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			f.peerGiven = c.Flags().Changed("peer")
			f.minGiven, f.maxGiven = c.Flags().Changed("default-min-ttl"), c.Flags().Changed("default-max-ttl")
			if f.store != "raft" {
				for _, flag := range raftFlags {
					if c.Flags().Changed(flag) {
						return usagef("--%s is for --store raft: another store has no use for it", flag)
					}
				}
			}
			return a.serve(c.Context(), f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.http, "http", "127.0.0.1:7400", "address to serve HTTP on; port 0 takes a free one")
	fl.StringVar(&f.store, "store", "raft", "where leases are kept: raft, memory, or a store of yours, such as redis://host:6379 (see \"baton stores\")")
	fl.StringVar(&f.data, "data", "./baton-data", "directory of the raft store")
	fl.StringVar(&f.peer, "peer", "127.0.0.1:7402", "address to listen on for the other servers; if --cluster is given, the one there")
	fl.StringVar(&f.serverID, "server-id", "s1", "name of this server in its cluster")
	fl.StringVar(&f.cluster, "cluster", "", "all servers that begin the cluster, as id=host:7402 with commas; none is a cluster of one")
	fl.BoolVar(&f.join, "join", false, `wait to be added to a cluster by "baton cluster add"`)
	fl.DurationVar(&f.electionTimeout, "election-timeout", 500*time.Millisecond, "how long the leader of the cluster may be silent before another one is elected")
	must(fl.MarkHidden("election-timeout"))
	fl.BoolVar(&f.explicitGroups, "explicit-groups", false, "refuse groups that were not created before")
	fl.DurationVar(&f.minTTL, "default-min-ttl", 500*time.Millisecond, "shortest lease in groups whose policy does not say")
	fl.DurationVar(&f.maxTTL, "default-max-ttl", 5*time.Minute, "longest lease in groups whose policy does not say")
	fl.StringVar(&f.logFormat, "log-format", "text", "how to log: text or json")
	fl.StringVar(&f.logLevel, "log-level", "info", "what to log: debug, info, warn or error")
	fl.BoolVar(&f.insecure, "insecure", false, "listen beyond loopback although nobody is authenticated")
	return cmd
}

func (a *app) serve(ctx context.Context, f serverFlags) error {
	log, err := a.newLogger(f.logFormat, f.logLevel)
	if err != nil {
		return err
	}
	if f.minTTL <= 0 || f.maxTTL < f.minTTL || f.maxTTL > baton.MaxTTL {
		return usagef("--default-min-ttl %v and --default-max-ttl %v: want 0 < min <= max <= %v", f.minTTL, f.maxTTL, baton.MaxTTL)
	}
	if err := checkAddress(ctx, "--http", f.http, f.insecure); err != nil {
		return err
	}
	if err := checkStore(f.store); err != nil {
		return err
	}
	// Before the store is opened: to wait for the others with a port that cannot be had is in vain.
	listener, err := net.Listen("tcp", f.http)
	if err != nil {
		return usagef("serve HTTP on %s: %w", f.http, err)
	}
	door := newDoor(listener, log)
	store, err := openStore(ctx, f, log)
	if err != nil {
		return errors.Join(err, door.close())
	}
	cfg := server.Config{
		DefaultPolicy:  baton.Policy{MinTTL: f.minTTL, MaxTTL: f.maxTTL},
		ExplicitGroups: f.explicitGroups,
		Logger:         log,
	}
	raft, isRaft := store.(*raftstore.Store)
	if isRaft {
		cfg.Cluster = raftCluster{raft}
	}
	service, err := newService(store, cfg, f)
	if err != nil {
		return &usageError{err: errors.Join(err, store.Close(), door.close())}
	}
	if isRaft {
		service.Metrics().MustRegister(raftMetrics{raft})
		if f.cluster == "" && !f.join {
			awaitElection(ctx, raft)
		}
	}
	door.open(httpapi.New(service, httpapi.Config{Logger: log}))
	err = a.serveThrough(ctx, door, service, log, diskFailed(store))
	service.Close()
	if errors.Is(err, errDisk) {
		// Closing would write, and wait for what cannot be written.
		return diskFailure(store)
	}
	if closed := store.Close(); closed != nil {
		log.Warn("the store was not closed as it should be", "err", closed)
	}
	return err
}

// newService refuses bounds that somebody asked for and the store cannot keep.
// Those that nobody asked for are clipped to what it can.
func newService(store baton.Store, cfg server.Config, f serverFlags) (*server.Service, error) {
	g := store.Guarantees()
	for _, b := range []struct {
		flag  string
		value time.Duration
		given bool
	}{{"--default-min-ttl", f.minTTL, f.minGiven}, {"--default-max-ttl", f.maxTTL, f.maxGiven}} {
		if b.given && (b.value < g.MinTTL || b.value > g.MaxTTL) {
			return nil, fmt.Errorf("%s is %v: the %s store keeps leases of %v to %v", b.flag, b.value, g.Store, g.MinTTL, g.MaxTTL)
		}
	}
	return server.New(store, cfg)
}

// errDisk ends a server whose disk failed.
var errDisk = errors.New("the disk failed")

// watchStore asks the store every now and then whether it decides, so that the metric of it is
// right when nobody else asks. It returns with ctx.
func watchStore(ctx context.Context, service *server.Service) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		_ = service.Ready(ctx) // it counts by itself
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// started is what is printed once the server listens.
type started struct {
	URL       string `json:"url"`
	Store     string `json:"store"`
	Dashboard string `json:"dashboard,omitempty"`
}

func (a *app) serveThrough(ctx context.Context, d *door, service *server.Service, log *slog.Logger, failed <-chan struct{}) error {
	s := started{URL: "http://" + d.address.String(), Store: service.Guarantees().Store}
	if hasDashboard(d.handler) {
		s.Dashboard = s.URL + "/ui/"
	}
	var watching sync.WaitGroup
	watched, stop := context.WithCancel(ctx)
	defer watching.Wait()
	defer stop()
	watching.Go(func() { watchStore(watched, service) })

	err := a.print(s, func(w io.Writer) error {
		line := fmt.Sprintf("baton serves %s, leases are kept in the %s store", s.URL, s.Store)
		if s.Dashboard != "" {
			line += ", dashboard at " + s.Dashboard
		}
		_, err := fmt.Fprintln(w, line)
		return err
	})
	if err != nil {
		return errors.Join(err, d.close())
	}
	logCaveats(ctx, log, service.Guarantees())

	select {
	case err := <-d.served:
		return fmt.Errorf("serve HTTP on %s: %w", d.address, err)
	case <-failed:
		return errors.Join(errDisk, d.close())
	case <-ctx.Done():
	}
	log.Info("shutting down: watches and waits end, requests may finish; another signal ends it at once", "within", shutdownTime)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	err = errors.Join(d.handler.Shutdown(bounded), d.server.Shutdown(bounded))
	if err != nil {
		log.Warn("requests were cut off", "err", err)
	}
	log.Info("bye")
	return d.close()
}

// hasDashboard asks the handler itself.
func hasDashboard(h http.Handler) bool {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://localhost/ui/", nil)
	if err != nil {
		return false
	}
	w := &statusOnly{header: http.Header{}}
	h.ServeHTTP(w, req)
	return w.status == http.StatusOK
}

// statusOnly is a ResponseWriter for whoever wants only the status.
type statusOnly struct {
	header http.Header
	status int
}

func (w *statusOnly) Header() http.Header { return w.header }

func (w *statusOnly) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *statusOnly) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return len(b), nil
}

func (a *app) newLogger(format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usagef("--log-level is %q: want debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(a.Stderr, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.Stderr, opts)), nil
	}
	return nil, usagef("--log-format is %q: want text or json", format)
}

// checkAddress refuses addresses that others can reach: nobody is authenticated.
func checkAddress(ctx context.Context, flag, address string, insecure bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return usagef("%s is %q: want an address such as 127.0.0.1:7400", flag, address)
	}
	if insecure {
		return nil
	}
	var ips []net.IP
	if host != "" {
		found, err := net.DefaultResolver.LookupIPAddr(ctx, host)
		if err != nil {
			return usagef("%s is %q: %w", flag, address, err)
		}
		for _, f := range found {
			ips = append(ips, f.IP)
		}
	}
	for _, ip := range ips {
		if !ip.IsLoopback() {
			ips = nil
		}
	}
	if len(ips) == 0 {
		return usagef("%s is %q, which others can reach, and nobody is authenticated: listen on loopback, such as 127.0.0.1, or say --insecure", flag, address)
	}
	return nil
}
