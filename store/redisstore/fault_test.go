package redisstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"baton"
	"baton/internal/testserver"
	"baton/store/redisstore"
	"baton/storetest"
	"baton/storetest/history"
)

// patience is far beyond what anything here takes.
const patience = time.Minute

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("still not after %v: %s", patience, what)
		}
	}
}

// configOf is that of a server, as its clients reach it.
func configOf(t *testing.T, url string) redisstore.Config {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	return redisstore.Config{Addresses: []string{o.Addr}, Password: o.Password}
}

func open(t *testing.T, cfg redisstore.Config) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// While Redis is gone everything says so in bounded time; when it is back, the
// same stores go on, and nothing that was acknowledged is forgotten.
func TestServerDown(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		often      bool
		begin, end func(*testing.T, *testserver.Server)
	}{
		"killed": {true, func(t *testing.T, s *testserver.Server) { s.Kill(t) }, func(t *testing.T, s *testserver.Server) { s.Restart(t) }},
		"paused": {true, func(t *testing.T, s *testserver.Server) { s.Pause(t) }, func(t *testing.T, s *testserver.Server) { s.Resume(t) }},
		"cut-off": {
			false, func(t *testing.T, s *testserver.Server) { s.Cut(t, testserver.BothWays) },
			func(t *testing.T, s *testserver.Server) { s.Heal(t) },
		},
		"answers-lost": {
			false, func(t *testing.T, s *testserver.Server) { s.Cut(t, testserver.ToClient) },
			func(t *testing.T, s *testserver.Server) { s.Refuse(t); s.Heal(t) },
		},
		"refusing": {
			false, func(t *testing.T, s *testserver.Server) { s.Refuse(t) },
			func(t *testing.T, s *testserver.Server) { s.Heal(t) },
		},
	} {
		if !fault.often && !storetest.AllFaults() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testserver.Start(t, testserver.Redis)
			cfg := configOf(t, server.URL)
			cfg.Timeout = 2 * time.Second
			f := storetest.StartFleet(t, storetest.FleetConfig{Open: func() baton.Store { return open(t, cfg) }})
			f.More("grants before the fault", 10)
			o := storetest.BeforeOutage(t, open(t, cfg))
			// Longer than the leases of the fleet, since every call takes the timeout.
			fault.begin(t, server)
			o.During()
			fault.end(t, server)
			o.After()
			f.More("grants after the fault", 10)
			f.Judge(history.Options{})
		})
	}
}

// badLuck is what happens to single requests on their way to Redis.
type badLuck struct {
	mu   sync.Mutex
	rng  *rand.Rand
	late sync.WaitGroup
}

var errLostOnTheWay = errors.New("lost on the way")

func (b *badLuck) draw() (fate int, after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rng.IntN(20), time.Duration(b.rng.Int64N(int64(1500 * time.Millisecond)))
}

func (b *badLuck) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (b *badLuck) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b *badLuck) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(strings.ToLower(cmd.Name()), "eval") {
			return next(ctx, cmd)
		}
		fate, after := b.draw()
		later := func() {
			b.late.Go(func() {
				<-time.After(after)
				_ = next(context.WithoutCancel(ctx), redis.NewCmd(ctx, cmd.Args()...))
			})
		}
		lost := func() error { cmd.SetErr(errLostOnTheWay); return errLostOnTheWay }
		switch fate {
		case 0: // the request is lost
			return lost()
		case 1: // the answer is lost
			_ = next(ctx, cmd)
			return lost()
		case 2: // the request comes when nobody waits for it any more
			later()
			return lost()
		case 3: // the request comes again later
			later()
		case 4: // the client repeats it, as one with retries does when it hears nothing
			_ = next(ctx, redis.NewCmd(ctx, cmd.Args()...))
		}
		return next(ctx, cmd)
	}
}

func TestHistoryWithRequestsLostLateAndRepeated(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Redis)
	luck := &badLuck{rng: rand.New(rand.NewPCG(1, 2))}
	f := storetest.StartFleet(t, storetest.FleetConfig{Open: func() baton.Store {
		client := connect(t, server.URL)
		s := open(t, redisstore.Config{Client: client})
		client.AddHook(luck)
		t.Cleanup(luck.late.Wait)
		return s
	}})
	f.More("grants in spite of bad luck", 25)
	f.Judge(history.Options{Duplicates: true})
	luck.late.Wait()
}
