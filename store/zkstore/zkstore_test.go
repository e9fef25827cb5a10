package zkstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"baton"
	"baton/internal/testserver"
	"baton/store/zkstore"
	"baton/storetest/drill"
)

// Somebody removes the record while it is held. The group opens, which is what they asked for; the next term is above
// the one that was lost, and the holder's renewal, which names versions that the new record has too, is refused.
func TestRecordRemovedByHand(t *testing.T) {
	t.Parallel()
	const prefix = "/removed"
	a, another := one(t, prefix)
	b := another()
	conn := raw(t, testserver.Shared(t, testserver.ZooKeeper))
	old := lead(t, a, "g", "old", time.Minute)
	remove(t, conn, prefix+"/leases/g")
	now := lead(t, b, "g", "new", time.Minute)
	if now.Term <= old.Term {
		t.Errorf("term %d after %d", now.Term, old.Term)
	}
	if _, err := a.Renew(t.Context(), old.ID(), time.Minute); !errors.Is(err, baton.ErrNotLeader) {
		t.Errorf("renewal of the leadership that was removed: %v", err)
	}
	if err := a.Release(t.Context(), old.ID()); !errors.Is(err, baton.ErrNotLeader) {
		t.Errorf("release of the leadership that was removed: %v", err)
	}
	if l, err := a.Get(t.Context(), "g"); err != nil || l.ID() != now.ID() {
		t.Errorf("get: %+v, %v", l, err)
	}
}

// Somebody removes the znode with the term. The record has it too.
func TestTermRemovedByHand(t *testing.T) {
	t.Parallel()
	const prefix = "/term-removed"
	s, another := one(t, prefix)
	conn := raw(t, testserver.Shared(t, testserver.ZooKeeper))
	l := lead(t, s, "g", "i-1", time.Minute)
	remove(t, conn, prefix+"/terms/g")
	if _, err := s.Renew(t.Context(), l.ID(), time.Minute); err != nil {
		t.Errorf("renewal: %v", err)
	}
	remove(t, conn, prefix+"/terms/g")
	if err := s.Release(t.Context(), l.ID()); err != nil {
		t.Errorf("release: %v", err)
	}
	if next := lead(t, another(), "g", "i-2", time.Minute); next.Term <= l.Term {
		t.Errorf("term %d after %d", next.Term, l.Term)
	}
}

// All znodes are removed: the store makes them again and goes on. Terms start over, as they must.
func TestEverythingRemovedByHand(t *testing.T) {
	t.Parallel()
	const prefix = "/all-removed"
	s, _ := one(t, prefix)
	conn := raw(t, testserver.Shared(t, testserver.ZooKeeper))
	for _, f := range []string{"leases", "terms", "past", "line", "policies"} {
		remove(t, conn, prefix+"/"+f)
	}
	remove(t, conn, prefix)
	if l, err := s.Get(t.Context(), "g"); err != nil || l.Held() {
		t.Errorf("get: %+v, %v", l, err)
	}
	lead(t, s, "g", "i-1", time.Minute)
}

