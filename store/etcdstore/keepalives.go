package etcdstore

import (
	"context"
	"errors"
	"io"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// keepAlives are streams that wait for their next keep-alive. To open one for
// each would do, but for etcd with authentication: it checks the password whenever a
// stream begins, which takes a tenth of a second of its processor.
type keepAlives struct {
	mu     sync.Mutex
	idle   map[*clientv3.Client][]*keepAliveStream
	closed bool
}

// maxIdle bounds the streams that are kept for a client.
const maxIdle = 100

// keepAliveStream carries one request at a time. After a failure it is given
// up, so an answer is always that to the request before it.
type keepAliveStream struct {
	pb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc
}

// once sends one keep-alive, and another only if the stream that it was sent on
// proves to have ended. The client's own method sends again what failed, as fast
// as it can, and does not say when.
func (k *keepAlives) once(ctx context.Context, c *clientv3.Client, id clientv3.LeaseID) (*pb.LeaseKeepAliveResponse, error) {
	for {
		stream, kept := k.take(c), true
		if stream == nil {
			var err error
			if stream, err = openKeepAlives(ctx, c); err != nil {
				return nil, rpctypes.Error(err)
			}
			kept = false
		}
		resp, err := stream.exchange(ctx, id)
		switch {
		case err == nil:
			k.give(c, stream)
			if resp.TTL <= 0 {
				return nil, rpctypes.ErrLeaseNotFound
			}
			return resp, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !kept:
			return nil, rpctypes.Error(err)
		}
	}
}

func openKeepAlives(ctx context.Context, c *clientv3.Client) (*keepAliveStream, error) {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, cancel)()
	stream, err := pb.NewLeaseClient(c.ActiveConnection()).LeaseKeepAlive(life)
	if err != nil {
		cancel()
		return nil, err
	}
	return &keepAliveStream{stream, cancel}, nil
}

func (s *keepAliveStream) exchange(ctx context.Context, id clientv3.LeaseID) (*pb.LeaseKeepAliveResponse, error) {
	stop := context.AfterFunc(ctx, s.cancel)
	var resp *pb.LeaseKeepAliveResponse
	err := s.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)})
	if err == nil || errors.Is(err, io.EOF) { // then Recv tells why
		resp, err = s.Recv()
	}
	if !stop() && err == nil {
		err = ctx.Err() // the stream has ended with it
	}
	if err != nil {
		s.cancel()
	}
	return resp, err
}

func (k *keepAlives) take(c *clientv3.Client) *keepAliveStream {
	k.mu.Lock()
	defer k.mu.Unlock()
	idle := k.idle[c]
	if len(idle) == 0 {
		return nil
	}
	last := len(idle) - 1
	k.idle[c] = idle[:last]
	return idle[last]
}

func (k *keepAlives) give(c *clientv3.Client, stream *keepAliveStream) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || len(k.idle[c]) >= maxIdle {
		stream.cancel()
		return
	}
	if k.idle == nil {
		k.idle = map[*clientv3.Client][]*keepAliveStream{}
	}
	k.idle[c] = append(k.idle[c], stream)
}

func (k *keepAlives) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	for _, idle := range k.idle {
		for _, stream := range idle {
			stream.cancel()
		}
	}
	k.idle = nil
}
