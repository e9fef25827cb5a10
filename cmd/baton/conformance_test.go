package main

import (
	"log/slog"
	"testing"

	"baton"
	"baton/store/remotestore"
	"baton/storetest"
)

// Two processes: the suite here, the server there.
func TestConformance(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--default-min-ttl", "10ms", "--default-max-ttl", "10m")
	storetest.Run(t, storetest.Harness{Start: func(t storetest.T) storetest.Backing {
		return storetest.Backing{Open: func() baton.Store {
			store, err := remotestore.New(t.Context(), remotestore.Config{Servers: []string{s.url}, Timeout: patience, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatalf("connect: %v", err)
			}
			return store
		}}
	}})
}