// An operator who restored a backup says which terms may have been used since.
func TestGrantsAreAboveTheFloor(t *testing.T) {
	t.Parallel()
	const prefix = "/floor"
	s, another := one(t, prefix)
	conn := raw(t, testserver.Shared(t, testserver.ZooKeeper))
	l := lead(t, s, "used", "i-1", time.Minute)
	if _, err := conn.Create(prefix+"/floor", []byte("1000000\n"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if err := s.Release(t.Context(), l.ID()); err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"used", "new"} {
		if l := lead(t, another(), group, "i-2", time.Minute); l.Term != 1000001 {
			t.Errorf("term %d of group %s: want the first above the floor", l.Term, group)
		}
	}
	if _, err := conn.Set(prefix+"/floor", []byte("many"), -1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(t.Context(), "other", baton.Candidate{NodeID: "n", InstanceID: "i"}, time.Minute); !errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("acquire above a floor that is no number: %v", err)
	}
}

// A watch may miss what happens while there is no connection, so it counts for the one that it was set on.
func TestTheFloorIsReadAgainOnANewConnection(t *testing.T) {
	t.Parallel()
	const prefix = "/floor-missed"
	s, _ := one(t, prefix)
	conn := raw(t, testserver.Shared(t, testserver.ZooKeeper))
	lead(t, s, "before", "i-1", time.Minute)
	s.MissFloor()
	if _, err := conn.Create(prefix+"/floor", []byte("1000000"), 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	s.HangUp()
	if l := lead(t, s, "after", "i-1", time.Minute); l.Term != 1000001 {
		t.Errorf("term %d: want the first above the floor", l.Term)
	}
}

// What a group's deletion keeps is its term and nothing else.
func TestDeletionKeepsTheTermOnly(t *testing.T) {
	t.Parallel()
	const prefix = "/deleted"
	s, another := one(t, prefix)
	conn := raw(t, testserver.Shared(t, testserver.ZooKeeper))
	l := lead(t, s, "g", "i-1", time.Minute)
	if err := s.Release(t.Context(), l.ID()); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteGroup(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	if there, _, err := conn.Exists(prefix + "/leases/g"); err != nil || there {
		t.Errorf("the record is still there: %t, %v", there, err)
	}
	next := lead(t, another(), "g", "i-1", time.Minute) // the instance is forgotten too
	if next.Term <= l.Term {
		t.Errorf("term %d after %d", next.Term, l.Term)
	}
	past, err := s.History(t.Context(), "g")
	if err != nil || len(past) != 1 || past[0].Term != next.Term {
		t.Errorf("the history of the new group is %+v, %v", past, err)
	}
}

// A registration that was deleted and made again is not changed by who knew the one before.
func TestRegistrationMadeAgainHasAVersionOfItsOwn(t *testing.T) {
	t.Parallel()
	s, another := one(t, "/registered")
	first, err := s.PutGroup(t.Context(), baton.Group{ID: "g"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteGroup(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutGroup(t.Context(), baton.Group{ID: "g"}); err != nil {
		t.Fatal(err)
	}
	if _, err := another().PutGroup(t.Context(), first); !errors.Is(err, baton.ErrConflict) {
		t.Errorf("put with the version of the registration before: %v", err)
	}
}

// A digest is what ZooKeeper lets in by: it takes any password, and refuses the znodes.
func TestCredentials(t *testing.T) {
	t.Parallel()
	server := testserver.Shared(t, testserver.ZooKeeper)
	address := hosts(server)[0]
	s, err := drill.Answered(t, zkstore.Open, "zookeeper://baton:secret@"+address+"/owned")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	l := lead(t, s, "g", "i-1", time.Minute)
	for who, address := range map[string]string{
		"a stranger":                 "zookeeper://" + address + "/owned",
		"one with a wrong password":  "zookeeper://baton:wrong@" + address + "/owned",
		"another user":               "zookeeper://other:secret@" + address + "/owned",
		"a stranger, below the node": "zookeeper://" + address + "/owned/below",
	} {
		other, err := drill.Answered(t, zkstore.Open, address)
		if err == nil {
			_ = other.Close()
		}
		if !errors.Is(err, baton.ErrNotAllowed) {
			t.Errorf("open by %s: %v, want ErrNotAllowed", who, err)
		}
	}
	conn := raw(t, server)
	if _, _, err := conn.Get("/owned/leases/g"); !errors.Is(err, zk.ErrNoAuth) {
		t.Errorf("anybody may read the record: %v", err)
	}
	server2, err := drill.Answered(t, zkstore.Open, "zookeeper://baton:secret@"+address+"/owned")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server2.Close() }()
	if now, err := server2.Get(t.Context(), "g"); err != nil || now.ID() != l.ID() {
		t.Errorf("get with the right password: %+v, %v", now, err)
	}
}

// The digest is sent again on every new connection.
func TestCredentialsSurviveAReconnect(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.ZooKeeper)
	s := open(t, zkstore.Config{Servers: hosts(server), Username: "baton", Password: "secret"})
	l := lead(t, s, "g", "i-1", baton.MaxTTL)
	server.Refuse(t)
	server.Heal(t)
	if now, err := s.Renew(t.Context(), l.ID(), time.Minute); err != nil || now.ID() != l.ID() {
		t.Errorf("renew after a reconnect: %v", err)
	}
}

func TestOpenWhereNobodyIs(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	for what, listens := range map[string]bool{"a server that says nothing": true, "no server": false} {
		if !listens {
			_ = l.Close()
		}
		ctx, cancel := context.WithTimeout(t.Context(), drill.Patience)
		s, err := zkstore.New(ctx, zkstore.Config{Servers: []string{address}, Timeout: 500 * time.Millisecond})
		if err == nil {
			_ = s.Close()
		}
		if !errors.Is(err, baton.ErrUnavailable) || strings.Count(fmt.Sprint(err), address) != 1 {
			t.Errorf("open at %s: %v, want ErrUnavailable that names the address once", what, err)
		}
		cancel()
	}
}

// A store that nobody asked before counts from when it first looks.
func TestAFreshObserverCountsAWholeTTL(t *testing.T) {
	t.Parallel()
	s, another := one(t, "/fresh")
	l := lead(t, s, "g", "i-1", 5*time.Second)
	fresh := another()
	before := time.Now()
	var held *baton.HeldError
	if _, err := fresh.Acquire(t.Context(), "g", baton.Candidate{NodeID: "n", InstanceID: "i"}, time.Minute); !errors.As(err, &held) || held.RetryAfter <= 0 {
		t.Fatalf("acquire of a held group: %v", err)
	}
	drill.Eventually(t, "the group to open", func() bool {
		_, err := fresh.Acquire(t.Context(), "g", baton.Candidate{NodeID: "n", InstanceID: "i"}, time.Minute)
		return err == nil
	})
	if took := time.Since(before); took < l.TTL {
		t.Errorf("the group opened %v after it was first seen held: want no less than the TTL", took)
	}
}
