package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"baton"
	"baton/internal/storecall"
)

// Config says where Redis is. Addresses or Client is required.
type Config struct {
	// Addresses is where Redis listens, "host:6379": one server, or, if Cluster
	// is set, some of a Redis Cluster, which tell of the others.
	Addresses []string
	Cluster   bool
	// TLS encrypts the connections, and authenticates them if it has certificates.
	TLS *tls.Config
	// Username and Password are for a Redis with authentication; a password
	// alone is that of the default user.
	Username, Password string
	// DB is the number of the database. A cluster has none but 0.
	DB int
	// Client is used instead of one made from the fields above. Close leaves it open.
	Client redis.UniversalClient
	// Prefix is put before all keys; "baton" if empty. Stores with different
	// prefixes know nothing of each other.
	Prefix string
	// Timeout bounds every call that does not wait by its nature; 5 seconds if 0.
	Timeout time.Duration
}

const (
	// DefaultPrefix is before all keys unless Config says otherwise.
	DefaultPrefix  = "baton"
	defaultTimeout = 5 * time.Second
)

// Store implements baton.Store, Line, Ender, Historian and Registry.
type Store struct {
	rdb        redis.UniversalClient
	owned      bool
	keys       keys
	calls      *storecall.Calls
	guarantees baton.Guarantees
	hub        *hub
}

var (
	_ baton.Store     = (*Store)(nil)
	_ baton.Line      = (*Store)(nil)
	_ baton.Ender     = (*Store)(nil)
	_ baton.Historian = (*Store)(nil)
	_ baton.Registry  = (*Store)(nil)
)

// New makes a store. It asks Redis who it is and how it is set up, and waits
// for the answers no longer than the timeout.
func New(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Prefix == "" {
		cfg.Prefix = DefaultPrefix
	}
	s := &Store{rdb: cfg.Client, keys: keys(cfg.Prefix), calls: storecall.New(cfg.Timeout, errTimeout, kindOf)}
	if s.rdb == nil {
		s.rdb, s.owned = cfg.connect(), true
	}
	s.hub = newHub(s.rdb)
	found, err := s.survey(ctx)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.guarantees = found.guarantees()
	return s, nil
}

func (c Config) check() error {
	switch {
	case c.Client == nil && len(c.Addresses) == 0:
		return &baton.InvalidArgumentError{Field: "Addresses", Value: "", Want: "the address of a Redis server"}
	case c.Client == nil && len(c.Addresses) > 1 && !c.Cluster:
		return &baton.InvalidArgumentError{Field: "Addresses", Value: strings.Join(c.Addresses, ","), Want: "one, unless it is a cluster"}
	case c.Cluster && c.DB != 0:
		return &baton.InvalidArgumentError{Field: "DB", Value: c.DB, Want: "0, which is all that a cluster has"}
	case c.DB < 0:
		return &baton.InvalidArgumentError{Field: "DB", Value: c.DB, Want: "0 or more"}
	case c.Timeout < 0:
		return &baton.InvalidArgumentError{Field: "Timeout", Value: c.Timeout, Want: "0 or more"}
	case c.Prefix != "":
		return baton.ValidateID("Prefix", c.Prefix) // a brace in it would move keys to other slots
	}
	return nil
}

// connect makes a client that repeats nothing by itself, but for that of a
// cluster, which asks another master: whoever called knows better whether it is worth it.
func (c Config) connect() redis.UniversalClient {
	o := &redis.UniversalOptions{
		Addrs: c.Addresses, IsClusterMode: c.Cluster, TLSConfig: c.TLS, Username: c.Username, Password: c.Password, DB: c.DB,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: c.Timeout, ReadTimeout: c.Timeout, WriteTimeout: c.Timeout, PoolTimeout: c.Timeout,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	return redis.NewUniversalClient(o)
}

// Guarantees says what this Redis can promise, as it was set up when the store was opened.
func (s *Store) Guarantees() baton.Guarantees {
	g := s.guarantees
	g.Caveats = slices.Clone(g.Caveats)
	return g
}

// Close ends watches and waits. Leases stay as they are; a place in line is
// kept for as long as it would be if the process had died.
func (s *Store) Close() error {
	var err error
	if first := s.calls.End(); first {
		err = s.hub.close()
		if s.owned {
			err = errors.Join(err, s.rdb.Close())
		}
	}
	s.calls.Wait() // for requests that were left behind; most ended with their connection
	if err != nil {
		return fmt.Errorf("close the connections to redis: %w", err)
	}
	return nil
}

// keys is the prefix, and knows what lies below it. What is in braces decides
// the hash slot, so all keys of a group are in one.
//
//	PREFIX:{GROUP}:record   who leads, and who led last: a hash
//	PREFIX:{GROUP}:term     the last term, and other numbers that never fall; it outlives the group: a hash
//	PREFIX:{GROUP}:past     the terms that ended, the last one first: a list of JSON
//	PREFIX:{GROUP}:line     who waits, by when they came: a sorted set
//	PREFIX:{GROUP}:signs    who waits, by their last sign of life: a sorted set
//	PREFIX:{GROUP}:policy   what is registered: a hash
//	PREFIX:groups           all groups that ever were: a set
type keys string

func (k keys) of(group, what string) string { return string(k) + ":{" + group + "}:" + what }

// group lists the keys of a group as the scripts want them.
func (k keys) group(group string) []string {
	return []string{
		k.record(group), k.of(group, "term"), k.of(group, "past"), k.of(group, "line"), k.of(group, "signs"), k.policy(group),
	}
}

func (k keys) record(group string) string { return k.of(group, "record") }
func (k keys) policy(group string) string { return k.of(group, "policy") }
func (k keys) groups() string             { return string(k) + ":groups" }

// channel is where changes of a group are told.
func (k keys) channel(group string) string { return k.record(group) }
