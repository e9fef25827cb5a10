package lab

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"baton"
	"baton/internal/fleet"
)

// Kind is what it means that a check fails.
type Kind string

const (
	// Safety: something happened that must never happen.
	Safety Kind = "safety"
	// Shown: what the experiment is there to show did not happen, so that the
	// other checks prove nothing.
	Shown Kind = "shown"
	// Target: it took longer than hoped.
	Target Kind = "target"
)

// Check judges a record.
type Check struct {
	Name string
	Kind Kind
	// Judge says whether all is well, and what was seen.
	Judge func(r *Record) (ok bool, saw string)
}

// Verdict is what a check said.
type Verdict struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
	OK   bool   `json:"ok"`
	Saw  string `json:"saw"`
}

func (r *Record) judge() []Verdict {
	var all []Verdict
	for _, c := range r.Arm.Checks {
		v := Verdict{Name: c.Name, Kind: c.Kind}
		v.OK, v.Saw = c.Judge(r)
		all = append(all, v)
	}
	return all
}

// Fenced are the checks that every arm with fencing passes, whatever else goes wrong.
func Fenced() []Check {
	return []Check{Audited, Recounted, OneByEffect, AllStaleRefused, NumbersOnce, NothingLost, Skewed}
}

// Audited: the resource's own SQL, with lag() over accepted writes, finds no step down.
var Audited = Check{"audit: SQL lag() finds no step down", Safety, func(r *Record) (bool, string) {
	a := r.Audit
	return a.OK && a.TermsFell == 0 && a.SeqsFell == 0 && a.Duplicates == 0,
		fmt.Sprintf("%d accepted writes: %d terms fell, %d numbers did not rise, %d given out twice", a.Writes, a.TermsFell, a.SeqsFell, a.Duplicates)
}}

// Recounted: the same by the lab's own count of the list of writes, and over
// all resources together.
var Recounted = Check{"recount: terms never fall, numbers strictly rise", Safety, func(r *Record) (bool, string) {
	d := r.damage()
	return d == damage{}, d.String()
}}

// damage is what is wrong with the list of accepted writes.
type damage struct {
	terms, seqs, twice int64
}

func (d damage) String() string {
	return fmt.Sprintf("%d terms fell, %d numbers did not rise, %d given out twice", d.terms, d.seqs, d.twice)
}

func (r *Record) damage() damage {
	var (
		d       damage
		highest baton.Term
		holder  = map[baton.Term]string{}
		last    = map[string]int64{}
		used    = map[string]map[int64]bool{}
	)
	for _, w := range r.Writes {
		if w.Term < highest || holder[w.Term] != "" && holder[w.Term] != w.Instance {
			d.terms++
		}
		highest = max(highest, w.Term)
		holder[w.Term] = w.Instance
		if w.Seq-w.Count+1 <= last[w.Resource] {
			d.seqs++
		}
		last[w.Resource] = w.Seq
		if used[w.Resource] == nil {
			used[w.Resource] = map[int64]bool{}
		}
		for n := w.Seq - w.Count + 1; n <= w.Seq; n++ {
			if used[w.Resource][n] {
				d.twice++
			}
			used[w.Resource][n] = true
		}
	}
	return d
}

// OneByEffect: between any two accepted writes of one leadership there is none of another.
var OneByEffect = Check{"leaders_acting by effect is at most 1", Safety, func(r *Record) (bool, string) {
	n := r.actingAtOnce()
	return n == 1, fmt.Sprintf("at most %d, of %d leaderships", n, len(r.Effect()))
}}

// OneByBelief: the times in which nodes acted do not overlap.
var OneByBelief = Check{"leaders_acting by belief is at most 1", Safety, func(r *Record) (bool, string) {
	acting := r.Acting()
	found := overlaps(acting)
	if len(found) == 0 {
		return true, fmt.Sprintf("%d acting intervals, none overlap", len(acting))
	}
	return false, describe(found)
}}

// TwoByBelief: two nodes thought that they lead, at once.
var TwoByBelief = Check{"two nodes acted at once, by their belief", Shown, func(r *Record) (bool, string) {
	found := overlaps(r.Belief())
	if len(found) == 0 {
		return false, "no acting intervals overlap"
	}
	return true, describe(found)
}}

func describe(found []Overlap) string {
	o := found[0]
	return fmt.Sprintf("%d overlaps, %v in all; first %s (term %d) and %s (term %d) for %v",
		len(found), total(found).Round(time.Millisecond), o.First.Node, o.First.Term, o.Second.Node, o.Second.Term, time.Duration(o.Nanos).Round(time.Millisecond/10))
}

