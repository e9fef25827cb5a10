package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// rank orders the facts of a group by what they show: terms only rise, and within a term the group is
// led, then opened, then vacant. ok is false for those that fit at more than one place.
func (f fact) rank() (r uint64, ok bool) {
	const perTerm = 3
	switch f.what {
	case granted, landed, renewed, stands:
		return uint64(f.term) * perTerm, true
	case released, cut:
		return uint64(f.term)*perTerm + 1, true
	case vacant:
		return uint64(f.term)*perTerm + 2, true
	}
	return 0, false
}

// narrow shrinks the interval of each fact to what the others leave it: it came after all of lower rank and before all
// of higher rank. The search would come to the same, but would try every other order first. If
// nothing is left of an interval, no order exists, and narrow says why.
func (ev *evidence) narrow() (contradiction string) {
	var ranked []*fact
	for i := range ev.facts {
		if _, ok := ev.facts[i].rank(); ok {
			ranked = append(ranked, &ev.facts[i])
		}
	}
	slices.SortStableFunc(ranked, func(a, b *fact) int {
		ra, _ := a.rank()
		rb, _ := b.rank()
		return cmp.Compare(ra, rb)
	})
	latest := edge{order: math.MinInt64}
	eachRank(ranked, func(same []*fact) {
		next := latest
		for _, f := range same {
			if f.began > next.order {
				next = edge{order: f.began, fact: *f}
			}
			if latest.order > f.ended && contradiction == "" {
				contradiction = fmt.Sprintf("this answer fits no order of events:\n  %v\nit came before this was even asked:\n  %v\n", *f, latest.fact)
			}
			f.began = min(max(f.began, latest.order), f.ended)
		}
		latest = next
	})
	slices.Reverse(ranked)
	earliest, by := int64(math.MaxInt64), time.Duration(math.MaxInt64)
	eachRank(ranked, func(same []*fact) {
		nextEarliest, nextBy := earliest, by
		for _, f := range same {
			nextEarliest, nextBy = min(nextEarliest, f.ended), min(nextBy, f.ret)
			f.ended, f.ret = max(min(f.ended, earliest), f.began), min(f.ret, by)
		}
		earliest, by = nextEarliest, nextBy
	})
	return contradiction
}

type edge struct {
	order int64
	fact  fact
}

// eachRank calls f with each run of facts of one rank.
func eachRank(ranked []*fact, f func(same []*fact)) {
	for len(ranked) > 0 {
		r, _ := ranked[0].rank()
		n := 1
		for n < len(ranked) {
			if next, _ := ranked[n].rank(); next != r {
				break
			}
			n++
		}
		f(ranked[:n])
		ranked = ranked[n:]
	}
}
