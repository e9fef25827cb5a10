package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"baton"
	"baton/internal/testserver"
	"baton/store/remotestore"
	"baton/storetest"
	"baton/storetest/drill"
)

// shared are stores that several servers can be in front of, at an address of their own each.
var shared = map[string]func(t *testing.T) string{
	"etcd":     func(t *testing.T) string { return testserver.StartEtcd(t, 1)[0].URL + "/two-servers" },
	"redis":    func(t *testing.T) string { return testserver.Shared(t, testserver.Redis).URL + "?prefix=two-servers" },
	"postgres": func(t *testing.T) string { return testserver.Shared(t, testserver.Postgres).URL },
}

// Two servers on one store keep nothing of their own: a node that loses one
// goes on at the other, in the term that it has.
func TestTwoServersOnOneStore(t *testing.T) {
	t.Parallel()
	for name, start := range shared {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			twoServers(t, start(t))
		})
	}
}

func twoServers(t *testing.T, store string) {
	const ttl = 15 * time.Second // what is left of it before a renewal outlasts a machine that stands still
	first := startServer(t, "--store", store)
	second := startServer(t, "--store", store)
	open := func(urls ...string) *remotestore.Store {
		s, err := remotestore.New(t.Context(), remotestore.Config{Servers: urls, Timeout: drill.Unhurried})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	const group = "two-servers"
	elector, err := baton.NewElector(open(first.url, second.url), baton.Config{Group: group, NodeID: "node-1", TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = elector.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	led, err := elector.Campaign(ctx)
	if err != nil {
		t.Fatal(err)
	}

	// The group as each of them tells it, and a policy that only one was given.
	policy := "shared-policy-" + baton.NewInstanceID() // the store may be there since another run of the test
	run(t, "group", "create", policy, "--max-ttl", "7s", "--server", first.url).wants(t, 0)
	for _, s := range []serverProcess{first, second} {
		l, err := open(s.url).Get(ctx, group)
		if err != nil || l.NodeID != "node-1" || l.Term != led.Term() {
			t.Fatalf("%s tells %+v, %v: want node-1 in term %d", s.url, l, err, led.Term())
		}
	}
	r := run(t, "campaign", policy, "--ttl", "8s", "--server", second.url).wants(t, 2)
	if !strings.Contains(r.stderr, "7s") {
		t.Errorf("the second server does not know the policy that the first was given: %v", r)
	}

	first.kill9()
	// What it was promised by the first ends; what it has after that is the second's.
	promised := time.Now().Add(led.Remaining())
	eventually(t, "leading beyond what the lost server promised", func() bool {
		if !led.Valid() {
			t.Fatalf("the leadership ended with the server: %v", context.Cause(led.Context()))
		}
		return time.Now().After(promised.Add(time.Second))
	})
	survivor := open(second.url)
	if l, err := survivor.Get(ctx, group); err != nil || l.NodeID != "node-1" || l.Term != led.Term() {
		t.Fatalf("the server that is left tells %+v, %v: want node-1 in term %d", l, err, led.Term())
	}
	eventually(t, "an answer to the resignation", func() bool {
		err := led.Resign(ctx)
		if err != nil && baton.IsAnswer(err) && !errors.Is(err, baton.ErrNotLeader) {
			t.Fatal(err)
		}
		return err == nil || baton.IsAnswer(err)
	})
	next, err := survivor.Acquire(ctx, group, baton.Candidate{NodeID: "node-2", InstanceID: "i-2"}, ttl)
	if err != nil || next.Term <= led.Term() {
		t.Fatalf("after term %d the next is %d, %v", led.Term(), next.Term, err)
	}
}

// The suite through two servers on one etcd: handles of one check are at
// different servers.
func TestConformanceOfTwoServersOnOneEtcd(t *testing.T) {
	t.Parallel()
	etcd := testserver.StartEtcd(t, 1)
	var urls []string
	for range 2 {
		urls = append(urls, startServer(t, "--store", etcd[0].URL+"/suite", "--default-max-ttl", "10m").url)
	}
	storetest.Run(t, storetest.Harness{Start: func(t storetest.T) storetest.Backing {
		opened := 0
		return storetest.Backing{Open: func() baton.Store {
			opened++
			store, err := remotestore.New(t.Context(), remotestore.Config{
				Servers: []string{urls[opened%2]}, Timeout: patience, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatalf("connect: %v", err)
			}
			return store
		}}
	}})
}

// The default policy is clipped to what the store can keep; one that was asked
// for and cannot be kept is refused, at start and later.
func TestPoliciesThatTheStoreCannotKeep(t *testing.T) {
	t.Parallel()
	store := testserver.StartEtcd(t, 1)[0].URL // at least 2 s, in whole seconds
	s := startServer(t, "--store", store)
	resp, err := http.Post(s.url+"/v1/groups/g/campaign", "application/json", strings.NewReader(`{"node_id":"n","lease_ttl_ms":1000}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(body), "INVALID_TTL") || !strings.Contains(string(body), "2s to 5m0s") {
		t.Errorf("a lease of a second: %s, %v; want the default policy's 500 ms to be 2 s here", body, err)
	}
	for _, tt := range []struct {
		args []string
		says string
	}{
		{[]string{"group", "create", "g", "--min-ttl", "1s", "--server", s.url}, "2s to 10m0s, which is what the etcd store can keep"},
		{serverArgs("--store", store, "--default-min-ttl", "1s"), "the etcd store keeps leases of 2s to 10m0s"},
		{serverArgs("--store", store, "--default-max-ttl", "1500ms"), "the etcd store keeps leases of 2s to 10m0s"},
	} {
		if r := run(t, tt.args...).wants(t, 2); !strings.Contains(r.stderr, tt.says) {
			t.Errorf("%v: want %q, got %v", tt.args, tt.says, r)
		}
	}
}

// A store that is not there yet is waited for; a server that is told to stop stops.
func TestStoreThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	redis := testserver.Start(t, testserver.Redis)
	redis.Kill(t)
	waiting := start(t, serverArgs("--store", redis.URL)...)
	given := start(t, serverArgs("--store", redis.URL)...)
	for _, p := range []*process{waiting, given} {
		eventually(t, "the server to say what it waits for", func() bool { return strings.Contains(p.Errors(), "cannot be reached") })
	}
	given.Signal(syscall.SIGTERM)
	given.Wait()
	redis.Restart(t)
	s := started(t, waiting)
	run(t, "leader", "g", "--server", s.url).wants(t, 3)
	eventually(t, "the server to tell what Redis cannot promise", func() bool {
		return strings.Contains(s.Errors(), `level=INFO msg="a Redis that fails over to a replica`)
	})
	s.Signal(syscall.SIGTERM)
	s.Wait()
	if said := s.Errors(); strings.Count(said, `level=INFO msg="a Redis that fails over to a replica`) != 1 {
		t.Errorf("it tells more than once what Redis cannot promise: %s", said)
	}
}

func TestStores(t *testing.T) {
	t.Parallel()
	r := run(t, "stores").wants(t, 0)
	for _, says := range []string{"STORE", "raft", "memory", "consul", "etcd", "kubernetes", "postgres", "redis", "zookeeper", "--store redis://host:6379",
		"OPENS WITHIN  how", "EXTENDS       a", "WAITING       how", "TRANSFERS     a"} {
		if !strings.Contains(r.stdout, says) {
			t.Errorf("baton stores does not tell of %s: %v", says, r)
		}
	}
	all := decode[struct {
		Stores []struct {
			Store, URL string
			MinTTL     int64 `json:"min_ttl_ms"`
			Caveats    []string
		}
	}](t, run(t, "stores", "-o", "json").wants(t, 0).stdout)
	if len(all.Stores) != 8 {
		t.Fatalf("%d stores", len(all.Stores))
	}
	for _, s := range all.Stores {
		if s.Store == "" || s.URL == "" || s.MinTTL <= 0 || len(s.Caveats) == 0 {
			t.Errorf("%+v says too little", s)
		}
	}
}
