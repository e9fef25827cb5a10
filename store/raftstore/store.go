package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"baton"
	"baton/internal/feed"
	"baton/internal/leasefsm"
	"baton/internal/raftnode"
)

var errClosed = errors.New("the store is closed")

var guarantees = baton.Guarantees{
	Store:          "raft",
	MinTTL:         100 * time.Millisecond,
	MaxTTL:         baton.MaxTTL,
	TTLStep:        time.Nanosecond,
	ExpiryLag:      100 * time.Millisecond,
	Time:           baton.TimeMonotonic,
	QuorumRenewals: true,
	DurableTerms:   true,
	FailoverTerms:  true,
	DeletionTerms:  true,
	Extends:        true,
	Waiting:        baton.WaitLine,
	Transfers:      true,
	Caveats: []string{
		"when the raft leader changes, every lease is given its full TTL anew: a leader that died just before is replaced later than otherwise",
	},
}

// Store is one server of the cluster. It implements baton.Store, Line, Ender,
// Historian and Registry.
type Store struct {
	cfg       Config
	clock     baton.Clock
	log       *slog.Logger
	raft      *raft.Raft
	peers     peers
	admission *raftnode.Admission
	identity  raftnode.Identity
	disk      *disk
	snapshots *snapshots
	metrics   *metrics
	attends   *raftnode.Attendance
	feed      *feed.Feed
	kicks     chan struct{}
	saves     chan struct{} // there is enough for a snapshot

	closing  context.Context
	close    context.CancelFunc
	owned    sync.WaitGroup
	teardown []func() error // in reverse order, by Close

	mu       sync.Mutex
	record   *leasefsm.Record
	cluster  string        // the name of the cluster; empty before its first entry
	applied  uint64        // index of the last entry applied here
	written  uint64        // registrations that were changed through this server are in the state from here on
	recency  recency       // of this server's copy
	found    uint64        // the last entry that was in the log when this server was started
	unsaved  uint64        // bytes in entries that were applied since the last snapshot was begun
	progress chan struct{} // closed when applied moves
	reign    *reign        // nil unless this server leads the cluster and is ready to
	changed  chan struct{} // closed when reign changes
	follows  followed
	// held: restored from a backup, this server grants nothing until then.
	held      bool
	heldUntil time.Duration
	stopHold  func() bool
}

var (
	_ baton.Store     = (*Store)(nil)
	_ baton.Line      = (*Store)(nil)
	_ baton.Ender     = (*Store)(nil)
	_ baton.Historian = (*Store)(nil)
	_ baton.Registry  = (*Store)(nil)
)

// parts are what a server is built from: files and sockets, or their likes in memory.
type parts struct {
	logs      raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore
	transport raftnode.Transport
	peers     peers
	admission *raftnode.Admission
	// bootstrap is the configuration that the cluster begins with; empty if it
	// has begun already, or is begun by others.
	bootstrap []raft.Server
	// restored: the state is that of a backup. Nil if it is not, or has been used since.
	restored *restored
}

// peers is how servers talk to each other, beside raft.
type peers interface {
	// term asks for a server's raft term. The answer is to this very question.
	term(ctx context.Context, to raftnode.Addressee) (uint64, error)
	// call passes a request on to the leader.
	call(ctx context.Context, to raftnode.Addressee, q request) (response, error)
}

// start makes a server of its parts. It owns none of them.
func start(cfg Config, p parts) (*Store, error) {
	s := &Store{
		cfg: cfg, clock: cfg.Clock, log: cfg.Logger.With("server", cfg.ID),
		peers: p.peers, admission: p.admission, metrics: newMetrics(),
		feed:   feed.New(feed.Config{Store: "no cluster yet"}),
		kicks:  make(chan struct{}, 1),
		saves:  make(chan struct{}, 1),
		record: leasefsm.NewRecord(), progress: make(chan struct{}), changed: make(chan struct{}),
	}
	s.closing, s.close = context.WithCancel(context.Background())
	s.attends = raftnode.NewAttendance(s.log, "server", 3*cfg.ElectionTimeout)
	config := cfg.raft(s.log)
	transport := raftnode.Attended{Transport: p.transport, By: s.attends}
	if len(p.bootstrap) > 0 {
		err := raft.BootstrapCluster(config, p.logs, p.stable, p.snapshots, transport, raft.Configuration{Servers: p.bootstrap})
		if err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
			return nil, fmt.Errorf("begin the cluster: %w", err)
		}
	}
	if p.restored != nil {
		s.hold(*p.restored)
	}
	r, err := raft.NewRaft(config, machine{s}, p.logs, p.stable, p.snapshots, transport)
	if err != nil {
		s.endHold()
		return nil, fmt.Errorf("start raft: %w", err)
	}
	s.raft = r
	s.mu.Lock()
	s.found = r.LastIndex()
	s.mu.Unlock()
	s.owned.Go(s.watchRaft)
	s.owned.Go(s.save)
	return s, nil
}

