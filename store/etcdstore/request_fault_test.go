package etcdstore_test

import (
	"context"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"baton"
	"baton/internal/testserver"
	"baton/store/etcdstore"
	"baton/storetest/history"
)

// badLuck is what happens to single requests on their way to etcd, the lease
// grants, transactions and revocations that one call of the store is made of.
type badLuck struct {
	mu   sync.Mutex
	rng  *rand.Rand
	late sync.WaitGroup
}

var errLostOnTheWay = status.Error(codes.Unavailable, "lost on the way")

func (b *badLuck) draw() (fate int, after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rng.IntN(20), time.Duration(b.rng.Int64N(int64(fleetTTL + fleetTTL/2)))
}

func (b *badLuck) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	fate, after := b.draw()
	later := func() {
		b.late.Go(func() {
			<-time.After(after)
			unread := reflect.New(reflect.TypeOf(reply).Elem()).Interface()
			_ = invoke(context.WithoutCancel(ctx), method, req, unread, conn) // opts belong to the call that is over
		})
	}
	switch fate {
	case 0: // the request is lost
		return errLostOnTheWay
	case 1: // the answer is lost
		_ = invoke(ctx, method, req, reply, conn, opts...)
		return errLostOnTheWay
	case 2: // the request comes when nobody waits for it any more
		later()
		return errLostOnTheWay
	case 3: // the request comes twice
		later()
	}
	return invoke(ctx, method, req, reply, conn, opts...)
}

func TestHistoryWithRequestsLostLateAndRepeated(t *testing.T) {
	t.Parallel()
	member := testserver.StartEtcd(t, 1)[0]
	luck := &badLuck{rng: rand.New(rand.NewPCG(1, 2))}
	f := startFleetOn(t, func() baton.Store {
		client, err := clientv3.New(clientv3.Config{
			Endpoints: endpoints(t, []*testserver.Server{member}), Logger: zap.NewNop(),
			DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(luck.intercept)},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { luck.late.Wait(); _ = client.Close() })
		return open(t, etcdstore.Config{Client: client})
	})
	f.More("grants in spite of bad luck", 40)
	f.Judge(history.Options{})
	luck.late.Wait()
}
