package lab

import "time"

// SweepPoint is what one TTL costs, by the sweep.
type SweepPoint struct {
	TTL time.Duration
	// Failover is what the kill cost: how long nobody wrote.
	Failover time.Duration
	// Stumbles is how many there were, False how many of them unseated a leader
	// that was well, FalseGap how long nobody wrote each time, on average.
	Stumbles, False int
	FalseGap        time.Duration
	// Longest is the longest pause that did not.
	Longest time.Duration
}

// SweepPoints are those of a sweep's result, by TTL.
func SweepPoints(r Result) []SweepPoint {
	var all []SweepPoint
	for _, a := range r.Arms {
		p := SweepPoint{TTL: time.Duration(a.TTLMS) * time.Millisecond}
		for _, f := range a.Faults {
			if f.Kind == KindKill {
				continue
			}
			p.Stumbles++
			if f.Unseated {
				p.False++
			} else if f.Kind == KindFreeze {
				p.Longest = max(p.Longest, time.Duration(f.Ended-f.Began))
			}
		}
		var gaps float64
		for _, f := range a.Failovers {
			if f.Fault == KindKill {
				p.Failover = time.Duration(f.GapMS * float64(time.Millisecond))
			} else {
				gaps += f.GapMS
			}
		}
		if p.False > 0 {
			p.FalseGap = time.Duration(gaps / float64(p.False) * float64(time.Millisecond))
		}
		all = append(all, p)
	}
	return all
}

// A month as the choice of a TTL supposes it: crashes of leaders, and stumbles
// as the sweep has them.
const (
	CrashesAMonth  = 4
	StumblesAMonth = 400
)

// Dark is how long nobody writes in such a month.
func (p SweepPoint) Dark() time.Duration {
	dark := CrashesAMonth * p.Failover
	if p.Stumbles > 0 {
		dark += time.Duration(float64(StumblesAMonth) * float64(p.False) / float64(p.Stumbles) * float64(p.FalseGap))
	}
	return dark
}

// Knee is the point with the least of it; false if there are fewer than two.
func Knee(points []SweepPoint) (SweepPoint, bool) {
	if len(points) < 2 {
		return SweepPoint{}, false
	}
	best := points[0]
	for _, p := range points[1:] {
		if p.Dark() < best.Dark() {
			best = p
		}
	}
	return best, true
}
