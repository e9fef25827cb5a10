package etcdstore_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"baton"
	"baton/internal/testserver"
	"baton/store/etcdstore"
	"baton/storetest/drill"
	"baton/storetest/history"
)

// unlucky are the lease grants, transactions and revocations that one call of
// the store is made of, on their way to etcd.
func unlucky(luck *drill.Luck) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := luck.Send(ctx, func() error { return invoke(ctx, method, req, reply, conn, opts...) }, func(ctx context.Context) error {
			unread := reflect.New(reflect.TypeOf(reply).Elem()).Interface()
			return invoke(ctx, method, req, unread, conn) // opts belong to the call that somebody waits for
		})
		if errors.Is(err, drill.ErrLost) {
			return status.Error(codes.Unavailable, err.Error())
		}
		return err
	}
}

func TestHistoryWithRequestsLostLateAndRepeated(t *testing.T) {
	t.Parallel()
	member := testserver.StartEtcd(t, 1)[0]
	luck := drill.NewLuck(1, 20, fleetTTL+fleetTTL/2)
	luck.Repeats = true
	f := startFleetOn(t, func() baton.Store {
		client, err := clientv3.New(clientv3.Config{
			Endpoints: endpoints(t, []*testserver.Server{member}), Logger: zap.NewNop(),
			DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(unlucky(luck))},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { luck.Settle(); _ = client.Close() })
		return open(t, etcdstore.Config{Client: client})
	})
	f.More("grants in spite of bad luck", 40)
	f.Judge(history.Options{Duplicates: true})
	luck.Settle()
}
