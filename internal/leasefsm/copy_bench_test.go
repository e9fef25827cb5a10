package leasefsm

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"baton"
)

// BenchmarkCopy shows for how long a copy of a million leases keeps others
// waiting: its beginning, and each step of 128 groups. Whole is all of it, which is how long
// everybody would wait if it was made at once.
func BenchmarkCopy(b *testing.B) {
	r := NewRecord()
	for i := range 1_000_000 {
		r.Apply(Acquire{Group: fmt.Sprintf("group-%07d", i), Candidate: baton.Candidate{NodeID: "node-1", InstanceID: baton.NewInstanceID()}, TTL: time.Minute})
	}
	var begins, steps, wholes []time.Duration
	for b.Loop() {
		began := time.Now()
		c := r.Copy()
		begins = append(begins, time.Since(began))
		for more := true; more; {
			step := time.Now()
			more = c.Next(128)
			steps = append(steps, time.Since(step))
		}
		c.Close()
		_ = c.Bytes()
		wholes = append(wholes, time.Since(began))
	}
	report := func(name string, all []time.Duration, quantile float64) {
		slices.Sort(all)
		b.ReportMetric(float64(all[int(quantile*float64(len(all)-1))].Microseconds()), name)
	}
	report("begin-µs", begins, 1)
	report("step-p50-µs", steps, 0.5)
	report("step-p99-µs", steps, 0.99)
	report("whole-p50-µs", wholes, 0.5)
}
