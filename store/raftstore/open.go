package raftstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"

	"baton/internal/raftnode"
)

// Open starts a server on its data directory and its peer port. In a cluster
// of several it returns when all of them have been heard of once: until then
// this server cannot know whether it may vote. ctx bounds that wait.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("raft store: %w", err)
	}
	if cfg.trial == nil {
		cfg.trial = broken
	}
	var undo []func() error
	fail := func(err error) (*Store, error) {
		for _, f := range slices.Backward(undo) {
			err = errors.Join(err, f())
		}
		return nil, fmt.Errorf("raft store: %w", err)
	}
	id, unlock, err := raftnode.OpenDir(cfg.Dir, cfg.ID)
	if err != nil {
		return fail(err)
	}
	undo = append(undo, unlock)
	admission, err := raftnode.OpenAdmission(cfg.Dir)
	if err != nil {
		return fail(err)
	}
	logger := raftnode.Logger(cfg.Logger.With("server", cfg.ID))
	files, err := wal.Open(cfg.Dir, wal.WithLogger(logger))
	if err != nil {
		return fail(fmt.Errorf("open the log in %s: %w", cfg.Dir, err))
	}
	undo = append(undo, files.Close)
	logs := newDisk(files, cfg.Dir, cfg.Logger)
	kept, err := raft.NewFileSnapshotStoreWithLogger(filepath.Join(cfg.Dir, "snapshots"), 2, logger)
	if err != nil {
		return fail(fmt.Errorf("open snapshots: %w", err))
	}
	snapshots := &snapshots{SnapshotStore: kept}
	begun, err := raft.HasExistingState(logs, logs, snapshots)
	if err != nil {
		return fail(fmt.Errorf("read the log: %w", err))
	}
	how, err := readRestored(cfg.Dir, kept)
	if err != nil {
		return fail(err)
	}
	cached, err := raft.NewLogCache(4096, logs)
	if err != nil {
		return fail(err)
	}

	handler := &peerHandler{identity: id, admission: admission, begun: begun}
	port, err := raftnode.Listen(cfg.Listen, handler.meant, cfg.Logger.With("server", cfg.ID))
	if err != nil {
		return fail(err)
	}
	undo = append(undo, port.Close)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug)}
	go func() { _ = server.Serve(port.HTTP) }() // ends with its listener
	undo = append(undo, server.Close)
	peers := newHTTPPeers(cfg.dial)
	undo = append(undo, func() error { peers.Close(); return nil })

	p := parts{
		logs: cached, stable: logs, snapshots: snapshots, peers: peers, admission: admission, restored: how,
	}
	if !begun && !cfg.Join {
		if p.bootstrap, err = cfg.begin(ctx, id, peers); err != nil {
			return fail(err)
		}
	}
	// One request in flight switches pipelining off. A leader that is deposed while
	// its pipeline is full never gets out of it (raft v1.8.0: its decoder is gone, and the sender
	// waits for it), and then raft cannot be shut down. Entries hold many commands each, so little is lost.
	transport := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		MaxRPCsInFlight: 1,
		Stream:          raftnode.Stream{Queue: port.Raft, Advertise: cfg.address(), At: handler.at, DialContext: cfg.dial}, MaxPool: 8, Timeout: 5 * time.Second, Logger: logger,
	})
	undo = append(undo, transport.Close)
	p.transport = raftnode.PlainHeartbeats{NetworkTransport: transport}
	s, err := start(cfg, p)
	if err != nil {
		return fail(err)
	}
	s.identity, s.disk, s.snapshots, s.teardown = id, logs, snapshots, undo
	handler.set(s)
	s.owned.Go(s.electSelf)
	return s, nil
}

// electSelf makes a server that is the only voter campaign at once. By itself
// it would first wait for the leader that it cannot have. If that fails, it waits as any other.
func (s *Store) electSelf() {
	config, err := s.configuration()
	if err != nil || !isOnlyVoter(config, s.id()) {
		return
	}
	if err := raftnode.Nudge(s.raft); err != nil {
		s.log.Debug("could not begin the election early", "err", err)
	}
}

// begin is what an empty server does before it may vote. If its cluster has not
// begun, it begins with the servers returned.
func (c Config) begin(ctx context.Context, id raftnode.Identity, peers *httpPeers) ([]raft.Server, error) {
	if len(c.Cluster) == 0 {
		return []raft.Server{{ID: raft.ServerID(c.ID), Address: raft.ServerAddress(c.address())}}, nil
	}
	servers, err := raftnode.Beginning{Identity: id, Cluster: c.Cluster, Client: peers.Client, Log: c.Logger}.Servers(ctx)
	if errors.Is(err, raftnode.ErrForgotten) {
		err = fmt.Errorf("%w. If its data is lost, take it out of the cluster, start it anew, and add it:\n  baton cluster remove %s\n  baton server --join --server-id %s --peer %s\n  baton cluster add %s=%s",
			err, c.ID, c.ID, c.Listen, c.ID, c.Cluster[c.ID])
	}
	return servers, err
}

// ParseCluster reads "s1=host:7402,s2=host:7402".
func ParseCluster(text string) (map[string]string, error) {
	cluster := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		id, address, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || id == "" || address == "" {
			return nil, fmt.Errorf("cluster: %q is not of the form id=host:port", part)
		}
		if _, twice := cluster[id]; twice {
			return nil, fmt.Errorf("cluster: server %q stands twice", id)
		}
		cluster[id] = address
	}
	return cluster, nil
}

// FormatCluster is the inverse of ParseCluster.
func FormatCluster(cluster map[string]string) string {
	var list []string
	for id, address := range cluster {
		list = append(list, id+"="+address)
	}
	sort.Strings(list)
	return strings.Join(list, ",")
}
