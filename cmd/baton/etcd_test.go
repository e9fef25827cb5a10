package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"baton"
	"baton/internal/testserver"
	"baton/store/remotestore"
	"baton/storetest"
)

// Two servers on one etcd keep nothing of their own: a node that loses one goes
// on at the other, in the term that it has.
func TestTwoServersOnOneEtcd(t *testing.T) {
	t.Parallel()
	etcd := testserver.StartEtcd(t, 1)
	first := startServer(t, "--store", etcd[0].URL+"/two-servers")
	second := startServer(t, "--store", etcd[0].URL+"/two-servers")
	open := func(urls ...string) *remotestore.Store {
		s, err := remotestore.New(t.Context(), remotestore.Config{Servers: urls})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	const group = "two-servers"
	elector, err := baton.NewElector(open(first.url, second.url), baton.Config{Group: group, NodeID: "node-1", TTL: 3 * time.Second})
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
	run(t, "group", "create", "shared-policy", "--max-ttl", "7s", "--server", first.url).wants(t, 0)
	for _, s := range []serverProcess{first, second} {
		l, err := open(s.url).Get(ctx, group)
		if err != nil || l.NodeID != "node-1" || l.Term != led.Term() {
			t.Fatalf("%s tells %+v, %v: want node-1 in term %d", s.url, l, err, led.Term())
		}
	}
	r := run(t, "campaign", "shared-policy", "--ttl", "8s", "--server", second.url).wants(t, 2)
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
	if err := led.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	next, err := survivor.Acquire(ctx, group, baton.Candidate{NodeID: "node-2", InstanceID: "i-2"}, 3*time.Second)
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