// AllStaleRefused: of the writes that came after one of a later leadership none
// was accepted; every refusal that a node was told of, the resource has logged,
// one for one, with its token; and it has logged none that no node can have sent.
var AllStaleRefused = Check{"100% of stale writes refused", Safety, func(r *Record) (bool, string) {
	stale := r.Stale()
	accepted := r.damage().terms
	told, unheard := r.toldOfRefusals()
	var missing, unsent, nameless int
	logged := map[refusedWrite]int{}
	for _, f := range stale {
		logged[refusedWrite{f.Term, instanceOf(f.Token), f.Resource}]++
		if f.Token == "" || f.HeldBy == "" {
			nameless++
		}
	}
	for w, n := range told {
		missing += max(0, n-logged[w])
	}
	for w, n := range logged {
		// A node may have been killed before it heard of one per resource.
		unsent += max(0, n-told[w]-unheard[w]-1)
	}
	saw := fmt.Sprintf("%d of %d refused", len(stale), int64(len(stale))+accepted)
	for what, n := range map[string]int{
		"that nodes were told of are not in the resource's log": missing,
		"are in the resource's log and in no node's":            unsent,
		"are logged without their token":                        nameless,
	} {
		if n > 0 {
			saw += fmt.Sprintf("; %d refusals %s", n, what)
		}
	}
	return accepted == 0 && missing == 0 && unsent == 0 && nameless == 0, saw
}}

// refusedWrite is what is known on both sides of a write that was refused.
type refusedWrite struct {
	term     baton.Term
	instance string
	resource string
}

// toldOfRefusals counts what nodes say was refused as stale, and what they sent
// without ever hearing what became of it.
func (r *Record) toldOfRefusals() (told, unheard map[refusedWrite]int) {
	told, unheard = map[refusedWrite]int{}, map[refusedWrite]int{}
	for _, e := range r.Events {
		w := refusedWrite{e.Term, e.Instance, e.Resource}
		switch {
		case e.Type == fleet.WriteRefused && e.Reason == "stale":
			told[w]++
		case e.Type == fleet.WriteFailed:
			// What became of a write is asked by another, which may be refused as well.
			unheard[w] += 2
		}
	}
	return told, unheard
}

func instanceOf(token string) string { return token[strings.LastIndex(token, "/")+1:] }

// StaleSent: at least so many stale writes reached the resource and were refused.
func StaleSent(least int) Check {
	return Check{"a stale leader did write, and its token was refused", Shown, func(r *Record) (bool, string) {
		stale := r.Stale()
		if len(stale) < least {
			return false, fmt.Sprintf("%d stale writes reached the resource, want %d", len(stale), least)
		}
		first := stale[0]
		return true, fmt.Sprintf("%d refused; first: %s with token %s, held by %s", len(stale), first.Resource, first.Token, first.HeldBy)
	}}
}

// NoneStale: no stale write was even sent: the leaders stopped in time. One that was sent
// while the lease had time left, and arrived when it had none, was late on the way.
var NoneStale = Check{"no stale write was sent", Safety, func(r *Record) (bool, string) {
	inTime, after := map[refusedWrite]int{}, 0
	for _, e := range r.Events {
		stale := e.Type == fleet.WriteRefused && e.Reason == "stale"
		if !stale && e.Type != fleet.WriteFailed {
			continue
		}
		switch told, _ := r.leaseEnds(e.Term); {
		case e.SentAt < told:
			inTime[refusedWrite{e.Term, e.Instance, e.Resource}]++
		case stale:
			after++
		}
	}
	stale, late := r.Stale(), 0
	for _, f := range stale {
		told, _ := r.leaseEnds(f.Term)
		w := refusedWrite{f.Term, instanceOf(f.Token), f.Resource}
		if inTime[w] > 0 && f.At >= told-int64(maxStep) {
			inTime[w]--
			late++
		}
	}
	return len(stale) == late && after == 0, fmt.Sprintf("%d reached the resource, %d of them late; %d were sent after the lease", len(stale), late, after)
}}

// NumbersOnce: no number was given to two clients, and whoever asked after
// another was answered got a higher one.
var NumbersOnce = Check{"clients: every number once, and rising", Safety, func(r *Record) (bool, string) {
	twice, fell := r.misgiven()
	return twice == 0 && fell == 0, fmt.Sprintf("%d numbers given to clients: %d twice, %d lower than one answered before", len(r.Answers), twice, fell)
}}

// misgiven counts what clients can see to be wrong. Answers are in the order
// in which they came.
func (r *Record) misgiven() (twice, fell int) {
	seen := map[int64]bool{}
	for _, a := range r.Answers {
		if seen[a.Seq] {
			twice++
		}
		seen[a.Seq] = true
	}
	// highest[i] is the highest number among the first i answers.
	highest := make([]int64, len(r.Answers)+1)
	for i, a := range r.Answers {
		highest[i+1] = max(highest[i], a.Seq)
	}
	for _, a := range r.Answers {
		before, _ := slices.BinarySearchFunc(r.Answers, a.Sent, func(b Answer, sent int64) int {
			if b.Received < sent {
				return -1
			}
			return 1
		})
		if highest[before] >= a.Seq {
			fell++
		}
	}
	return twice, fell
}

