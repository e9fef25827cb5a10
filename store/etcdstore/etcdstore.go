package etcdstore

import (
	"crypto/tls"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"baton"
	"baton/internal/bound"
	"baton/internal/storecall"
)

// Config says where etcd is. Endpoints or Client is required.
type Config struct {
	// Endpoints are addresses of members, "host:2379" or URLs. With more than one
	// the store goes on at another member when the one that it uses fails.
	Endpoints []string
	// TLS encrypts the connections, and authenticates them if it has certificates.
	TLS *tls.Config
	// Username and Password are for an etcd with authentication.
	Username, Password string
	// Client is used instead of one made from the fields above. Close leaves it open.
	Client *clientv3.Client
	// Prefix is put before all keys; "/baton" if empty. Stores with different
	// prefixes know nothing of each other, provided that none is the start of another.
	Prefix string
	// Timeout bounds every call that does not wait by its nature; 5 seconds if 0.
	Timeout time.Duration
	// Clock measures what is left of a lease; baton.SystemClock if nil.
	Clock baton.Clock
}

// DefaultPrefix is before all keys unless Config says otherwise.
const DefaultPrefix = "/baton"

const (
	defaultTimeout = 5 * time.Second
	// grpc-go does not ping more often, and etcd does not suffer it.
	pingEvery, pingTimeout = 10 * time.Second, 3 * time.Second
)

var guarantees = baton.Guarantees{
	Store: "etcd",
	// etcd gives nothing shorter than one and a half election timeouts, which are a second unless configured.
	MinTTL:  2 * time.Second,
	MaxTTL:  baton.MaxTTL,
	TTLStep: time.Second,
	// etcd looks twice a second which leases are over, and ends at most a thousand a second.
	ExpiryLag:      time.Second,
	Time:           baton.TimeMonotonic,
	QuorumRenewals: true,
	DurableTerms:   true,
	FailoverTerms:  true,
	DeletionTerms:  true,
	Waiting:        baton.WaitLine,
	Transfers:      true,
	Caveats: []string{
		"after etcd has changed its leader, a lease that nobody renews lasts for another TTL and election timeout",
		"an etcd that is restored from a backup repeats terms unless the floor key is raised above all of them first",
		"with etcd's lease checkpoints on, a lease of more than 5 minutes may be cut short when etcd changes its leader",
	},
}

// Store implements baton.Store, Line, Ender, Historian and Registry.
type Store struct {
	members *members
	owned   bool
	keys    keys
	clock   baton.Clock
	timeout time.Duration
	calls   *storecall.Calls

	keepAlives keepAlives
}

var (
	_ baton.Store     = (*Store)(nil)
	_ baton.Line      = (*Store)(nil)
	_ baton.Ender     = (*Store)(nil)
	_ baton.Historian = (*Store)(nil)
	_ baton.Registry  = (*Store)(nil)
)

// New makes a store. It does not wait for etcd, unless there is a user name:
// then a wrong password is an error here.
func New(cfg Config) (*Store, error) {
	if cfg.Client == nil && len(cfg.Endpoints) == 0 {
		return nil, &baton.InvalidArgumentError{Field: "Endpoints", Value: "", Want: "the address of an etcd member"}
	}
	if cfg.Timeout < 0 {
		return nil, &baton.InvalidArgumentError{Field: "Timeout", Value: cfg.Timeout, Want: "0 or more"}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Clock == nil {
		cfg.Clock = baton.SystemClock()
	}
	if cfg.Prefix == "" {
		cfg.Prefix = DefaultPrefix
	}
	s := &Store{keys: keys{bound.Keys("/" + strings.Trim(cfg.Prefix, "/"))}, clock: cfg.Clock, timeout: cfg.Timeout}
	if cfg.Client != nil {
		s.members = given(cfg.Client)
	} else {
		var err error
		if s.members, err = connectTo(slices.Clone(cfg.Endpoints), cfg.connect); err != nil {
			return nil, kindOf("open etcd store", err)
		}
		s.owned = true
	}
	s.calls = storecall.New(cfg.Timeout, errTimeout, kindOf)
	return s, nil
}

// connect makes a client for one member.
func (c Config) connect(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, TLS: c.TLS, Username: c.Username, Password: c.Password,
		DialTimeout: c.Timeout / 5, DialKeepAliveTime: pingEvery, DialKeepAliveTimeout: pingTimeout, PermitWithoutStream: true,
		// What fails is told to whoever called.
		Logger: zap.NewNop(),
	})
}

// Guarantees says what etcd can promise.
func (s *Store) Guarantees() baton.Guarantees {
	g := guarantees
	g.Caveats = slices.Clone(g.Caveats)
	return g
}

// Close ends watches and waits. Leases stay as they are; a place in line is
// kept for as long as it would be if the process had died.
func (s *Store) Close() error {
	first := s.calls.Close()
	s.keepAlives.close()
	if !first || !s.owned {
		return nil
	}
	if err := s.members.close(); err != nil {
		return fmt.Errorf("close the connections to etcd: %w", err)
	}
	return nil
}

// keys has, besides those of all stores of its kind,
//
//	leases/GROUP/record  who leads, or who led last: JSON
//	leases/GROUP/bound   the term, bound to the holder's etcd lease
type keys struct{ bound.Keys }

func (k keys) lease(group string) string  { return string(k.Keys) + "/leases/" + group + "/" }
func (k keys) record(group string) string { return k.lease(group) + "record" }
func (k keys) bound(group string) string  { return k.lease(group) + "bound" }

// in tells these keys in one etcd cluster from all others, for cursors.
func (k keys) in(cluster uint64) uint64 {
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%x %s", cluster, string(k.Keys))
	return hash.Sum64()
}
