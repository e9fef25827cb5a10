package zkstore

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"baton"
	"baton/internal/observed"
)

// Config says where ZooKeeper is. Servers is required.
type Config struct {
	// Servers are addresses, "host:2181". With more than one the store goes on
	// at another when the one that it uses fails.
	Servers []string
	// Username and Password are a digest. With them all znodes that the store makes are for this user only.
	Username, Password string
	// Prefix is the znode that all others are below; "/baton" if empty. Stores
	// with different prefixes know nothing of each other, provided that none is below another.
	Prefix string
	// Timeout bounds every call that does not wait by its nature; 5 seconds if 0.
	Timeout time.Duration
	// Session is how long a place in line outlives the process that took it;
	// 6 seconds if 0. ZooKeeper allows 2 to 20 of its ticks. Leases do not depend on it.
	Session time.Duration
	// Clock judges leases; baton.SystemClock if nil.
	Clock baton.Clock

	heard zk.EventCallback // is told of all that the connection hears
}

const (
	// DefaultPrefix is what all znodes are below unless Config says otherwise.
	DefaultPrefix  = "/baton"
	defaultSession = 6 * time.Second
)

var guarantees = baton.Guarantees{
	Store:          "zookeeper",
	MinTTL:         500 * time.Millisecond,
	MaxTTL:         baton.MaxTTL,
	TTLStep:        time.Millisecond,
	ExpiryLag:      time.Second,
	Time:           baton.TimeObserved,
	QuorumRenewals: true,
	DurableTerms:   true,
	FailoverTerms:  true,
	DeletionTerms:  true,
	Extends:        true,
	Waiting:        baton.WaitLine,
	Transfers:      true,
	Caveats: []string{
		"a lease whose holder died lasts for another TTL, counted from when somebody first looks, if nobody watched the group or waited in line before",
		"when the process of the first in line dies together with the holder, the next one learns of it after ZooKeeper's session timeout, and counts a TTL from then",
		"clocks may differ by any offset, but a holder's clock that is slower than another's by more than its margin breaks the lease",
		"a ZooKeeper that is restored from a backup repeats terms unless the floor is raised above all of them first",
	},
}

func init() {
	baton.RegisterStore(baton.StoreKind{
		Name:       "zookeeper",
		Schemes:    []string{"zookeeper"},
		Form:       "zookeeper://user:password@host:2181,host:2181/prefix",
		Guarantees: guarantees,
		Open: func(ctx context.Context, url string) (baton.Store, error) {
			s, err := Open(ctx, url)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
	})
}

// Store implements baton.Store, Line, Ender, Historian and Registry.
type Store struct {
	*client
	leases  *observed.Leases
	keepers keepers
	once    sync.Once
}

var (
	_ baton.Store     = (*Store)(nil)
	_ baton.Line      = (*Store)(nil)
	_ baton.Ender     = (*Store)(nil)
	_ baton.Historian = (*Store)(nil)
	_ baton.Registry  = (*Store)(nil)
)

// New connects to ZooKeeper, makes the znodes that all others are below if they
// are not there, and looks whether the server is young enough and the user known
// to it. ctx bounds that, and so does the timeout.
func New(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("open zookeeper store: %w", err)
	}
	c, err := connect(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open zookeeper store: %w", err)
	}
	s := &Store{client: c}
	s.leases = observed.New(observed.Config{
		Register: register{c}, Guarantees: guarantees, Clock: cfg.Clock, Timeout: cfg.Timeout, Turn: s.turnLeft,
	})
	return s, nil
}

func (c *Config) complete() error {
	if len(c.Servers) == 0 {
		return &baton.InvalidArgumentError{Field: "Servers", Value: "", Want: "the address of a ZooKeeper server"}
	}
	if c.Timeout < 0 || c.Session < 0 {
		return &baton.InvalidArgumentError{Field: "Timeout", Value: min(c.Timeout, c.Session), Want: "0 or more"}
	}
	if c.Timeout == 0 {
		c.Timeout = observed.DefaultTimeout
	}
	if c.Session == 0 {
		c.Session = defaultSession
	}
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	c.Servers = slices.Clone(c.Servers)
	return checkPrefix(c.Prefix)
}

// Guarantees says what ZooKeeper can promise.
func (s *Store) Guarantees() baton.Guarantees {
	g := guarantees
	g.Caveats = slices.Clone(g.Caveats)
	return g
}

// Close ends watches and waits, and with the session the places in line. Leases stay as they are.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.leases.Close()
		s.keepers.close()
		s.close()
	})
	return nil
}

// Acquire grants a vacant group. For a second after it became vacant, whoever
// is not the first in line is answered *baton.HeldError with the vacant state.
func (s *Store) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	l, err := s.leases.Acquire(ctx, group, c, ttl)
	if err == nil {
		s.keepers.dismiss(group, c)
	}
	return l, err
}

// Renew lets exactly this leadership last for its whole TTL from now, whatever
// less was asked for, unless it is being ended.
func (s *Store) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	return s.leases.Renew(ctx, id, extend)
}

// Release ends exactly this leadership.
func (s *Store) Release(ctx context.Context, id baton.LeaseID) error {
	return s.leases.Release(ctx, id)
}

// Get reads the group.
func (s *Store) Get(ctx context.Context, group string) (baton.Lease, error) {
	return s.leases.Get(ctx, group)
}

// Watch yields the state of the group, or what came after the cursor, then every change.
func (s *Store) Watch(ctx context.Context, group string, after baton.Cursor) iter.Seq2[baton.Event, error] {
	return s.leases.Watch(ctx, group, after)
}

// History returns the last terms of a group, oldest first.
func (s *Store) History(ctx context.Context, group string) ([]baton.PastTerm, error) {
	return s.leases.History(ctx, group)
}
