package raftpeer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"time"

	"github.com/hashicorp/raft"

	"baton"
	"baton/internal/raftnode"
)

// Config says which peer this is. Group, NodeID, Peers and Dir must be set;
// everything else has a default.
type Config struct {
	Group  string
	NodeID string
	// Metadata is shown to whoever observes the group.
	Metadata map[string]string
	// Peers are the addresses of all nodes of the group, this one's among them. They are
	// fixed when the group begins, and the same on all nodes.
	Peers map[string]string
	// Via are addresses at which this node reaches other peers, where those are not their own:
	// those of a proxy.
	Via map[string]string
	// Dir holds this peer's votes and log. It must outlive the process.
	Dir string
	// Listen is the address to listen on for the other peers. Default: Peers[NodeID].
	Listen string

	// ElectionTimeout is how long raft's leader may be silent before the
	// others elect a new one. Default 200ms.
	ElectionTimeout time.Duration
	// Lease is how long after its last confirmation a leader that did not say that it has
	// stopped is followed by another. Default twice ElectionTimeout.
	Lease time.Duration
	// RenewEvery is the time between two confirmations. Default Lease/4.
	RenewEvery time.Duration
	// Margin is taken off every confirmation: clocks whose rates differ by less than
	// Margin/Lease do no harm. Default Lease/10.
	Margin time.Duration
	// StopGrace is what the work has to return in, when confirmations fail. Default Lease/10.
	StopGrace time.Duration
	// DrainTimeout is how long a leadership is still confirmed for work that has been
	// asked to stop and has not returned. Default 5s.
	DrainTimeout time.Duration

	// OnOverrun is told when the work has not returned although it can no longer be
	// trusted. Default: an error in the log.
	OnOverrun func(baton.Overrun)
	// Logger receives what an operator wants to know. Default: slog.Default.
	Logger *slog.Logger
	// Clock is what leases count on. Default: baton.SystemClock.
	Clock baton.Clock
	// NewInstanceID names leaderships; no two names may ever be equal. Default: random UUIDs.
	NewInstanceID func() string

	dial  raftnode.Dialer
	trial *trial
}

// DefaultElectionTimeout is for peers on one network, a fraction of a
// millisecond apart: docs/peers.md has the figures it was chosen by.
const DefaultElectionTimeout = 200 * time.Millisecond

const maxPeers = 9

// DefaultLease is the lease that belongs to an election timeout.
func DefaultLease(electionTimeout time.Duration) time.Duration { return 2 * electionTimeout }

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&c.ElectionTimeout, DefaultElectionTimeout)
	set(&c.Lease, DefaultLease(c.ElectionTimeout))
	set(&c.RenewEvery, c.Lease/4)
	set(&c.Margin, c.Lease/10)
	set(&c.StopGrace, c.Lease/10)
	set(&c.DrainTimeout, 5*time.Second)
	if c.Listen == "" {
		c.Listen = c.Peers[c.NodeID]
	}
	if c.Clock == nil {
		c.Clock = baton.SystemClock()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.NewInstanceID == nil {
		c.NewInstanceID = baton.NewInstanceID
	}
	if c.dial == nil {
		c.dial = (&net.Dialer{Timeout: time.Second}).DialContext
	}
	c.Metadata, c.Peers = maps.Clone(c.Metadata), maps.Clone(c.Peers)
	if len(c.Via) > 0 {
		c.dial = detour(c.dial, c.Peers, maps.Clone(c.Via))
	}
	return c
}

// detour dials a peer where it is reached.
func detour(dial raftnode.Dialer, peers, via map[string]string) raftnode.Dialer {
	reached := map[string]string{}
	for id, address := range via {
		reached[peers[id]] = address
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return dial(ctx, network, cmp.Or(reached[address], address))
	}
}

func (c Config) validate() error {
	if err := baton.ValidateID("Group", c.Group); err != nil {
		return err
	}
	if err := baton.ValidateID("NodeID", c.NodeID); err != nil {
		return err
	}
	if err := baton.ValidateMetadata(c.Metadata); err != nil {
		return err
	}
	if c.Dir == "" {
		return &baton.InvalidArgumentError{Field: "Dir", Value: "", Want: "a directory"}
	}
	if c.ElectionTimeout < 50*time.Millisecond || c.ElectionTimeout > time.Minute {
		return &baton.InvalidArgumentError{Field: "ElectionTimeout", Value: c.ElectionTimeout, Want: "50ms to 1m"}
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"RenewEvery", c.RenewEvery}, {"Margin", c.Margin}, {"StopGrace", c.StopGrace}, {"DrainTimeout", c.DrainTimeout}} {
		if f.value < time.Millisecond || f.value > baton.MaxTTL {
			return &baton.InvalidArgumentError{Field: f.name, Value: f.value, Want: fmt.Sprintf("1ms to %v", baton.MaxTTL)}
		}
	}
	if need := 2*c.RenewEvery + c.StopGrace + c.Margin; need >= c.Lease || c.Lease > baton.MaxTTL {
		return &baton.InvalidArgumentError{Field: "Lease", Value: c.Lease,
			Want: fmt.Sprintf("more than 2*RenewEvery + StopGrace + Margin, which is %v, and at most %v", need, baton.MaxTTL)}
	}
	return c.validatePeers()
}

func (c Config) validatePeers() error {
	if len(c.Peers) == 0 || len(c.Peers) > maxPeers {
		return &baton.InvalidArgumentError{Field: "Peers", Value: fmt.Sprintf("%d nodes", len(c.Peers)), Want: fmt.Sprintf("1 to %d", maxPeers)}
	}
	if _, ok := c.Peers[c.NodeID]; !ok {
		return &baton.InvalidArgumentError{Field: "Peers", Value: c.NodeID, Want: "a list that names this node too"}
	}
	taken := map[string]string{}
	for id, address := range c.Peers {
		if err := baton.ValidateID("peer", id); err != nil {
			return err
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return &baton.InvalidArgumentError{Field: "address of peer " + id, Value: address, Want: "host:port"}
		}
		if other, ok := taken[address]; ok {
			return &baton.InvalidArgumentError{Field: "address of peer " + id, Value: address, Want: "an address of its own, not that of " + other}
		}
		taken[address] = id
	}
	return nil
}

// rpcTimeout is how long raft waits for the answer to one of its requests.
func (c Config) rpcTimeout() time.Duration { return max(time.Second, c.ElectionTimeout) }

// raft translates the timing. All of raft's timeouts are one: a raft leader that hears of no
// majority for as long as the others wait before they replace it gives up.
func (c Config) raft() *raft.Config {
	config := raft.DefaultConfig()
	config.LocalID = raft.ServerID(c.NodeID)
	config.HeartbeatTimeout = c.ElectionTimeout
	config.ElectionTimeout = c.ElectionTimeout
	config.LeaderLeaseTimeout = c.ElectionTimeout
	config.CommitTimeout = min(20*time.Millisecond, c.ElectionTimeout/10)
	config.SnapshotThreshold = 1024
	config.SnapshotInterval = time.Minute
	config.TrailingLogs = 128
	config.NoLegacyTelemetry = true
	config.Logger = c.trial.logOf(raftnode.Logger(c.Logger.With("node", c.NodeID)))
	return config
}
