package redisstore_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"baton"
	"baton/internal/testserver"
	"baton/store/redisstore"
	"baton/storetest"
	"baton/storetest/drill"
	"baton/storetest/history"
)

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
	cfg.Timeout = cmp.Or(cfg.Timeout, drill.Unhurried)
	s, err := redisstore.New(t.Context(), cfg)
	return drill.Opened(t, s, err)
}

// insist opens a store whose timeout is short.
func insist(t *testing.T, cfg redisstore.Config) *redisstore.Store {
	t.Helper()
	return drill.Insist(t, func() (*redisstore.Store, error) { return redisstore.New(t.Context(), cfg) })
}

// Nothing that was acknowledged is forgotten, either.
func TestServerDown(t *testing.T) {
	t.Parallel()
	drill.Outages(t, storetest.FleetConfig{}, func(t *testing.T) drill.Site {
		server := testserver.Start(t, testserver.Redis)
		return drill.Site{Server: server, Open: func(timeout time.Duration) baton.Store {
			cfg := configOf(t, server.URL)
			cfg.Timeout = timeout
			return insist(t, cfg)
		}}
	})
}

// hook is one of the client's that does nothing; others do it for scripts.
type hook struct{}

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// unlucky are scripts on their way to Redis.
type unlucky struct {
	hook
	*drill.Luck
}

func (u unlucky) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(strings.ToLower(cmd.Name()), "eval") {
			return next(ctx, cmd)
		}
		err := u.Send(ctx, func() error { return next(ctx, cmd) }, func(ctx context.Context) error {
			return next(ctx, redis.NewCmd(ctx, cmd.Args()...))
		})
		if errors.Is(err, drill.ErrLost) {
			cmd.SetErr(err)
		}
		return err
	}
}

func TestHistoryWithRequestsLostLateAndRepeated(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Redis)
	luck := drill.NewLuck(1, 20, 1500*time.Millisecond)
	luck.Repeats = true
	f := storetest.StartFleet(t, storetest.FleetConfig{Open: func() baton.Store {
		client := connect(t, server.URL)
		s := open(t, redisstore.Config{Client: client})
		client.AddHook(unlucky{Luck: luck})
		t.Cleanup(luck.Settle)
		return s
	}})
	f.More("grants in spite of bad luck", 25)
	f.Judge(history.Options{Duplicates: true})
	luck.Settle()
}
