package consulstore

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"baton"
	"baton/internal/bound"
	"baton/internal/storecall"
)

// Config says where Consul is. Address is required.
type Config struct {
	// Address is that of an agent, "host:8500". The agent finds the servers.
	Address string
	// TLS encrypts the connections, and authenticates them if it has certificates.
	TLS *tls.Config
	// Token is for a Consul with access control. If it is empty, what
	// CONSUL_HTTP_TOKEN or CONSUL_HTTP_TOKEN_FILE say is used, as Consul's own command does.
	Token string
	// Datacenter is where the leases are; that of the agent if empty.
	Datacenter string
	// Prefix is put before all keys; "baton" if empty. Stores with different
	// prefixes know nothing of each other, provided that none is the start of another.
	Prefix string
	// Node is the catalog node that the sessions belong to; "baton" if empty. It
	// is registered if it is missing, and stands for no machine, so that no
	// machine takes leases along when it leaves Consul.
	Node string
	// Timeout bounds every call that does not wait by its nature; 5 seconds if 0.
	Timeout time.Duration
	// Clock measures what is left of a lease; baton.SystemClock if nil.
	Clock baton.Clock
	// Transport carries the requests instead of one made from TLS.
	Transport http.RoundTripper
}

// DefaultPrefix and DefaultNode are used unless Config says otherwise.
const (
	DefaultPrefix = "baton"
	DefaultNode   = "baton"
)

const defaultTimeout = 5 * time.Second

var guarantees = baton.Guarantees{
	Store:   "consul",
	MinTTL:  10 * time.Second,
	MaxTTL:  baton.MaxTTL,
	TTLStep: time.Second,
	// Consul ends a session after twice its TTL. This is for the longest lease.
	ExpiryLag:      baton.MaxTTL,
	Time:           baton.TimeMonotonic,
	QuorumRenewals: true,
	DurableTerms:   true,
	FailoverTerms:  true,
	DeletionTerms:  true,
	Extends:        true,
	Waiting:        baton.WaitLine,
	Transfers:      true,
	Caveats: []string{
		"a lease that nobody renews opens the group after twice its TTL, and two TTLs after Consul has changed its leader",
		"every read of a group is a commit in Consul; who may not write reads what may be out of date when a server of Consul was frozen",
		"who destroys Consul sessions, or deregisters the node that they belong to, opens groups whose leaders still work",
		"a Consul that is restored from a snapshot repeats terms unless the floor key is raised above all of them first",
	},
}

// Store implements baton.Store, Line, Ender, Historian and Registry.
type Store struct {
	consul  *api.Client
	keys    keys
	node    string
	clock   baton.Clock
	timeout time.Duration
	calls   *storecall.Calls
	close   func()

	blocking chan struct{} // holds one for each request that Consul holds open

	mu       sync.Mutex
	identity string           // what the id key says; empty until it was read
	sights   map[string]sight // by group
}

var (
	_ baton.Store     = (*Store)(nil)
	_ baton.Line      = (*Store)(nil)
	_ baton.Ender     = (*Store)(nil)
	_ baton.Historian = (*Store)(nil)
	_ baton.Registry  = (*Store)(nil)
)

// New makes a store. It asks Consul which version it is and whether the token
// may read, and waits for the answers no longer than the timeout.
func New(ctx context.Context, cfg Config) (*Store, error) {
	switch {
	case cfg.Address == "":
		return nil, &baton.InvalidArgumentError{Field: "Address", Value: "", Want: "the address of a Consul agent"}
	case cfg.Timeout < 0:
		return nil, &baton.InvalidArgumentError{Field: "Timeout", Value: cfg.Timeout, Want: "0 or more"}
	case cfg.Timeout == 0:
		cfg.Timeout = defaultTimeout
	}
	if cfg.Clock == nil {
		cfg.Clock = baton.SystemClock()
	}
	s := &Store{
		keys: prefix(cfg.Prefix), node: orDefault(cfg.Node, DefaultNode),
		clock: cfg.Clock, timeout: cfg.Timeout,
		blocking: make(chan struct{}, maxBlocking), sights: map[string]sight{},
	}
	if err := s.connect(cfg); err != nil {
		return nil, fmt.Errorf("open consul store: %w", err)
	}
	s.calls = storecall.New(cfg.Timeout, errTimeout, kindOf)
	if err := s.survey(ctx); err != nil {
		_ = s.Close() // which does not fail
		return nil, err
	}
	return s, nil
}

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

func (s *Store) connect(cfg Config) (err error) {
	scheme := "http"
	if cfg.TLS != nil {
		scheme = "https"
	}
	carrier := cfg.Transport
	s.close = func() {}
	if carrier == nil {
		own := &http.Transport{
			DialContext:         (&net.Dialer{Timeout: cfg.Timeout / 2}).DialContext,
			TLSClientConfig:     cfg.TLS,
			TLSHandshakeTimeout: cfg.Timeout / 2,
			ForceAttemptHTTP2:   true,
			MaxConnsPerHost:     maxConnections,
			MaxIdleConnsPerHost: maxConnections,
			IdleConnTimeout:     time.Minute,
		}
		carrier, s.close = own, own.CloseIdleConnections
	}
	s.consul, err = api.NewClient(&api.Config{
		Address: cfg.Address, Scheme: scheme, Token: cfg.Token, Datacenter: cfg.Datacenter,
		HttpClient: &http.Client{Transport: refusals{carrier}},
	})
	return err
}

// Guarantees says what Consul can promise.
func (s *Store) Guarantees() baton.Guarantees {
	g := guarantees
	g.Caveats = slices.Clone(g.Caveats)
	return g
}

// Close ends watches and waits. Leases stay as they are; a place in line is
// kept for as long as it would be if the process had died.
func (s *Store) Close() error {
	s.calls.Close()
	s.close()
	return nil
}

// keys has, besides those of all stores of its kind,
//
//	leases/GROUP  who leads, or who led last: JSON; locked by the holder's session
//	id            tells these keys from those of all other stores
type keys struct{ bound.Keys }

// prefix writes a prefix as it is in a URL, where some of our requests have it.
func prefix(p string) keys {
	return keys{bound.Keys(orDefault(strings.TrimPrefix(path.Clean("/"+p), "/"), DefaultPrefix))}
}

func (k keys) lease(group string) string { return string(k.Keys) + "/leases/" + group }
func (k keys) id() string                { return string(k.Keys) + "/id" }

// nothing is never written. To delete it is a write that changes nothing.
func (k keys) nothing() string { return string(k.Keys) + "/nothing" }
