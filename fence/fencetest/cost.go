package fencetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Cost measures what fencing costs: with 1 and 16 writers it makes b.N writes of
// each kind, in turns that are short enough for both to see the same
// weather, and reports writes per second and their ratio (1: free; 0.85: 15%
// slower). Writers are numbered from 0, so that each can have data of its own.
func Cost(b *testing.B, unfenced, fenced func(ctx context.Context, writer int) error) {
	for _, writers := range []int{1, 16} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			kinds := [2]func(context.Context, int) error{unfenced, fenced}
			var took [2]time.Duration
			for _, k := range kinds { // connections, caches and statements are made first
				turn(b, writers, 4*writers, k)
			}
			b.ResetTimer()
			for left, odd := b.N, 0; left > 0; odd ^= 1 {
				n := min(left, 50*writers)
				for i := range kinds {
					k := i ^ odd
					took[k] += turn(b, writers, n, kinds[k])
				}
				left -= n
			}
			b.StopTimer()
			rate := func(k int) float64 { return float64(b.N) / took[k].Seconds() }
			b.ReportMetric(rate(0), "unfenced/s")
			b.ReportMetric(rate(1), "fenced/s")
			b.ReportMetric(rate(1)/rate(0), "ratio")
		})
	}
}

// turn makes n writes, shared among the writers.
func turn(b *testing.B, writers, n int, write func(context.Context, int) error) time.Duration {
	var (
		crowd sync.WaitGroup
		next  atomic.Int64
	)
	began := time.Now()
	for w := range writers {
		crowd.Go(func() {
			for next.Add(1) <= int64(n) {
				if err := write(b.Context(), w); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	crowd.Wait()
	return time.Since(began)
}
