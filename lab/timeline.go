package lab

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"baton"
	"baton/internal/fleet"
)

// Interval is a time in which a leadership acted.
type Interval struct {
	Node string     `json:"node"`
	Term baton.Term `json:"term"`
	From int64      `json:"from_ns"`
	To   int64      `json:"to_ns"`
}

// Belief are the times in which nodes acted as leaders, as they logged it
// themselves, without those in which they were frozen: who does not run does
// not act. A node that was killed acted until it had been, or its process was seen to be gone.
func (r *Record) Belief() []Interval {
	return r.acting(func(_ held, ended int64) int64 { return ended })
}

// acting is Belief with other ends for those whose work is known to have ended.
func (r *Record) acting(until func(k held, ended int64) int64) []Interval {
	open := map[held]int64{}
	var acting []Interval
	end := func(k held, at int64) {
		if from, ok := open[k]; ok {
			acting = append(acting, Interval{k.node, k.term, from, at})
			delete(open, k)
		}
	}
	exits := slices.Clone(r.Exits)
	slices.SortFunc(exits, func(a, b Exit) int { return cmp.Compare(a.At, b.At) })
	endOf := func(node string, at int64) int64 {
		for _, x := range exits {
			if x.Node == node && x.At >= at {
				return r.killed(node, at, x.At)
			}
		}
		return r.Ended
	}
	for _, e := range r.Events {
		k := held{e.Node, e.Term, e.Instance}
		switch e.Type {
		case fleet.ActingBegan:
			open[k] = e.At
		case fleet.ActingEnded:
			end(k, min(max(until(k, e.At), open[k]), max(r.Ended, open[k])))
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(open), func(a, b held) int { return cmp.Compare(a.term, b.term) }) {
		end(k, endOf(k.node, open[k]))
	}
	acting = slices.DeleteFunc(r.thaw(acting), func(i Interval) bool { return i.To <= i.From })
	slices.SortFunc(acting, func(a, b Interval) int { return cmp.Compare(a.From, b.From) })
	return acting
}

// held names a leadership by who logged it.
type held struct {
	node     string
	term     baton.Term
	instance string
}

// killed is when a node that acted at from and was gone at gone had been killed; else gone. What is killed runs
// no more, but for a system call that it may be in; how long the machine takes to bury it says nothing about when it last acted.
func (r *Record) killed(node string, from, gone int64) int64 {
	for _, f := range r.Faults {
		if f.Kind == KindKill && f.Node == node && f.Done >= from {
			gone = min(gone, f.Done)
		}
	}
	return gone
}

// Acting is Belief, but for leaderships that found out themselves that their work had gone on past their
// lease, and whose work did end: they acted for as long as they trusted their lease, and until the last
// thing that they did. Work that stands still when it is to stop, with its whole machine or
// alone, comes to its end late and harms nobody.
func (r *Record) Acting() []Interval {
	trusted, last := map[held]int64{}, map[held]int64{}
	for _, e := range r.Events {
		k := held{e.Node, e.Term, e.Instance}
		switch e.Type {
		case fleet.Overrun:
			trusted[k] = max(trusted[k], e.At-e.Nanos)
		case fleet.Worked:
			last[k] = max(last[k], e.At)
		case fleet.ActingEnded:
			last[k] = max(last[k], e.SentAt)
		}
	}
	return r.acting(func(k held, ended int64) int64 {
		if until, overran := trusted[k]; overran {
			return min(ended, max(until, last[k]))
		}
		return ended
	})
}

// thaw cuts out the times in which a node was frozen.
func (r *Record) thaw(acting []Interval) []Interval {
	for _, f := range r.Faults {
		if f.Kind != KindFreeze {
			continue
		}
		var parts []Interval
		for _, i := range acting {
			began := cmp.Or(f.Done, f.Began)
			if i.Node != f.Node || i.To <= began || i.From >= f.Ended {
				parts = append(parts, i)
				continue
			}
			before, after := i, i
			before.To, after.From = began, f.Ended
			parts = append(parts, before, after)
		}
		acting = parts
	}
	return acting
}

// Effect are the times from the first accepted write of each leadership to its last.
func (r *Record) Effect() []Interval {
	var acted []Interval
	for _, w := range r.Writes {
		i := slices.IndexFunc(acted, func(i Interval) bool { return i.Term == w.Term })
		if i < 0 {
			acted = append(acted, Interval{Node: r.NodeOf(w.Term), Term: w.Term, From: w.At, To: w.At})
			continue
		}
		acted[i].To = max(acted[i].To, w.At)
	}
	return acted
}

// Overlap is a time in which two leaderships acted.
type Overlap struct {
	First  Interval `json:"first"`
	Second Interval `json:"second"`
	Nanos  int64    `json:"nanos"`
}

// overlaps are the times in which intervals of two leaderships overlap.
func overlaps(acting []Interval) []Overlap {
	var found []Overlap
	for i, a := range acting {
		for _, b := range acting[i+1:] {
			if by := min(a.To, b.To) - max(a.From, b.From); by > 0 && (a.Term != b.Term || a.Node != b.Node) {
				found = append(found, Overlap{a, b, by})
			}
		}
	}
	return found
}

// total is how long they last, together.
func total(all []Overlap) time.Duration {
	var sum int64
	for _, o := range all {
		sum += o.Nanos
	}
	return time.Duration(sum)
}

// actingAtOnce is the largest number of leaderships that had accepted writes
// on both sides of one moment, by the resource's own order.
func (r *Record) actingAtOnce() int {
	first, last := map[baton.Term]int{}, map[baton.Term]int{}
	for i, w := range r.Writes {
		if _, ok := first[w.Term]; !ok {
			first[w.Term] = i
		}
		last[w.Term] = i
	}
	most := 0
	for _, at := range first {
		n := 0
		for term := range first {
			if first[term] <= at && at <= last[term] {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// Step is how many lead from a moment on.
type Step struct {
	At    int64
	Count int
}

// steps counts the intervals at all times.
func steps(acting []Interval) []Step {
	change := map[int64]int{}
	for _, i := range acting {
		change[i.From]++
		change[i.To]--
	}
	var (
		all   []Step
		count int
	)
	for _, at := range slices.Sorted(maps.Keys(change)) {
		count += change[at]
		all = append(all, Step{at, count})
	}
	return all
}

// Failover is the change from one leadership to the next, by effect.
type Failover struct {
	From     baton.Term `json:"from_term"`
	To       baton.Term `json:"to_term"`
	FromNode string     `json:"from_node"`
	ToNode   string     `json:"to_node"`
	// Fault is what was done to the old leader; empty if nothing was.
	Fault string `json:"fault,omitempty"`
	TTLMS int64  `json:"ttl_ms"`
	// GapMS is from the old leader's last accepted write to the new one's first.
	GapMS float64 `json:"gap_ms"`
	// AfterFaultMS is from the fault to the new leader's first accepted write.
	AfterFaultMS float64 `json:"after_fault_ms"`
	// BeyondLeaseMS is from the end of the old leader's lease to that write:
	// the part that is not the TTL's. 0 where no lease ran out.
	BeyondLeaseMS float64 `json:"beyond_lease_ms"`
}

// Failovers are the changes of leadership among accepted writes. With fencing off
// a leadership may come back; only its first write counts.
func (r *Record) Failovers() []Failover {
	var (
		all  []Failover
		seen = map[baton.Term]bool{}
	)
	for i, w := range r.Writes {
		if seen[w.Term] {
			continue
		}
		seen[w.Term] = true
		if i == 0 {
			continue
		}
		old := r.Writes[i-1]
		f := Failover{
			From: old.Term, To: w.Term, FromNode: r.NodeOf(old.Term), ToNode: r.NodeOf(w.Term),
			TTLMS: r.Arm.TTL.Milliseconds(), GapMS: millis(w.At - old.At),
		}
		if fault, ok := r.faultBetween(old, w); ok {
			f.Fault, f.AfterFaultMS = fault.Kind, millis(w.At-fault.Began)
			if fault.LeaseEnd > 0 && !graceful(fault.Kind) {
				f.BeyondLeaseMS = millis(w.At - fault.LeaseEnd)
			}
		}
		all = append(all, f)
	}
	return all
}

// faultBetween is what was done to the leader of the first write, or, since a
// leader may be struck before it has written at all, to one between the two.
func (r *Record) faultBetween(old, next Write) (Fault, bool) {
	if fault, ok := r.faultOf(old.Term); ok {
		return fault, true
	}
	i := slices.IndexFunc(r.Faults, func(f Fault) bool { return f.Term != next.Term && old.At <= f.Began && f.Began <= next.At })
	if i < 0 {
		return Fault{}, false
	}
	return r.Faults[i], true
}

func millis(nanos int64) float64 { return float64(nanos/1000) / 1000 }
