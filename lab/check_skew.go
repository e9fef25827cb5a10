package lab

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Skewed: every node's wall clock was off by what it was to be, and not all by the same.
var Skewed = Check{"clocks are off by -200 ms to +200 ms", Shown, func(r *Record) (bool, string) {
	var wrong []string
	seen := map[time.Duration]bool{}
	for node, by := range r.Skew {
		seen[by] = true
		if off := r.skewOf(node) - by; off.Abs() > maxStep {
			wrong = append(wrong, fmt.Sprintf("%s is off by %v more than it should be", node, off.Round(time.Millisecond)))
		}
	}
	slices.Sort(wrong)
	if len(wrong) > 0 {
		return false, strings.Join(wrong, "; ")
	}
	return len(seen) > 1, fmt.Sprintf("%d nodes, %d different skews", len(r.Skew), len(seen))
}}

// skewOf is what a node's wall clock was off by, as its events show: the least of
// all, since a node may be held up between its readings of two clocks.
func (r *Record) skewOf(node string) time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, e := range r.Events {
		if e.Node == node {
			least = min(least, time.Duration(r.Clock.at(e.WallMS*int64(time.Millisecond))-e.At))
		}
	}
	return least
}
