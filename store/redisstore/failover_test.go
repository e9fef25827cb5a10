package redisstore_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"baton"
	"baton/fence"
	"baton/fence/redisfence"
	"baton/internal/testserver"
	"baton/storetest/drill"
)

// impatient is a master that does not wait for more replicas before it begins
// to serve one, nor for any before it ends.
func impatient(t *testing.T) *testserver.Server {
	t.Helper()
	return testserver.Start(t, testserver.Redis,
		testserver.Setting("repl-diskless-sync-delay", "0"), testserver.Setting("shutdown-timeout", "0"))
}

// follow makes one Redis the replica of another, through the proxy in front of
// that, and waits until it has caught up.
func follow(t *testing.T, replica, master *testserver.Server) *redis.Client {
	t.Helper()
	r, m := connect(t, replica.Direct), configOf(t, master.URL)
	host, port, err := net.SplitHostPort(m.Addresses[0])
	if err == nil {
		err = r.ConfigSet(t.Context(), "masterauth", m.Password).Err()
	}
	if err == nil {
		err = r.ReplicaOf(t.Context(), host, port).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	drill.Eventually(t, "the replica to have caught up", func() bool {
		return strings.Contains(r.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	return r
}

// The failover that breaks it. Redis acknowledges a grant, its replica has not
// heard of it and takes over, and grants the same term to another. Neither of
// the two can know. The ledger does.
func TestFailoverGrantsATermTwiceAndTheLedgerRefusesTheSecond(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	master, replica := impatient(t), testserver.Start(t, testserver.Redis)
	promoted := follow(t, replica, master)
	// Clients go past the proxy; what is cut is what the replica hears.
	before := open(t, configOf(t, master.Direct))
	for _, instance := range []string{"i-1", "i-2"} {
		drill.Release(t, before, drill.Lead(t, before, "payments", instance, time.Minute))
	}
	drill.Eventually(t, "the replica to know of two terms", func() bool {
		return promoted.HGet(ctx, "baton:{payments}:term", "last").Val() == "2" &&
			promoted.HGet(ctx, "baton:{payments}:record", "last_instance").Val() == "i-2"
	})

	master.Cut(t, testserver.ToClient)
	first := drill.Lead(t, before, "payments", "first", time.Minute)
	if err := promoted.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	after := open(t, configOf(t, replica.Direct))
	second := drill.Lead(t, after, "payments", "second", time.Minute)
	if first.Term != 3 || second.Term != first.Term {
		t.Fatalf("the terms are %d and %d: this failover was to grant one twice", first.Term, second.Term)
	}
	if g := after.Guarantees(); g.FailoverTerms {
		t.Error("the store promises that terms survive this")
	}

	// The resource lives elsewhere. Who adopts it first has it; the other learns
	// from it that its term was granted twice.
	ledger := redisfence.New(connect(t, testserver.Shared(t, testserver.Redis).URL))
	token := func(l baton.Lease) baton.Token {
		return baton.Token{Group: l.Group, Term: l.Term, InstanceID: l.InstanceID}
	}
	accounts := freshPrefix()
	if _, err := ledger.Adopt(ctx, accounts, token(first)); err != nil {
		t.Fatal(err)
	}
	key := redisfence.Key(accounts, ":balance")
	if err := ledger.Set(ctx, accounts, fence.Unordered(token(first)), key, "10", 0); err != nil {
		t.Fatal(err)
	}
	var stale *fence.StaleError
	if _, err := ledger.Adopt(ctx, accounts, token(second)); !errors.As(err, &stale) {
		t.Errorf("adopted by the second instance of term %d: %v", second.Term, err)
	}
	if err := ledger.Set(ctx, accounts, fence.Unordered(token(second)), key, "20", 0); !errors.As(err, &stale) {
		t.Errorf("a write of the second instance of term %d: %v", second.Term, err)
	}

	// Had the second one come first, the first would have been refused.
	other := freshPrefix()
	if _, err := ledger.Adopt(ctx, other, token(second)); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Adopt(ctx, other, token(first)); !errors.As(err, &stale) {
		t.Errorf("adopted by the other instance of term %d: %v", first.Term, err)
	}

	// Refused, it resigns and campaigns again. From then on the first one, who
	// still believes in its lease, is the one that is refused.
	drill.Release(t, after, second)
	third := drill.Lead(t, after, "payments", "third", time.Minute)
	if _, err := ledger.Adopt(ctx, accounts, token(third)); err != nil {
		t.Errorf("adopted in term %d: %v", third.Term, err)
	}
	if err := ledger.Set(ctx, accounts, fence.Unordered(token(first)), key, "30", 0); !errors.As(err, &stale) {
		t.Errorf("a write in term %d after term %d: %v", first.Term, third.Term, err)
	}
}
