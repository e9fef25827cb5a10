package server

import (
	"context"
	"net"
	"time"

	"baton"
)

// Cluster is what keeps the leases where that is a cluster of servers like
// this one, which can be looked at and changed.
type Cluster interface {
	// Status is the cluster as this server sees it.
	Status(ctx context.Context) (ClusterStatus, error)
	// AddServer makes a server part of the cluster that was started to join it.
	// baton.ErrUnavailable: it has no vote yet; the same call goes on from there.
	AddServer(ctx context.Context, id, address string) error
	// RemoveServer takes a server out of the cluster.
	RemoveServer(ctx context.Context, id string) error
}

// Archive is a Cluster that can be backed up.
type Archive interface {
	// Backup returns one state of the cluster, as a file that can be restored.
	Backup(ctx context.Context) ([]byte, error)
}

// ClusterStatus is a cluster as one of its servers sees it.
type ClusterStatus struct {
	Server, Cluster, Leader, State          string
	RaftTerm                                uint64
	CommitIndex, AppliedIndex, LastLogIndex uint64
	LastContact                             time.Duration
	Leases                                  int
	Servers                                 []ClusterServer
}

// ClusterServer is one server of a cluster. What it has applied is known if it was reached.
type ClusterServer struct {
	ID, Address            string
	Voter, Leader, Reached bool
	AppliedIndex           uint64
	StateHash              string
}

// ClusterStatus is the cluster that keeps the leases.
func (s *Service) ClusterStatus(ctx context.Context) (ClusterStatus, error) {
	if s.cfg.Cluster == nil {
		return ClusterStatus{}, unsupported(s, "be looked at as a cluster: that is for servers that keep the leases themselves")
	}
	return ask(ctx, s, "look at the cluster", s.cfg.Cluster.Status)
}

// backupTime is far more than it takes to copy a million leases.
const backupTime = time.Minute

// Backup is the state of the cluster, as a file that can be restored.
func (s *Service) Backup(ctx context.Context) (file []byte, err error) {
	defer func() { s.audit(ctx, "backup", "", err, "bytes", len(file)) }()
	archive, ok := s.cfg.Cluster.(Archive)
	if !ok {
		return nil, unsupported(s, "be backed up by Baton")
	}
	ctx, cancel := context.WithTimeout(ctx, backupTime)
	defer cancel()
	if file, err = archive.Backup(ctx); err != nil && !baton.IsAnswer(err) {
		err = unavailable("back up", err)
	}
	return file, err
}

// AddServer makes a server part of the cluster.
func (s *Service) AddServer(ctx context.Context, id, address string) (err error) {
	defer func() { s.audit(ctx, "add_server", "", err, "server", id, "address", address) }()
	if s.cfg.Cluster == nil {
		return unsupported(s, "take in servers")
	}
	if err := baton.ValidateID("server_id", id); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return &baton.InvalidArgumentError{Field: "address", Value: address, Want: "host:port of the server's peer port"}
	}
	return s.tell(ctx, "add server "+id, func(ctx context.Context) error { return s.cfg.Cluster.AddServer(ctx, id, address) })
}

// RemoveServer takes a server out of the cluster.
func (s *Service) RemoveServer(ctx context.Context, id string) (err error) {
	defer func() { s.audit(ctx, "remove_server", "", err, "server", id) }()
	if s.cfg.Cluster == nil {
		return unsupported(s, "let servers go")
	}
	if err := baton.ValidateID("server_id", id); err != nil {
		return err
	}
	return s.tell(ctx, "remove server "+id, func(ctx context.Context) error { return s.cfg.Cluster.RemoveServer(ctx, id) })
}