// raft translates the timing. Heartbeats and elections share one timeout; a
// leader that hears of no majority gives up in half of it.
func (c Config) raft(log *slog.Logger) *raft.Config {
	config := raft.DefaultConfig()
	config.LocalID = raft.ServerID(c.ID)
	config.HeartbeatTimeout = c.ElectionTimeout
	config.ElectionTimeout = c.ElectionTimeout
	config.LeaderLeaseTimeout = c.ElectionTimeout / 2
	config.CommitTimeout = min(20*time.Millisecond, c.ElectionTimeout/10)
	config.MaxAppendEntries = 512
	config.BatchApplyCh = true
	config.SnapshotThreshold = c.SnapshotEntries
	config.SnapshotInterval = 30 * time.Second
	config.TrailingLogs = min(10240, c.SnapshotEntries)
	config.NoLegacyTelemetry = true
	config.Logger = raftnode.Logger(log)
	return config
}

// Guarantees says what a raft cluster can promise.
func (s *Store) Guarantees() baton.Guarantees {
	g := guarantees
	g.Caveats = slices.Clone(g.Caveats)
	return g
}

// Close hands the cluster's leadership on, if this server has it, and stops.
// Leases stay as they are.
func (s *Store) Close() error {
	if s.closing.Err() != nil {
		return nil
	}
	if s.raft.State() == raft.Leader && s.hasOtherVoters() {
		// Better than letting the others find out. If it fails they will.
		if err := s.raft.LeadershipTransfer().Error(); err != nil {
			s.log.Info("leadership of the cluster not handed on", "err", err)
		}
	}
	return s.stop()
}

func (s *Store) stop() error {
	s.close()
	s.endHold()
	s.feed.Close()
	// First, while raft lives: it leaves what it has taken and not begun
	// without an answer when it is shut down.
	s.owned.Wait()
	errs := []error{s.raft.Shutdown().Error()}
	for _, f := range slices.Backward(s.teardown) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

func (s *Store) hasOtherVoters() bool {
	config, err := s.configuration()
	return err == nil && slices.ContainsFunc(config.Servers, func(v raft.Server) bool {
		return v.ID != s.id() && v.Suffrage == raft.Voter
	})
}

func (s *Store) id() raft.ServerID { return raft.ServerID(s.cfg.ID) }

func (s *Store) leads(term uint64) bool {
	// Whoever asks has led in this term before, and terms only rise. So if the
	// state is read first, and the term is still this one after that, the
	// leadership was one of this term.
	return s.raft.State() == raft.Leader && s.raft.CurrentTerm() == term
}

// configuration is the latest one, committed or not. Raft does not tell its
// index here: whoever wants to know whether it changed compares it.
func (s *Store) configuration() (raft.Configuration, error) {
	f := s.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return raft.Configuration{}, fmt.Errorf("raft: %w", err)
	}
	return f.Configuration(), nil
}

func (s *Store) termOf(ctx context.Context, server raft.Server) (uint64, error) {
	return s.peers.term(ctx, s.addressee(server))
}

func (s *Store) addressee(server raft.Server) raftnode.Addressee {
	s.mu.Lock()
	cluster := s.cluster
	s.mu.Unlock()
	return raftnode.Addressee{ID: string(server.ID), Mark: s.admission.MarkOf(string(server.ID)), Cluster: cluster, Address: string(server.Address)}
}

// at is the server at this address, as far as it is known.
func (s *Store) at(address string) (raftnode.Addressee, error) {
	config, err := s.configuration()
	if err != nil {
		return raftnode.Addressee{}, err
	}
	for _, server := range config.Servers {
		if string(server.Address) == address {
			return s.addressee(server), nil
		}
	}
	return s.addressee(raft.Server{Address: raft.ServerAddress(address)}), nil
}
