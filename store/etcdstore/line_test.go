package etcdstore_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"baton"
	"baton/internal/testserver"
	"baton/store/etcdstore"
	"baton/storetest/drill"
)

// queue starts waits, one behind the other, and tells who was called.
func queue(t *testing.T, s *etcdstore.Store, etcd *clientv3.Client, prefix, group string, nodes ...string) <-chan string {
	t.Helper()
	called := make(chan string, len(nodes))
	for _, node := range nodes {
		go func() {
			if s.Await(t.Context(), group, baton.Candidate{NodeID: node, InstanceID: "i"}) == nil {
				called <- node
			}
		}()
		drill.Eventually(t, node+" in line", func() bool {
			resp, err := etcd.Get(t.Context(), prefix+"/line/"+group+"/"+node+"/i")
			return err == nil && resp.Count == 1
		})
	}
	return called
}

// runOut ends the etcd lease that a leadership rests on, as its end does: a test that
// waited for that could be held up for as long as the lease lasts.
func runOut(t *testing.T, etcd *clientv3.Client, group string) {
	t.Helper()
	resp, err := etcd.Get(t.Context(), "/etcdstore/leases/"+group+"/bound")
	if err != nil || resp.Count != 1 {
		t.Fatalf("what a leadership is bound to: %+v, %v", resp, err)
	}
	if _, err := etcd.Revoke(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
}

// A holder that died before it could hand over does not keep the successor that
// it was told of from going first.
func TestSuccessorIsCalledFirstWhenTheEndingLeaseRunsOut(t *testing.T) {
	t.Parallel()
	s, etcd := one(t)
	for group := range drill.Tries(t) {
		l := drill.Lead(t, s, group, "i-1", baton.MaxTTL)
		called := queue(t, s, etcd, "/etcdstore", group, "first", "heir")
		if err := s.End(t.Context(), group, l.Term, baton.Ending{Reason: baton.Transferred, Successor: "heir"}); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		runOut(t, etcd, group)
		node := <-called
		if node == "heir" {
			return
		}
		if time.Since(begun) < 700*time.Millisecond { // else the turn of the successor may have passed
			t.Fatalf("%s is called first: want the successor", node)
		}
	}
}

// Whatever the prefix looks like, one who waits has one place, and finds it.
func TestPlacesUnderAnOddPrefix(t *testing.T) {
	t.Parallel()
	members := testserver.StartEtcd(t, 1)
	etcd := raw(t, members...)
	s := open(t, etcdstore.Config{Endpoints: endpoints(t, members), Prefix: "a//b/./c"})
	l := drill.Lead(t, s, "g", "i-1", time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Await(ctx, "g", baton.Candidate{NodeID: "w", InstanceID: "i"}) }()
	drill.Eventually(t, "a place", func() bool { return leases(t, etcd) > 1 })
	<-time.After(500 * time.Millisecond) // for others, if it does not find the first
	if n := leases(t, etcd); n != 2 {
		t.Errorf("etcd has %d leases: want the holder's and that of one place", n)
	}
	cancel()
	<-ended
	drill.Release(t, s, l)
	if err := s.Await(t.Context(), "g", baton.Candidate{NodeID: "w", InstanceID: "i"}); err != nil {
		t.Errorf("await: %v", err)
	}
}

// Nobody was there to write down that the lease ran out, and the first in line
// is dead. The second is called a second later, and then the group is open to it.
func TestADeadWaiterCostsOneTurnAfterAnExpiry(t *testing.T) {
	t.Parallel()
	s, etcd := one(t)
	drill.Lead(t, s, "g", "i-1", baton.MaxTTL)
	ctx, die := context.WithCancel(t.Context())
	dead := make(chan error)
	go func() { dead <- s.Await(ctx, "g", baton.Candidate{NodeID: "dead", InstanceID: "i"}) }()
	drill.Eventually(t, "the first in line", func() bool {
		resp, err := etcd.Get(t.Context(), "/etcdstore/line/g/dead/i")
		return err == nil && resp.Count == 1
	})
	called := queue(t, s, etcd, "/etcdstore", "g", "second")
	die()
	<-dead
	runOut(t, etcd, "g")
	<-called
	if _, err := s.Acquire(t.Context(), "g", baton.Candidate{NodeID: "second", InstanceID: "i"}, time.Minute); err != nil {
		t.Errorf("acquire by the one that was called: %v", err)
	}
}
