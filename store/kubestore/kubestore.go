package kubestore

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"baton"
	"baton/internal/observed"
)

// Config says where Kubernetes is. REST is required.
type Config struct {
	// REST is how the API server is reached. It is not changed. Its limits of
	// requests per second do not count: renewals must not wait behind anything.
	REST *rest.Config
	// Namespace is where all objects are; "default" if empty. Stores in
	// different namespaces know nothing of each other.
	Namespace string
	// Timeout bounds every call that does not wait by its nature; 5 seconds if 0.
	Timeout time.Duration
	// Clock judges leases; baton.SystemClock if nil.
	Clock baton.Clock
}

var guarantees = baton.Guarantees{
	Store:          "kubernetes",
	MinTTL:         2 * time.Second,
	MaxTTL:         baton.MaxTTL,
	TTLStep:        time.Second,
	ExpiryLag:      time.Second,
	Time:           baton.TimeObserved,
	QuorumRenewals: true,
	DurableTerms:   true,
	FailoverTerms:  true,
	DeletionTerms:  true,
	Waiting:        baton.WaitWatch,
	Transfers:      true,
	Caveats: []string{
		"a lease that nobody watches may outlast its end by up to its TTL: whoever looks first counts from then",
		"leaderships of client-go's candidates on the same Lease have no term: only what Baton grants is fenced",
		"a candidate of client-go's with ReleaseOnCancel may clear a Lease that it no longer holds, and another one take it at once: do not let them share Leases",
		"a Lease that is deleted while it is held is open to client-go's candidates at once; Baton waits until the holder's time is over",
		"a cluster that is restored from a backup of etcd repeats terms unless the floor is raised above all of them first",
	},
}

// Store implements baton.Store, Ender, Historian and Registry.
type Store struct {
	leases   *observed.Leases
	register *register
	client   *http.Client
}

var (
	_ baton.Store     = (*Store)(nil)
	_ baton.Ender     = (*Store)(nil)
	_ baton.Historian = (*Store)(nil)
	_ baton.Registry  = (*Store)(nil)
)

// New makes a store. It asks the API server nothing.
func New(cfg Config) (*Store, error) {
	if cfg.REST == nil {
		return nil, &baton.InvalidArgumentError{Field: "REST", Value: "nil", Want: "how the API server is reached"}
	}
	if cfg.Timeout < 0 {
		return nil, &baton.InvalidArgumentError{Field: "Timeout", Value: cfg.Timeout, Want: "0 or more"}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = observed.DefaultTimeout
	}
	if cfg.Namespace == "" {
		cfg.Namespace = "default"
	}
	api := tuned(cfg.REST)
	client, err := rest.HTTPClientFor(api)
	if err != nil {
		return nil, fmt.Errorf("open kubernetes store: %w", err)
	}
	leases, err := coordination.NewForConfigAndClient(api, client)
	if err != nil {
		return nil, fmt.Errorf("open kubernetes store: %w", err)
	}
	objects, err := core.NewForConfigAndClient(api, client)
	if err != nil {
		return nil, fmt.Errorf("open kubernetes store: %w", err)
	}
	names, err := metadata.NewForConfigAndClient(metadata.ConfigFor(api), client)
	if err != nil {
		return nil, fmt.Errorf("open kubernetes store: %w", err)
	}
	r := &register{
		api:   requests{perRequest: cfg.Timeout / 3},
		lease: leases.Leases(cfg.Namespace), maps: objects.ConfigMaps(cfg.Namespace),
		names:  names.Resource(configMaps).Namespace(cfg.Namespace),
		server: leases.RESTClient(),
	}
	r.stream = newStream(r.lease)
	return &Store{
		register: r,
		client:   client,
		leases: observed.New(observed.Config{
			Register: r, Guarantees: guarantees, Clock: cfg.Clock, Timeout: cfg.Timeout, Turn: turn,
		}),
	}, nil
}

// tuned is how requests are sent, whatever else was configured.
func tuned(given *rest.Config) *rest.Config {
	api := rest.CopyConfig(given)
	api.QPS, api.RateLimiter = -1, nil
	api.Timeout = 0 // every request has a deadline of its own, and watches have none
	api.UserAgent = "baton"
	api.ContentType = "application/vnd.kubernetes.protobuf"
	api.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	api.WarningHandler = rest.NoWarnings{}
	// With HTTP/2 all requests share a connection, and one that has silently
	// died takes all of them with it until a ping finds out, most of a minute
	// later. With HTTP/1.1 a request that gets no answer gives its connection up.
	api.NextProtos = []string{"http/1.1"}
	api.Wrap(func(next http.RoundTripper) http.RoundTripper { return writeOnce{next} })
	return api
}

// Acquire grants a vacant group.
func (s *Store) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	return s.leases.Acquire(ctx, group, c, ttl)
}

// Renew lets exactly this leadership last for its whole TTL from now.
func (s *Store) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	return s.leases.Renew(ctx, id, extend)
}

// Release ends exactly this leadership.
func (s *Store) Release(ctx context.Context, id baton.LeaseID) error {
	return s.leases.Release(ctx, id)
}

// End ends the leadership of exactly this term, or begins to. For a second after
// that other candidates of Baton's leave the group to the successor.
func (s *Store) End(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	return s.leases.End(ctx, group, term, e, nil)
}

// Get reads the group.
func (s *Store) Get(ctx context.Context, group string) (baton.Lease, error) {
	return s.leases.Get(ctx, group)
}

// Watch yields the state of the group, or what came after the cursor, then every change.
func (s *Store) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	return s.leases.Watch(ctx, group, after)
}

// History returns the last terms of a group, oldest first. Leaderships of
// others are among them, with term 0, if Baton saw them run out.
func (s *Store) History(ctx context.Context, group string) ([]baton.PastTerm, error) {
	return s.leases.History(ctx, group)
}

// Guarantees says what Kubernetes can promise.
func (s *Store) Guarantees() baton.Guarantees {
	g := guarantees
	g.Caveats = slices.Clone(g.Caveats)
	return g
}

// Close ends watches. Leases stay as they are.
func (s *Store) Close() error {
	s.leases.Close()
	s.register.stream.close()
	utilnet.CloseIdleConnectionsFor(s.client.Transport)
	return nil
}

// turnLasts is how long a vacant group is left to a named successor. It compares
// wall clocks, and nothing rests on it.
const turnLasts = time.Second

func turn(_ context.Context, _ string, vacant observed.Record, c baton.Candidate) (time.Duration, error) {
	if vacant.Successor == "" || vacant.Successor == c.NodeID || vacant.Last == nil {
		return 0, nil
	}
	since := time.Since(time.UnixMilli(vacant.Last.Ended))
	return min(turnLasts-since, turnLasts), nil
}
