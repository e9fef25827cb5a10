package pgstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"baton"
	"baton/internal/storecall"
)

// Config says where Postgres is, and how it is used. URL is required.
type Config struct {
	// URL is a connection string as libpq has it, a URL or words. Several hosts
	// may be named: the one that takes writes is used.
	URL string
	// Schema is where the tables are; DefaultSchema if empty. Stores in different schemas know
	// nothing of each other.
	Schema string
	// Timeout bounds every call that does not wait by its nature; 5 seconds if 0.
	Timeout time.Duration
	// MaxConns bounds the connections for calls; 16 if 0, or what pool_max_conns in
	// the URL says. Waits and watches share 2 more, and 1 that listens.
	MaxConns int
}

// DefaultSchema is where the tables are unless Config says otherwise.
const DefaultSchema = "baton"

const (
	defaultTimeout  = 5 * time.Second
	defaultMaxConns = 16
	waitingConns    = 2
)

// guarantees are those of any Postgres; what is asked of the server adds to them.
var guarantees = baton.Guarantees{
	Store:         "postgres",
	MinTTL:        100 * time.Millisecond,
	MaxTTL:        baton.MaxTTL,
	TTLStep:       time.Microsecond,
	Time:          baton.TimeWall,
	DurableTerms:  true,
	DeletionTerms: true,
	Extends:       true,
	Waiting:       baton.WaitLine,
	Transfers:     true,
	Caveats: []string{
		"Postgres' wall clock judges: set forward by a step, it ends leases before their holders know; let it be slewed, and fence the work",
		"a database that is restored from a backup repeats terms unless the floor is raised above all of them first",
	},
}

func init() {
	baton.RegisterStore(baton.StoreKind{
		Name:       "postgres",
		Schemes:    []string{"postgres", "postgresql"},
		Form:       "postgres://user@host:5432/database?baton_schema=baton",
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
	schema     schema
	calls      *storecall.Calls
	pool       *pgxpool.Pool
	waits      *pgxpool.Pool // of those who wait or watch, so that they cannot keep a renewal from a connection
	hints      *hints
	announcer  *announcer
	timeout    time.Duration
	guarantees baton.Guarantees

	once sync.Once
}

var (
	_ baton.Store     = (*Store)(nil)
	_ baton.Line      = (*Store)(nil)
	_ baton.Ender     = (*Store)(nil)
	_ baton.Historian = (*Store)(nil)
	_ baton.Registry  = (*Store)(nil)
)

// New connects to Postgres, installs the schema if it is not there, and asks
// the server what it can promise. ctx bounds that, and so does the timeout.
func New(ctx context.Context, cfg Config) (*Store, error) {
	s, err := cfg.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("open postgres store: %w", err)
	}
	return s, nil
}

func (cfg Config) open(ctx context.Context) (*Store, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	s := &Store{schema: schema(cfg.Schema), timeout: cfg.Timeout, calls: storecall.New(cfg.Timeout, errTimeout, kindOf)}
	pools, err := cfg.connectTo(s.calls.Life())
	if err != nil {
		s.calls.Close()
		return nil, err
	}
	// A pool does not connect before it is used, and lives until it is closed.
	if s.pool, err = pgxpool.NewWithConfig(context.Background(), pools.calls); err != nil {
		s.calls.Close()
		return nil, err
	}
	if s.waits, err = pgxpool.NewWithConfig(context.Background(), pools.waits); err != nil {
		s.calls.Close()
		s.pool.Close()
		return nil, err
	}
	s.hints = newHints(pools.listener, s.schema.channel(), s.timeout)
	s.announcer = newAnnouncer(s.calls.Life(), s.announce)
	if err := s.greet(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// complete fills in what was left out.
func (cfg *Config) complete() error {
	if cfg.Timeout < 0 {
		return &baton.InvalidArgumentError{Field: "Timeout", Value: cfg.Timeout, Want: "0 or more"}
	}
	if cfg.MaxConns < 0 {
		return &baton.InvalidArgumentError{Field: "MaxConns", Value: cfg.MaxConns, Want: "0 or more"}
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Schema == "" {
		cfg.Schema = DefaultSchema
	}
	return validateSchema(cfg.Schema)
}

// greet sees to it that the schema is there, and learns what the server is like.
func (s *Store) greet(outer context.Context) error {
	ctx, cancel := s.calls.Begin(outer)
	defer cancel()
	if err := s.schema.install(ctx, s.pool); err != nil {
		return s.refused(outer, "install the schema", err)
	}
	var standbys, fsync string
	err := s.pool.QueryRow(ctx, `SELECT current_setting('synchronous_standby_names'), current_setting('fsync')`).Scan(&standbys, &fsync)
	if err != nil {
		return s.refused(outer, "look at the server", err)
	}
	s.guarantees = promise(standbys, fsync)
	return nil
}

// promise is what a server with these settings can.
func promise(standbys, fsync string) baton.Guarantees {
	g := guarantees
	g.Caveats = slices.Clone(g.Caveats)
	if standbys == "" {
		g.Caveats = append(g.Caveats, "synchronous_standby_names is empty: a failover to a standby can lose grants and renewals, and repeat terms")
	} else {
		g.FailoverTerms = true
		g.Caveats = append(g.Caveats, "fail over only to a standby that was synchronous: any other can have missed grants and renewals",
			"after a failover the standby's clock judges: one that is ahead ends leases before their holders know")
	}
	if fsync != "on" {
		g.DurableTerms, g.FailoverTerms = false, false
		g.Caveats = append(g.Caveats, "fsync is off: a crash of the machine can lose grants and renewals, and repeat terms")
	}
	return g
}

// Guarantees says what this Postgres can promise, as it was set up when the store was opened.
func (s *Store) Guarantees() baton.Guarantees {
	g := s.guarantees
	g.Caveats = slices.Clone(g.Caveats)
	return g
}

// Close ends watches and waits. Leases stay as they are; a place in line is
// kept for as long as it would be if the process had died.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.calls.Close() // which also cuts the connections, so that nothing below waits for a server
		s.hints.close()
		s.announcer.wait()
		s.waits.Close()
		s.pool.Close()
	})
	return nil
}
