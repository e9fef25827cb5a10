package redisstore_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"baton"
	"baton/internal/leak"
	"baton/internal/testserver"
	"baton/store/redisstore"
	"baton/storetest"
	"baton/storetest/drill"
)

func TestMain(m *testing.M) {
	logging.Disable() // the client says on stderr how often it could not connect
	leak.Main(m)
}

// prefixes counts, so that each check has one of its own.
var prefixes atomic.Int64

func freshPrefix() string { return fmt.Sprintf("test-%d", prefixes.Add(1)) }

// harness gives every check a prefix of its own in one Redis.
func harness(cfg redisstore.Config, restart func()) storetest.Harness {
	cfg.Timeout = drill.Unhurried
	return storetest.Harness{Start: func(t storetest.T) storetest.Backing {
		cfg := cfg
		cfg.Prefix = freshPrefix()
		return storetest.Backing{
			Open: func() baton.Store {
				s, err := redisstore.New(t.Context(), cfg)
				if err != nil {
					t.Fatalf("open: %v", err)
				}
				return s
			},
			Restart: restart,
		}
	}}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Redis)
	storetest.Run(t, harness(configOf(t, server.URL), func() {
		server.Kill(t)
		server.Restart(t)
	}))
}

// A cluster refuses scripts whose keys are in different slots; ours never are.
func TestConformanceInACluster(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Redis, testserver.Setting("cluster-enabled", "yes"))
	if err := connect(t, server.Direct).ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	// The node tells its own address, which is not the proxy's.
	cfg := configOf(t, server.Direct)
	cfg.Cluster = true
	drill.Eventually(t, "the cluster to be ready", func() bool {
		s, err := redisstore.Open(t.Context(), server.Direct+"?cluster=true")
		if err != nil {
			return false
		}
		defer func() { _ = s.Close() }()
		_, err = s.Get(t.Context(), "g")
		return err == nil
	})
	storetest.Run(t, harness(cfg, nil))
}

func TestConformanceBehindAFaultyNetwork(t *testing.T) {
	t.Parallel()
	storetest.RunFaulty(t, harness(configOf(t, testserver.Start(t, testserver.Redis).URL), nil), 1, 2)
}

// connect is a client to look and to meddle.
func connect(t *testing.T, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = drill.Unhurried, drill.Unhurried, drill.Unhurried
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
