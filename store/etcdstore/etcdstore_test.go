package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"baton"
	"baton/internal/testserver"
	"baton/store/etcdstore"
	"baton/storetest/drill"
)

// one is a cluster of one that is not hurt, a store in it, and a client to
// meddle with what the store keeps under /etcdstore.
func one(t *testing.T) (*etcdstore.Store, *clientv3.Client) {
	t.Helper()
	members := testserver.StartEtcd(t, 1)
	return open(t, etcdstore.Config{Endpoints: endpoints(t, members), Prefix: "etcdstore"}), raw(t, members...)
}

func TestTermsSurviveTheLossOfTheRecord(t *testing.T) {
	t.Parallel()
	s, etcd := one(t)
	for n := range 3 {
		drill.Release(t, s, drill.Lead(t, s, "g", fmt.Sprint("i-", n), time.Minute))
	}
	if _, err := etcd.Delete(t.Context(), "/etcdstore/leases/g/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	if l, err := s.Get(t.Context(), "g"); err != nil || l.Term != 3 || l.Held() {
		t.Errorf("without its record the group reads %+v, %v: want it vacant after term 3", l, err)
	}
	if l := drill.Lead(t, s, "g", "after", time.Minute); l.Term != 4 {
		t.Errorf("term %d after 3", l.Term)
	}
}

// A record that somebody removed under a holder lets nobody in before the
// holder's lease has run out.
func TestARemovedRecordDoesNotOpenTheGroup(t *testing.T) {
	t.Parallel()
	s, etcd := one(t)
	sent := time.Now()
	l := drill.Lead(t, s, "g", "i-1", 3*time.Second)
	if _, err := etcd.Delete(t.Context(), "/etcdstore/leases/g/record"); err != nil {
		t.Fatal(err)
	}
	_, err := s.Get(t.Context(), "g")
	if stands := time.Until(sent.Add(l.Remaining)) > 0; stands && !errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("get: %v, want ErrUnavailable: nobody knows who leads", err)
	}
	var next baton.Lease
	drill.Eventually(t, "the group open again", func() bool {
		var err error
		next, err = s.Acquire(t.Context(), "g", baton.Candidate{NodeID: "node", InstanceID: "i-2"}, time.Minute)
		if err != nil && !errors.Is(err, baton.ErrUnavailable) {
			t.Fatalf("acquire: %v", err)
		}
		return err == nil
	})
	if early := time.Until(sent.Add(l.Remaining)); early > 0 || next.Term <= l.Term {
		t.Errorf("granted term %d after %d, %v before the holder's promise ended", next.Term, l.Term, early)
	}
}

func TestCompactedCursorIsAGap(t *testing.T) {
	t.Parallel()
	s, etcd := one(t)
	var cursor baton.Cursor
	for ev, err := range s.Watch(t.Context(), "g", "") {
		if err != nil {
			t.Fatal(err)
		}
		cursor = ev.Cursor
		break
	}
	for n := range 3 {
		drill.Release(t, s, drill.Lead(t, s, "g", fmt.Sprint("i-", n), time.Minute))
	}
	now, err := etcd.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Compact(t.Context(), now.Header.Revision); err != nil {
		t.Fatal(err)
	}
	for ev, err := range s.Watch(t.Context(), "g", cursor) {
		if err != nil {
			t.Fatal(err)
		}
		if !ev.Gap || ev.Type != baton.LeaderLost || ev.Term != 3 || ev.Reason != baton.Resigned {
			t.Errorf("watch after a cursor that was compacted: %+v, want the state after term 3 as a gap", ev)
		}
		break
	}
}

func TestHistoryKeepsAHundred(t *testing.T) {
	t.Parallel()
	s, _ := one(t)
	drill.HistoryKeepsAHundred(t, s)
}

// An expiry that nobody was there to see is written down by whoever looks first.
func TestExpiryIsWrittenDownByWhoLooks(t *testing.T) {
	t.Parallel()
	s, etcd := one(t)
	drill.Lead(t, s, "g", "i-1", 2*time.Second)
	drill.Eventually(t, "etcd to drop the lease", func() bool {
		resp, err := etcd.Get(t.Context(), "/etcdstore/leases/g/bound")
		return err == nil && resp.Count == 0
	})
	for range 2 {
		past, err := s.History(t.Context(), "g")
		if err != nil || len(past) != 1 || past[0].Reason != baton.Expired || past[0].EndedAt.IsZero() {
			t.Fatalf("history: %+v, %v: want one term that expired", past, err)
		}
	}
	_, err := s.Acquire(t.Context(), "g", baton.Candidate{NodeID: "node", InstanceID: "i-1"}, time.Minute)
	var conflict *baton.ConflictError
	if !errors.As(err, &conflict) || conflict.Reason != baton.ConflictInstanceEnded {
		t.Errorf("acquire by the instance that expired: %v", err)
	}
}

