package redisfence_test

import (
	"context"
	"errors"
	"log"

	"github.com/redis/go-redis/v9"

	"baton"
	"baton/fence"
	"baton/fence/redisfence"
)

// A leader adopts what it will write, reads, and writes under its token.
func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379", ContextTimeoutEnabled: true})
	ledger := redisfence.New(rdb)
	var elector baton.Elector // over any store

	err := baton.Run(context.Background(), elector, func(ctx context.Context, l *baton.Leadership) error {
		if _, err := ledger.Adopt(ctx, "orders", l.Token()); err != nil {
			return err
		}
		total, err := rdb.Get(ctx, redisfence.Key("orders", ":total")).Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		// Refused if a later leader has adopted, however long we slept since.
		return ledger.Set(ctx, "orders", fence.Unordered(l.Token()), redisfence.Key("orders", ":total"), total+1, 0)
	})
	if err != nil {
		log.Print(err)
	}
}

// A script of one's own runs only if the claim is let in.
func ExampleNewScript() {
	move, err := redisfence.NewScript(`
		local job = redis.call('LPOP', KEYS[1])
		if job then redis.call('RPUSH', KEYS[2], job) end
		return job`)
	if err != nil {
		log.Fatal(err)
	}
	start := func(ctx context.Context, ledger *redisfence.Ledger, c fence.Claim) (any, error) {
		waiting, running := redisfence.Key("jobs", ":waiting"), redisfence.Key("jobs", ":running")
		return ledger.Run(ctx, "jobs", c, move, []string{waiting, running})
	}
	_ = start
}
