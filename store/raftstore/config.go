package raftstore

import (
	"fmt"
	"log/slog"
	"net"
	"time"

	"baton"
	"baton/internal/raftnode"
)

// Config says which server this is. Dir must be set; everything else has a default.
type Config struct {
	// ID names this server in its cluster. Default "s1".
	ID string
	// Dir holds log, snapshots and identity.
	Dir string
	// Listen is the address of the peer port. Default 127.0.0.1:7402.
	Listen string
	// Cluster names all servers that begin the cluster, this one among them, and
	// the addresses of their peer ports. Empty: this server alone.
	Cluster map[string]string
	// Join: this server does not begin a cluster but waits to be added to one.
	Join bool

	// ElectionTimeout is how long a raft leader may be silent before the others
	// elect a new one. Default 500ms. It bounds how long the store is
	// without service when a server dies, and has nothing to do with leases.
	ElectionTimeout time.Duration
	// SnapshotEntries is after how many entries, or KiB of them, the log is compacted. Default 65536.
	SnapshotEntries uint64

	Clock  baton.Clock
	Logger *slog.Logger

	dial  raftnode.Dialer
	trial *trial
	// quarantine is how long a restored server grants nothing, if not for as long as a lease can last.
	quarantine time.Duration
}

const maxServers = 9

func (c Config) withDefaults() Config {
	if c.ID == "" {
		c.ID = "s1"
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:7402"
	}
	if c.ElectionTimeout == 0 {
		c.ElectionTimeout = 500 * time.Millisecond
	}
	if c.SnapshotEntries == 0 {
		c.SnapshotEntries = 1 << 16
	}
	if c.Clock == nil {
		c.Clock = baton.SystemClock()
	}
	if c.dial == nil {
		c.dial = (&net.Dialer{Timeout: time.Second}).DialContext
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func (c Config) validate() error {
	if err := baton.ValidateID("server id", c.ID); err != nil {
		return err
	}
	if c.Dir == "" {
		return &baton.InvalidArgumentError{Field: "data directory", Value: "", Want: "a directory"}
	}
	if c.ElectionTimeout < 50*time.Millisecond || c.ElectionTimeout > time.Minute {
		return &baton.InvalidArgumentError{Field: "election timeout", Value: c.ElectionTimeout, Want: "50ms to 1m"}
	}
	if len(c.Cluster) == 0 {
		return nil
	}
	if len(c.Cluster) > maxServers {
		return &baton.InvalidArgumentError{Field: "cluster", Value: fmt.Sprintf("%d servers", len(c.Cluster)), Want: fmt.Sprintf("at most %d", maxServers)}
	}
	if _, ok := c.Cluster[c.ID]; !ok {
		return &baton.InvalidArgumentError{Field: "cluster", Value: FormatCluster(c.Cluster), Want: fmt.Sprintf("a list that names this server too, which is %q", c.ID)}
	}
	taken := map[string]string{}
	for id, address := range c.Cluster {
		if err := baton.ValidateID("cluster server id", id); err != nil {
			return err
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return &baton.InvalidArgumentError{Field: "cluster address of " + id, Value: address, Want: "host:port"}
		}
		if other, ok := taken[address]; ok {
			return &baton.InvalidArgumentError{Field: "cluster address of " + id, Value: address, Want: "an address of its own, not that of " + other}
		}
		taken[address] = id
	}
	return nil
}

// address is where the others reach this server.
func (c Config) address() string {
	if a, ok := c.Cluster[c.ID]; ok {
		return a
	}
	return c.Listen
}