// A released leadership leaves no lease behind in etcd.
func TestReleaseGivesTheEtcdLeaseBack(t *testing.T) {
	t.Parallel()
	s, etcd := one(t)
	drill.Release(t, s, drill.Lead(t, s, "g", "i-1", baton.MaxTTL))
	drill.Eventually(t, "no lease left in etcd", func() bool {
		resp, err := etcd.Leases(t.Context())
		return err == nil && len(resp.Leases) == 0
	})
}

func TestStoresOnTheClientOfAnother(t *testing.T) {
	t.Parallel()
	_, etcd := one(t)
	a, err := etcdstore.New(etcdstore.Config{Client: etcd, Prefix: "/a/", Timeout: drill.Unhurried})
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, etcdstore.Config{Client: etcd, Prefix: "b"})
	l := drill.Lead(t, a, "g", "i-1", time.Minute)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Get(t.Context(), "g"); !errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("get after close: %v", err)
	}
	if l := drill.Lead(t, b, "g", "i-2", time.Minute); l.Term != 1 {
		t.Errorf("the other prefix begins at term %d", l.Term)
	}
	again := open(t, etcdstore.Config{Client: etcd, Prefix: "a"})
	if _, err := again.Renew(t.Context(), l.ID(), time.Minute); err != nil {
		t.Errorf("renewal by another store on the same prefix: %v", err)
	}
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	members := testserver.StartEtcd(t, 1)
	etcd, ctx := raw(t, members...), t.Context()
	_, err := etcd.RoleAdd(ctx, "one-prefix")
	if err == nil {
		_, err = etcd.RoleGrantPermission(ctx, "one-prefix", "/mine/", clientv3.GetPrefixRangeEnd("/mine/"), clientv3.PermissionType(clientv3.PermReadWrite))
	}
	for _, user := range []struct{ name, role string }{{"root", "root"}, {"ann", "one-prefix"}} {
		if err == nil {
			_, err = etcd.UserAdd(ctx, user.name, "secret@"+user.name)
		}
		if err == nil {
			_, err = etcd.UserGrantRole(ctx, user.name, user.role)
		}
	}
	if err == nil {
		_, err = etcd.AuthEnable(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	host := endpoints(t, members)[0]

	s, err := drill.Answered(t, etcdstore.Open, "etcd://ann:secret%40ann@"+host+"/mine")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	mine := open(t, etcdstore.Config{Endpoints: []string{host}, Username: "ann", Password: "secret@ann", Prefix: "/mine"})
	l := drill.Lead(t, mine, "g", "i-1", time.Minute)
	if _, err := mine.Renew(ctx, l.ID(), time.Minute); err != nil {
		t.Errorf("renew: %v", err)
	}
	drill.Release(t, mine, l)

	s, err = drill.Answered(t, etcdstore.Open, "etcd://ann:secret%40ann@"+host+"/others")
	if err != nil {
		t.Fatal(err)
	}
	if err := drill.Answer(func() error { _, err := s.Get(ctx, "g"); return err }); !errors.Is(err, baton.ErrNotAllowed) {
		t.Errorf("get under a prefix that is not hers: %v, want ErrNotAllowed", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}

	_, err = drill.Answered(t, etcdstore.Open, "etcd://ann:guessed@"+host+"/mine")
	if !errors.Is(err, baton.ErrUnauthenticated) || strings.Contains(err.Error(), "guessed") {
		t.Errorf("a wrong password: %v, want ErrUnauthenticated that does not show it", err)
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s := open(t, etcdstore.Config{Endpoints: []string{address}, Timeout: time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), drill.Patience)
	defer cancel()
	if _, err := s.Get(ctx, "g"); !errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("get: %v, want ErrUnavailable", err)
	}
	if _, err := etcdstore.New(etcdstore.Config{Endpoints: []string{address}, Username: "ann", Password: "x", Timeout: time.Second}); !errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("new with a user: %v, want ErrUnavailable", err)
	}
}
