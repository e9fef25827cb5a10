package redisfence_test

import (
	"context"
	"testing"

	"baton/fence"
	"baton/fence/fencetest"
	"baton/fence/redisfence"
)

// BenchmarkCost compares SETs of one key, fenced and not.
func BenchmarkCost(b *testing.B) {
	rdb := shared(b)
	l, a := adopted(b, rdb)
	key := redisfence.Key(resource, ":bench")
	fencetest.Cost(b,
		func(ctx context.Context, _ int) error { return rdb.Set(ctx, key, "value", 0).Err() },
		func(ctx context.Context, _ int) error {
			return l.Set(ctx, resource, fence.Unordered(a), key, "value", 0)
		})
}
