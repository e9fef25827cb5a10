package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"baton"
	"baton/server"
	"baton/store/raftstore"
)

// openRaft starts this server's part of the cluster, or the whole of it.
func openRaft(ctx context.Context, f serverFlags, log *slog.Logger) (baton.Store, error) {
	spareCollector()
	cluster, err := raftstore.ParseCluster(f.cluster)
	if err != nil {
		return nil, usagef("--%w", err)
	}
	listen := f.peer
	own, named := cluster[f.serverID]
	switch {
	case len(cluster) > 0 && !named:
		return nil, usagef("--cluster is %q: want a list that names this server too, and its --server-id is %q", f.cluster, f.serverID)
	case named && !f.peerGiven:
		listen = own
	}
	if err := checkAddress(ctx, "--peer", listen, f.insecure); err != nil {
		return nil, err
	}
	s, err := raftstore.Open(ctx, raftstore.Config{
		ID: f.serverID, Dir: f.data, Listen: listen, Cluster: cluster, Join: f.join,
		ElectionTimeout: f.electionTimeout, Logger: log,
	})
	switch {
	case err == nil:
		return s, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, &usageError{err: err}
}

// electionTime is far more than a server needs to elect itself.
const electionTime = 3 * time.Second

// awaitElection gives a server that is alone the moment it takes to elect
// itself, so that whoever starts one and uses it at once is not turned away. If it is
// not alone any more it may take longer, and is not waited for.
func awaitElection(ctx context.Context, s *raftstore.Store) {
	ctx, cancel := context.WithTimeout(ctx, electionTime)
	defer cancel()
	for s.Ready(ctx) != nil && ctx.Err() == nil {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// raftCluster shows a raft store to the service.
type raftCluster struct{ *raftstore.Store }

func (c raftCluster) Status(ctx context.Context) (server.ClusterStatus, error) {
	st, err := c.Store.Status(ctx)
	if err != nil {
		return server.ClusterStatus{}, err
	}
	out := server.ClusterStatus{
		Server: st.Server, Cluster: st.Cluster, Leader: st.Leader, State: strings.ToLower(st.State), RaftTerm: st.RaftTerm,
		CommitIndex: st.Commit, AppliedIndex: st.Applied, LastLogIndex: st.LastLog,
		LastContact: st.LastContact, Leases: st.Leases,
	}
	for _, m := range st.Members {
		out.Servers = append(out.Servers, server.ClusterServer{
			ID: m.ID, Address: m.Address, Voter: m.Voter, Leader: m.Leader, Reached: m.Reached, AppliedIndex: m.Applied, StateHash: m.Hash,
		})
	}
	return out, nil
}

func (c raftCluster) RemoveServer(ctx context.Context, id string) error {
	st, err := c.Store.Status(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(st.Members, func(m raftstore.Member) bool { return m.ID == id }) {
		return fmt.Errorf("server %q: %w in this cluster", id, baton.ErrNotFound)
	}
	return c.Store.RemoveServer(ctx, id)
}

// diskFailed is closed when the store's disk has failed; nil for stores that do not tell.
func diskFailed(s baton.Store) <-chan struct{} {
	if r, ok := s.(*raftstore.Store); ok {
		return r.Failed()
	}
	return nil
}

// diskFailure says what to do about it.
func diskFailure(s baton.Store) error {
	r, ok := s.(*raftstore.Store)
	if !ok {
		return errors.New("the disk failed")
	}
	return fmt.Errorf("stopped, because the disk failed: %w; what was acknowledged is safe: make room or repair it, and start again", r.Failure())
}
