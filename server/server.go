// Package server is the election service: it puts policies, waiting, members,
// metrics and an operator's log around any [baton.Store], for the doors (HTTP,
// gRPC) to open to the world.
//
// It judges nothing. Who leads, in which term and for how long is the store's
// word, passed on as it was given; several servers on one store therefore
// agree. What a server knows by itself is only what it has seen: members, and, at a
// store that has no waiting line, the line of those who wait at this server.
//
// No call hangs: every question to the store has a time limit, and one that
// was not answered is baton.ErrUnavailable, which says that the outcome is unknown.
package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"baton"
)

// Config is what a service can be told. The zero value is ready to use.
type Config struct {
	// DefaultPolicy holds where a group's registration says nothing: 500 ms to
	// 5 min if zero. It is clipped to what the store can keep.
	DefaultPolicy baton.Policy
	// ExplicitGroups refuses groups that are not registered. The store must be a baton.Registry.
	ExplicitGroups bool
	// StoreTimeout bounds every question to the store; 5 s if zero.
	StoreTimeout time.Duration
	// MaxWait bounds how long one campaign waits in line; 60 s if zero.
	MaxWait time.Duration
	// MaxWaiting bounds how many campaigns wait at once; 10,000 if zero.
	MaxWaiting int
	// PolicyAge is how old a registration may be that a campaign is judged
	// by: the time in which a change made through another server is seen here.
	// 1 s if zero; negative reads it from the store each time.
	PolicyAge time.Duration
	// MaxGroupLabels bounds how many groups get metrics of their own; 100 if zero. The rest share "other".
	MaxGroupLabels int
	// Cluster is the cluster of servers that the store is; nil if it is none.
	Cluster Cluster
	// Logger is where operators read along; slog.Default() if nil.
	Logger *slog.Logger
	// Clock measures waits and ages; the system's if nil.
	Clock baton.Clock
	// Now is the wall clock, for what people read; time.Now if nil.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	setDefault(&c.StoreTimeout, 5*time.Second)
	setDefault(&c.MaxWait, time.Minute)
	setDefault(&c.MaxWaiting, 10_000)
	setDefault(&c.PolicyAge, time.Second)
	setDefault(&c.MaxGroupLabels, 100)
	setDefault(&c.DefaultPolicy.MinTTL, 500*time.Millisecond)
	setDefault(&c.DefaultPolicy.MaxTTL, 5*time.Minute)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Clock == nil {
		c.Clock = baton.SystemClock()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Service answers for one store. All methods may be called at any time, by anyone.
type Service struct {
	cfg   Config
	store baton.Store
	log   *slog.Logger

	// What the store can do besides; nil where it cannot.
	line      baton.Line
	ender     baton.Ender
	historian baton.Historian
	registry  baton.Registry
	recent    recently

	policies  *policies
	roster    *roster
	turns     *turns
	elections *elections
	metrics   *metrics
	own       *ownLine // where the store has no line; line is this one then

	waiting   atomic.Int64
	draining  context.Context
	drain     context.CancelFunc
	closeOnce sync.Once
}

// New returns a service over store, which stays the caller's to close after the service.
func New(store baton.Store, cfg Config) (*Service, error) {
	cfg = cfg.withDefaults()
	s := &Service{cfg: cfg, store: store, log: cfg.Logger}
	s.line, _ = store.(baton.Line)
	s.ender, _ = store.(baton.Ender)
	s.historian, _ = store.(baton.Historian)
	s.registry, _ = store.(baton.Registry)
	s.recent, _ = store.(recently)
	if cfg.ExplicitGroups && s.registry == nil {
		return nil, fmt.Errorf("explicit groups: store %q keeps no registrations", store.Guarantees().Store)
	}
	defaults, err := clipDefault(cfg.DefaultPolicy, store.Guarantees())
	if err != nil {
		return nil, err
	}
	s.policies = newPolicies(defaults, cfg.PolicyAge, cfg.Clock)
	s.roster = newRoster(cfg.Clock, cfg.Now)
	s.turns = newTurns(cfg.Clock)
	s.elections = newElections(cfg.Clock)
	s.metrics = newMetrics(cfg.MaxGroupLabels)
	s.draining, s.drain = context.WithCancel(context.Background())
	if s.line == nil {
		s.own = newOwnLine(store, cfg.Clock, cfg.StoreTimeout, cfg.Logger)
		s.line = s.own
	}
	return s, nil
}

// Guarantees is what the store promises.
func (s *Service) Guarantees() baton.Guarantees { return s.store.Guarantees() }

// Metrics is where the service, and its doors, count.
func (s *Service) Metrics() *prometheus.Registry { return s.metrics.registry }

// Now is the wall clock that stamps for people are read from.
func (s *Service) Now() time.Time { return s.cfg.Now() }

// readyProbe is a group that nobody has: reading it asks the store everything that reading any other does.
const readyProbe = "baton.ready"

// Ready reports whether the store decides.
func (s *Service) Ready(ctx context.Context) error {
	_, err := ask(ctx, s, "read", func(ctx context.Context) (baton.Lease, error) {
		return s.store.Get(ctx, readyProbe)
	})
	return err
}

// Drain ends all waits in line as if their time was over, now and from now on.
func (s *Service) Drain() { s.drain() }

// Close drains, and ends what the service runs by itself. The store stays open.
func (s *Service) Close() {
	s.closeOnce.Do(func() {
		s.drain()
		if s.own != nil {
			s.own.close()
		}
	})
}