// NothingLost: what nodes were told is accepted, and the numbers that clients
// were given, are on the resource's record under the same token.
var NothingLost = Check{"everything acknowledged is on record", Safety, func(r *Record) (bool, string) {
	type written struct {
		resource string
		term     baton.Term
		seq      int64
	}
	record := map[written]bool{}
	covered := map[int64]baton.Term{}
	for _, w := range r.Writes {
		record[written{w.Resource, w.Term, w.Seq}] = true
		if w.Resource == sequenceResource {
			for n := w.Seq - w.Count + 1; n <= w.Seq; n++ {
				covered[n] = w.Term
			}
		}
	}
	var acknowledged, lost int
	for _, e := range r.Events {
		if e.Type == fleet.WriteAccepted {
			acknowledged++
			if !record[written{e.Resource, e.Term, e.Seq}] {
				lost++
			}
		}
	}
	for _, a := range r.Answers {
		if covered[a.Seq] != a.Token {
			lost++
		}
	}
	return lost == 0 && acknowledged > 0, fmt.Sprintf("%d writes and %d numbers acknowledged, %d not on record", acknowledged, len(r.Answers), lost)
}}

// FailedOver: after each fault another leadership wrote for the first time. Who wrote last
// before it does not matter: without fencing that may be one of long ago.
var FailedOver = Check{"after every fault another leadership wrote", Shown, func(r *Record) (bool, string) {
	terms := []baton.Term{r.Writes[0].Term}
	for _, next := range r.Failovers() {
		terms = append(terms, next.To)
	}
	var after int
	for _, f := range r.Faults {
		if i := slices.Index(terms, f.Term); i >= 0 && i < len(terms)-1 {
			after++
		}
	}
	return after == len(r.Faults) && after > 0, fmt.Sprintf("after %d of %d faults", after, len(r.Faults))
}}

// NotEarly: nobody wrote while the lease of a leader that could not give it
// back still had time left. A store that opens a group too soon is not seen
// otherwise where the old leader is dead, or stops before its lease ends.
var NotEarly = Check{"no leader wrote before the lease before its own had ended", Safety, func(r *Record) (bool, string) {
	leases, early, worst := r.expiries()
	return early == 0, fmt.Sprintf("%d leases that nobody gave back, %d cut short, by up to %.0f ms", leases, early, -worst)
}}

// Expired: there were leases that nobody gave back.
var Expired = Check{"a lease that nobody gave back ran out", Shown, func(r *Record) (bool, string) {
	leases, _, _ := r.expiries()
	return leases > 0, fmt.Sprintf("%d did", leases)
}}

// expiries counts the leases that nobody gave back, and those of them before whose end the next leader wrote.
func (r *Record) expiries() (leases, early int, worst float64) {
	for _, next := range r.Failovers() {
		for _, f := range r.Faults {
			if f.Term != next.From || f.LeaseEnd == 0 || graceful(f.Kind) || f.Ended != 0 && f.Ended < f.LeaseEnd {
				continue
			}
			leases++
			// Stamps of writes and those of leases are of clocks that may differ by this much.
			if next.BeyondLeaseMS < -millis(int64(maxStep)) {
				early++
				worst = min(worst, next.BeyondLeaseMS)
			}
		}
	}
	return leases, early, worst
}

// OnlyKilled: no node ended that was not killed.
var OnlyKilled = Check{"no node ended by itself", Safety, func(r *Record) (bool, string) {
	var others []string
	for _, x := range r.Exits {
		if !x.Killed {
			others = append(others, x.Node)
		}
	}
	return len(others) == 0, fmt.Sprintf("%d killed, %d ended by themselves %v", len(r.Exits)-len(others), len(others), others)
}}

// Damaged: without fencing writes of the past were accepted.
var Damaged = Check{"without fencing the damage is there", Shown, func(r *Record) (bool, string) {
	d := r.damage()
	twice, fell := r.misgiven()
	return d.seqs > 0 || d.twice > 0, fmt.Sprintf("%v; clients were given %d numbers twice and %d lower ones", d, twice, fell)
}}

// Beyond: the next leader's first write came at most so long after the lease's own end.
func Beyond(limit time.Duration) Check {
	return Check{fmt.Sprintf("failover at most %v beyond the lease's end", limit), Target, func(r *Record) (bool, string) {
		var worst float64
		for _, f := range r.Failovers() {
			if f.Fault != "" {
				worst = max(worst, f.BeyondLeaseMS)
			}
		}
		return worst <= millis(int64(limit)), fmt.Sprintf("worst %.0f ms", worst)
	}}
}

// Within: the next leader's first write came at most so long after the old one's last.
func Within(limit time.Duration) Check {
	return Check{fmt.Sprintf("failover at most %v", limit), Target, func(r *Record) (bool, string) {
		var worst float64
		for _, f := range r.Failovers() {
			if f.Fault != "" {
				worst = max(worst, f.GapMS)
			}
		}
		return worst <= millis(int64(limit)), fmt.Sprintf("worst %.0f ms", worst)
	}}
}
