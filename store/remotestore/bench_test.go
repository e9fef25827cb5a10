package remotestore_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"baton"
	"baton/store/remotestore"
)

// BenchmarkHandover measures how long a group has no leader when its leader
// resigns and others wait in line: from before the release is sent until the next one
// has its lease, over loopback TCP. rtt-p50 is a request that does nothing, on the same connection pool.
func BenchmarkHandover(b *testing.B) {
	for _, waiting := range []int{1, 9} {
		b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) { benchHandover(b, waiting) })
	}
}

func benchHandover(b *testing.B, waiting int) {
	server := serve(b, newHandler(b, newMemory(b)))
	store, err := remotestore.New(b.Context(), remotestore.Config{Servers: []string{server.URL}, Logger: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	var candidates sync.WaitGroup
	defer candidates.Wait()
	defer func() { _ = store.Close() }() // ends their waits
	ctx := b.Context()

	type won struct {
		lease baton.Lease
		at    time.Time
	}
	wins := make(chan won)
	// The one who resigned comes back only after another has won.
	compete := func() {
		c := candidate("n")
		for {
			if err := store.Await(ctx, "g", c); err != nil {
				return
			}
			lease, err := store.Acquire(ctx, "g", c, time.Minute)
			if err == nil {
				wins <- won{lease, time.Now()}
				return
			}
		}
	}
	for range waiting + 1 {
		candidates.Go(compete)
	}
	now := <-wins
	gaps := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for range b.N {
		sent := time.Now()
		if err := store.Release(ctx, now.lease.ID()); err != nil {
			b.Fatal(err)
		}
		now = <-wins
		gaps = append(gaps, now.at.Sub(sent))
		candidates.Go(compete)
	}
	b.StopTimer()
	report(b, "gap", gaps)
	trips := make([]time.Duration, 0, 1000)
	for range cap(trips) {
		sent := time.Now()
		if _, err := store.Client().Leader(ctx, "empty"); err != nil {
			b.Fatal(err)
		}
		trips = append(trips, time.Since(sent))
	}
	report(b, "rtt", trips)
}

func report(b *testing.B, name string, all []time.Duration) {
	slices.Sort(all)
	for _, p := range []int{50, 99} {
		at := all[min(len(all)-1, len(all)*p/100)]
		b.ReportMetric(float64(at.Microseconds())/1000, fmt.Sprintf("%s-p%d-ms", name, p))
	}
}
