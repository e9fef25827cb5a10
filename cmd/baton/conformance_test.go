package main

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"

	"baton"
	"baton/store/remotestore"
	"baton/storetest"
)

// Two processes: the suite here, the server there.
func TestConformance(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--default-min-ttl", "10ms", "--default-max-ttl", "10m")
	conform(t, []string{s.url})
}

// Four processes: the suite here, and three servers of a cluster there. Each
// client begins with another one of them.
func TestConformanceOfACluster(t *testing.T) {
	t.Parallel()
	// The order of the line is the leader's to know: one that stands still for a second or two stays it.
	c := newCluster(t, "--default-min-ttl", "100ms", "--election-timeout", "10s")
	conform(t, c.urls(c.ids...))
	c.agree()
}

func conform(t *testing.T, servers []string) {
	t.Helper()
	var next atomic.Int64
	storetest.Run(t, storetest.Harness{Start: func(t storetest.T) storetest.Backing {
		return storetest.Backing{Open: func() baton.Store {
			first := int(next.Add(1)) % len(servers)
			store, err := remotestore.New(t.Context(), remotestore.Config{
				Servers: append(slices.Clone(servers[first:]), servers[:first]...), Timeout: patience, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatalf("connect: %v", err)
			}
			return store
		}}
	}})
}
