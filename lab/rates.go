package lab

import (
	"fmt"
	"slices"
	"time"
)

// RateTally is how many numbers clients were given, second by second.
type RateTally struct {
	// Seconds are whole ones, from the first answer on.
	Seconds []int `json:"seconds"`
	// Mean and Least are over all of them, Median is their middle.
	Mean   float64 `json:"mean"`
	Median int     `json:"median"`
	Least  int     `json:"least"`
	// P50MS and P99MS are how long answers took.
	P50MS float64 `json:"p50_ms"`
	P99MS float64 `json:"p99_ms"`
}

// Rates sums up the answers that came from a moment on.
func (r *Record) Rates() RateTally {
	var t RateTally
	if len(r.Answers) == 0 {
		return t
	}
	first, last := r.Answers[0].Received, r.Answers[len(r.Answers)-1].Received
	t.Seconds = make([]int, (last-first)/int64(time.Second))
	var took []float64
	for _, a := range r.Answers {
		if i := int((a.Received - first) / int64(time.Second)); i < len(t.Seconds) {
			t.Seconds[i]++
		}
		took = append(took, millis(a.Received-a.Sent))
	}
	t.P50MS, t.P99MS = Percentile(took, 50), Percentile(took, 99)
	if len(t.Seconds) == 0 {
		return t
	}
	sum := 0
	for _, n := range t.Seconds {
		sum += n
	}
	sorted := slices.Sorted(slices.Values(t.Seconds))
	t.Mean, t.Median, t.Least = float64(sum)/float64(len(sorted)), sorted[len(sorted)/2], sorted[0]
	return t
}

// Served: in the middle second clients were given at least so many numbers.
func Served(perSecond int) Check {
	return Check{fmt.Sprintf("at least %d numbers per second, each after a fenced commit", perSecond), Target, func(r *Record) (bool, string) {
		t := r.Rates()
		return t.Median >= perSecond, fmt.Sprintf("median second %d, mean %.0f, least %d; answers took p50 %.1f ms, p99 %.1f ms", t.Median, t.Mean, t.Least, t.P50MS, t.P99MS)
	}}
}
