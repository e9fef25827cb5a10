package redisfence_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"baton/fence"
	"baton/fence/redisfence"
)

// BenchmarkSet measures the cost of safety: fenced and unfenced SETs take turns
// in one run. The metric fenced/unfenced is the ratio of their throughputs.
func BenchmarkSet(b *testing.B) {
	for _, writers := range []int{1, 16} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			rdb := shared(b)
			l, a := adopted(b, rdb)
			key := redisfence.Key(resource, ":bench")
			compare(b, writers,
				func(ctx context.Context) error { return rdb.Set(ctx, key, "value", 0).Err() },
				func(ctx context.Context) error { return l.Set(ctx, resource, fence.Unordered(a), key, "value", 0) })
		})
	}
}

func compare(b *testing.B, writers int, unfenced, fenced func(ctx context.Context) error) {
	const turn = 64 // writes per writer before the other kind has its turn
	var spent [2]time.Duration
	rounds := 0
	for b.Loop() {
		for kind, write := range []func(context.Context) error{unfenced, fenced} {
			began := time.Now()
			var all sync.WaitGroup
			for range writers {
				all.Go(func() {
					for range turn {
						if err := write(b.Context()); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			spent[kind] += time.Since(began)
		}
		rounds++
	}
	writes := float64(rounds * turn * writers)
	b.ReportMetric(0, "ns/op") // of a whole round: says nothing
	b.ReportMetric(writes/spent[0].Seconds(), "unfenced/s")
	b.ReportMetric(writes/spent[1].Seconds(), "fenced/s")
	b.ReportMetric(spent[0].Seconds()/spent[1].Seconds(), "fenced/unfenced")
}
