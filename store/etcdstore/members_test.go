package etcdstore_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"baton"
	"baton/internal/testserver"
	"baton/store/etcdstore"
	"baton/storetest/drill"
)

// Callers that give up before the store's own patience ends, as the requests of
// impatient clients do, still get it away from a member that hangs.
func TestImpatientCallersAreNotStuckWithAMemberThatHangs(t *testing.T) {
	t.Parallel()
	member := testserver.StartEtcd(t, 1)[0]
	direct, err := url.Parse(member.Direct)
	if err != nil {
		t.Fatal(err)
	}
	hosts := append(endpoints(t, []*testserver.Server{member}), direct.Host)
	var stores []baton.Store // each begins at one of the two at random
	for range 8 {
		s := open(t, etcdstore.Config{Endpoints: hosts, Timeout: time.Minute})
		if _, err := s.Get(t.Context(), "g"); err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	member.Cut(t, testserver.BothWays)
	var done sync.WaitGroup
	for i, s := range stores {
		done.Go(func() {
			const tries = 10
			var err error
			for range tries {
				ctx, cancel := context.WithCancel(t.Context())
				giveUp := time.AfterFunc(time.Second, cancel)
				_, err = s.Get(ctx, "g")
				giveUp.Stop()
				cancel()
				if err == nil {
					return
				}
			}
			t.Errorf("store %d did not answer any of %d calls: %v", i, tries, err)
		})
	}
	done.Wait()
}

// A member that was restarted knows none of the tokens that it gave out, and
// one that gives out short-lived ones forgets them.
func TestTokensThatEtcdForgot(t *testing.T) {
	t.Parallel()
	member := testserver.StartEtcd(t, 1, testserver.Setting("auth-token-ttl", "1"))[0]
	requireRoot(t, member, "secret")
	s := open(t, etcdstore.Config{Endpoints: endpoints(t, []*testserver.Server{member}), Username: "root", Password: "secret"})
	l := drill.Lead(t, s, "g", "i-1", time.Minute)
	renew := func(when string) {
		if _, err := s.Renew(t.Context(), l.ID(), time.Minute); err != nil {
			t.Errorf("renew %s: %v", when, err)
		}
		if _, err := s.PutGroup(t.Context(), baton.Group{ID: fmt.Sprint("p-", len(when))}); err != nil {
			t.Errorf("put group %s: %v", when, err)
		}
	}
	renew("at first")
	member.Restart(t)
	renew("after a restart")
	<-time.After(3 * time.Second) // nothing tells when etcd drops a token
	renew("after the tokens have run out")
}

// etcd takes its time to check a password: renewals must not have it do so each time.
func TestRenewalsDoNotAuthenticateEachTime(t *testing.T) {
	t.Parallel()
	member := testserver.StartEtcd(t, 1)[0]
	requireRoot(t, member, "secret")
	var checks atomic.Int64
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints(t, []*testserver.Server{member}), Username: "root", Password: "secret", Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
			conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			if method == "/etcdserverpb.Auth/Authenticate" {
				checks.Add(1)
			}
			return invoke(ctx, method, req, reply, conn, opts...)
		})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	s := open(t, etcdstore.Config{Client: client})
	l := drill.Lead(t, s, "g", "i-1", time.Minute)
	const renewals = 20
	for range renewals {
		if _, err := s.Renew(t.Context(), l.ID(), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if n := checks.Load(); n >= renewals/2 {
		t.Errorf("the password was checked %d times for %d renewals", n, renewals)
	}
}

func requireRoot(t *testing.T, member *testserver.Server, password string) {
	t.Helper()
	etcd, ctx := raw(t, member), t.Context()
	_, err := etcd.UserAdd(ctx, "root", password)
	if err == nil {
		_, err = etcd.UserGrantRole(ctx, "root", "root")
	}
	if err == nil {
		_, err = etcd.AuthEnable(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
}
