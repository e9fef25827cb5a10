package raftpeer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"

	"baton"
	"baton/internal/raftnode"
)

// Open starts a peer on its directory and its port. The first time, it returns
// when all peers have been heard of: until then this one cannot know whether it
// may vote. ctx bounds that wait.
func Open(ctx context.Context, cfg Config) (*Elector, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("raft peer: %w", err)
	}
	var undo []func() error
	fail := func(err error) (*Elector, error) {
		for _, f := range slices.Backward(undo) {
			err = errors.Join(err, f())
		}
		return nil, fmt.Errorf("raft peer: %w", err)
	}
	id, unlock, err := raftnode.OpenDir(cfg.Dir, cfg.NodeID)
	if err != nil {
		return fail(err)
	}
	undo = append(undo, unlock)
	admission, err := raftnode.OpenAdmission(cfg.Dir)
	if err != nil {
		return fail(err)
	}
	logger := raftnode.Logger(cfg.Logger.With("node", cfg.NodeID))
	logs, err := wal.Open(cfg.Dir, wal.WithLogger(logger))
	if err != nil {
		return fail(fmt.Errorf("open the log in %s: %w", cfg.Dir, err))
	}
	undo = append(undo, logs.Close)
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(filepath.Join(cfg.Dir, "snapshots"), 2, logger)
	if err != nil {
		return fail(fmt.Errorf("open snapshots: %w", err))
	}
	begun, err := raft.HasExistingState(logs, logs, snapshots)
	if err != nil {
		return fail(fmt.Errorf("read the log: %w", err))
	}

	door := &door{group: cfg.cluster(), identity: id, admission: admission, begun: begun, peers: cfg.Peers}
	port, err := raftnode.Listen(cfg.Listen, door.meant, cfg.Logger.With("node", cfg.NodeID))
	if err != nil {
		return fail(&baton.InvalidArgumentError{Field: "Listen", Value: cfg.Listen, Want: "an address that is free: " + err.Error()})
	}
	undo = append(undo, port.Close)
	server := &http.Server{Handler: door, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug)}
	go func() { _ = server.Serve(port.HTTP) }() // ends with its listener
	undo = append(undo, server.Close)
	client := raftnode.NewClient(cfg.dial)
	undo = append(undo, func() error { client.Close(); return nil })

	p := parts{logs: logs, stable: logs, snapshots: snapshots, peers: &wire{client: client, door: door}}
	if !begun {
		if _, err = (raftnode.Beginning{Identity: id, Cluster: cfg.Peers, Client: client, Log: cfg.Logger, Word: "node"}).Servers(ctx); err != nil {
			return fail(cfg.advise(err))
		}
		// Also if others have begun: the peers never change, so every log begins with the same entry,
		// and this peer, which has been admitted, has never voted.
		p.bootstrap = cfg.servers()
	}
	// One request in flight switches pipelining off: a raft leader that is deposed
	// while its pipeline is full never gets out of it (raft v1.8.0).
	network := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		MaxRPCsInFlight: 1, MaxPool: 4, Timeout: cfg.rpcTimeout(), Logger: logger,
		Stream: raftnode.Stream{Queue: port.Raft, Advertise: cfg.Peers[cfg.NodeID], At: door.at, DialContext: cfg.dial},
	})
	undo = append(undo, network.Close)
	p.transport = raftnode.PlainHeartbeats{NetworkTransport: network}
	e, err := start(cfg, p)
	if err != nil {
		return fail(err)
	}
	e.teardown = undo
	if err := e.checkPeers(begun); err != nil {
		return nil, fmt.Errorf("raft peer: %w", errors.Join(err, e.stop()))
	}
	door.set(e)
	return e, nil
}

// cluster names the group with its peers: nodes that were given different lists do not listen to
// each other.
func (c Config) cluster() string {
	sum := sha256.Sum256([]byte(FormatPeers(c.Peers)))
	return fmt.Sprintf("%s-%x", c.Group, sum[:4])
}

// servers are the peers as raft wants them.
func (c Config) servers() []raft.Server {
	var servers []raft.Server
	for _, id := range slices.Sorted(maps.Keys(c.Peers)) {
		servers = append(servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(c.Peers[id])})
	}
	return servers
}

func (c Config) advise(err error) error {
	if errors.Is(err, raftnode.ErrForgotten) {
		return fmt.Errorf("%w: a peer that has forgotten its votes must not vote again; bring back %s as it was last, not an earlier copy, or stop all peers and begin the group anew with empty directories (docs/peers.md)", err, c.Dir)
	}
	return err
}

// checkPeers refuses a list of peers that is not the one the group began with.
func (e *Elector) checkPeers(begun bool) error {
	if !begun {
		return nil
	}
	f := e.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return err
	}
	known := map[string]string{}
	for _, s := range f.Configuration().Servers {
		known[string(s.ID)] = string(s.Address)
	}
	if len(known) > 0 && !maps.Equal(known, e.cfg.Peers) {
		return &baton.InvalidArgumentError{Field: "Peers", Value: FormatPeers(e.cfg.Peers), Want: "those that the group began with: " + FormatPeers(known)}
	}
	return nil
}

// ParsePeers reads "n1=host:port,n2=host:port".
func ParsePeers(text string) (map[string]string, error) {
	peers := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		id, address, ok := strings.Cut(strings.TrimSpace(part), "=")
		if _, twice := peers[id]; !ok || id == "" || address == "" || twice {
			return nil, &baton.InvalidArgumentError{Field: "peers", Value: text, Want: "id=host:port,id=host:port,... with every id once"}
		}
		peers[id] = address
	}
	return peers, nil
}

// FormatPeers is the inverse of ParsePeers.
func FormatPeers(peers map[string]string) string {
	var list []string
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		list = append(list, id+"="+peers[id])
	}
	return strings.Join(list, ",")
}
