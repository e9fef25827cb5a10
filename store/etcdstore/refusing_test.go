package etcdstore_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"baton"
	"baton/internal/testserver"
	"baton/store/etcdstore"
	"baton/storetest/drill"
)

// counting is a store that counts the requests it makes of etcd.
func counting(t *testing.T, member *testserver.Server) (*etcdstore.Store, *clientv3.Client, *atomic.Int64) {
	t.Helper()
	var requests atomic.Int64
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints(t, []*testserver.Server{member}), Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
			conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if strings.HasPrefix(method, "/etcdserverpb.KV/") || strings.HasPrefix(method, "/etcdserverpb.Lease/") {
				requests.Add(1)
			}
			return invoke(ctx, method, req, reply, conn, opts...)
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return open(t, etcdstore.Config{Client: client, Timeout: 2 * time.Second}), client, &requests
}

// An etcd whose disk quota is used up refuses at once whatever writes. That is no
// reason to ask it thousands of times.
func TestAcquireIsPatientWithAnEtcdThatIsFull(t *testing.T) {
	t.Parallel()
	s, etcd, requests := counting(t, testserver.StartEtcd(t, 1)[0])
	status, err := etcd.Status(t.Context(), etcd.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	_, err = pb.NewMaintenanceClient(etcd.ActiveConnection()).Alarm(t.Context(), &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Acquire(t.Context(), "g", baton.Candidate{NodeID: "n", InstanceID: "i"}, time.Minute)
	if !errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("acquire: %v, want ErrUnavailable", err)
	}
	if n := requests.Load(); n > 250 {
		t.Errorf("%d requests in two seconds", n)
	}
}

// A grant that etcd refuses leaves no lease behind, however often it is tried.
func TestARefusedGrantLeavesNoLease(t *testing.T) {
	t.Parallel()
	member := testserver.StartEtcd(t, 1)[0]
	etcd, ctx := raw(t, member), t.Context()
	_, err := etcd.RoleAdd(ctx, "reader")
	if err == nil {
		_, err = etcd.RoleGrantPermission(ctx, "reader", "/baton/", clientv3.GetPrefixRangeEnd("/baton/"), clientv3.PermissionType(clientv3.PermRead))
	}
	if err == nil {
		_, err = etcd.UserAdd(ctx, "ann", "secret")
	}
	if err == nil {
		_, err = etcd.UserGrantRole(ctx, "ann", "reader")
	}
	if err != nil {
		t.Fatal(err)
	}
	requireRoot(t, member, "secret")
	s := open(t, etcdstore.Config{Endpoints: endpoints(t, []*testserver.Server{member}), Username: "ann", Password: "secret"})
	for range 3 {
		if _, err := s.Acquire(ctx, "g", baton.Candidate{NodeID: "n", InstanceID: "i"}, baton.MaxTTL); !errors.Is(err, baton.ErrNotAllowed) {
			t.Fatalf("acquire by one who may only read: %v, want ErrNotAllowed", err)
		}
	}
	looking, err := clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints(), Username: "root", Password: "secret", Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = looking.Close() }()
	drill.Eventually(t, "no lease left in etcd", func() bool {
		resp, err := looking.Leases(ctx)
		return err == nil && len(resp.Leases) == 0
	})
}
