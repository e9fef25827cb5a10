package raftstore

import (
	"context"
	"net"
	"time"

	"baton"
)

// changeTime is how long one attempt to change the cluster's members may take:
// less than whoever asked waits for it.
const changeTime = 4 * time.Second

// AddServer is Add on whichever server leads the cluster. One that has not
// caught up in time is in the cluster without a vote, and the error is
// baton.ErrUnavailable: the same call goes on from there.
func (s *Store) AddServer(ctx context.Context, id, address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return &baton.InvalidArgumentError{Field: "address", Value: address, Want: "host:port of the server's peer port"}
	}
	_, err := s.do(ctx, request{Op: "add server", Server: id, Address: address})
	return err
}

// RemoveServer is Remove on whichever server leads the cluster.
func (s *Store) RemoveServer(ctx context.Context, id string) error {
	if err := baton.ValidateID("server_id", id); err != nil {
		return err
	}
	_, err := s.do(ctx, request{Op: "remove server", Server: id})
	return err
}
