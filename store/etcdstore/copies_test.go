package etcdstore_test

import (
	"context"
	"errors"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"baton"
	"baton/internal/testserver"
	"baton/store/etcdstore"
	"baton/storetest/drill"
)

// scripted is a store on a way to etcd on which transactions that write have the
// fates of a script, which is told the how manieth each of them is.
func scripted(t *testing.T, member *testserver.Server, script func(n int, send func() error) error) *etcdstore.Store {
	t.Helper()
	writes := 0
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints(t, []*testserver.Server{member}), Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
			conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			send := func() error { return invoke(ctx, method, req, reply, conn, opts...) }
			txn, ok := req.(*pb.TxnRequest)
			if !ok || len(txn.Compare) == 0 {
				return send()
			}
			writes++
			return script(writes, send)
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return open(t, etcdstore.Config{Client: client, Timeout: drill.Patience})
}

// leases are those that etcd has.
func leases(t *testing.T, etcd *clientv3.Client) int {
	t.Helper()
	resp, err := etcd.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(resp.Leases)
}

var errForbidden = status.Error(codes.PermissionDenied, "etcdserver: permission denied")

// Of a grant that was done and repeated on the way, the copy is refused. The
// leadership stands, and so does what it rests on.
func TestARefusedCopyOfAGrant(t *testing.T) {
	t.Parallel()
	for name, repeat := range map[string]func(send func() error) error{
		"for what the first has done": func(send func() error) error { return send() },
		"for rights that were taken":  func(func() error) error { return errForbidden },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			member := testserver.StartEtcd(t, 1)[0]
			etcd := raw(t, member)
			s := scripted(t, member, func(n int, send func() error) error {
				if err := send(); n > 1 || err != nil {
					return err
				}
				return repeat(send)
			})
			l := drill.Lead(t, s, "g", "i-1", baton.MaxTTL)
			if err := s.Close(); err != nil { // it waits for what is given back
				t.Fatal(err)
			}
			if n := leases(t, etcd); n != 1 {
				t.Errorf("etcd has %d leases: want the one of the leadership", n)
			}
			other := open(t, etcdstore.Config{Endpoints: endpoints(t, []*testserver.Server{member})})
			if now, err := other.Get(t.Context(), "g"); err != nil || now.ID() != l.ID() {
				t.Errorf("granted %s, and now there is %+v, %v", l.ID(), now, err)
			}
		})
	}
}

// An attempt that can take effect no more leaves no lease.
func TestALostGrantIsGivenBack(t *testing.T) {
	t.Parallel()
	member := testserver.StartEtcd(t, 1)[0]
	etcd := raw(t, member)
	other := open(t, etcdstore.Config{Endpoints: endpoints(t, []*testserver.Server{member})})
	s := scripted(t, member, func(n int, send func() error) error {
		if n > 1 {
			return send()
		}
		drill.Lead(t, other, "g", "other", baton.MaxTTL)
		return status.Error(codes.Unavailable, drill.ErrLost.Error())
	})
	_, err := s.Acquire(t.Context(), "g", baton.Candidate{NodeID: "node", InstanceID: "i-1"}, baton.MaxTTL)
	if !errors.Is(err, baton.ErrHeld) {
		t.Errorf("acquire: %v, want ErrHeld", err)
	}
	drill.Eventually(t, "the lease of the leadership alone", func() bool { return leases(t, etcd) == 1 })
}

// A request that was lost may come yet: that its repetition was refused is no
// answer to it.
func TestARefusedRepetitionIsNoAnswer(t *testing.T) {
	t.Parallel()
	s := scripted(t, testserver.StartEtcd(t, 1)[0], func(n int, _ func() error) error {
		if n > 1 {
			return errForbidden
		}
		return status.Error(codes.Unavailable, drill.ErrLost.Error())
	})
	l, err := s.Acquire(t.Context(), "g", baton.Candidate{NodeID: "node", InstanceID: "i-1"}, baton.MaxTTL)
	if !errors.Is(err, baton.ErrUnavailable) || baton.IsAnswer(err) {
		t.Errorf("acquire: %+v, %v", l, err)
	}
}
