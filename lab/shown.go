package lab

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// ShownRow is one line of what the lab has to show: a target and what was measured.
type ShownRow struct {
	What     string `json:"what"`
	Target   string `json:"target"`
	Measured string `json:"measured"`
	// Met is "yes", "no", "not exercised", or why there is no verdict.
	Met string `json:"met"`
	// Command makes the measurement again.
	Command string `json:"command"`
}

func met(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}

// shown is met, or that the run had no occasion for it: a target that nothing was held against is
// neither met nor missed.
func shown(ok bool, occasions int) string {
	if ok && occasions == 0 {
		return "not exercised"
	}
	return met(ok)
}

// MustBeShown holds all results against the targets.
func MustBeShown(results []Result) []ShownRow {
	rows := []ShownRow{oneLeader(results), staleRefused(results), seqRises(results)}
	for _, rowsOf := range []func(Result) (ShownRow, bool){failoverRow, electionRow, handoverRow, handoffRow, sequencerRow, kneeRow} {
		for _, r := range byNumber(results) {
			if row, ok := rowsOf(r); ok {
				row.Command = r.Command
				rows = append(rows, row)
			}
		}
	}
	return rows
}

func byNumber(results []Result) []Result {
	return slices.SortedStableFunc(slices.Values(results), func(a, b Result) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(order(a.Backend), order(b.Backend)))
	})
}

// order is a backend's place in the list of all.
func order(backend string) int { return slices.Index(backendNames(), backend) }

// fenced are all arms with fencing.
func fenced(results []Result) []ArmResult {
	var all []ArmResult
	for _, r := range results {
		for _, a := range r.Arms {
			if a.Fencing {
				all = append(all, a)
			}
		}
	}
	return all
}

// command makes all results again.
func command(results []Result) string { return strings.Join(commandsOf(results), "; ") }

func oneLeader(results []Result) ShownRow {
	var fell, overlaps, judged int
	var writes int64
	arms := fenced(results)
	for _, a := range arms {
		writes += a.Audit.Writes
		fell += len(a.Fell)
		for _, v := range a.Verdicts {
			switch v.Name {
			case OneByEffect.Name:
				if !v.OK {
					fell++
				}
			case OneByBelief.Name:
				judged++
				if !v.OK {
					overlaps += max(1, len(a.Overlaps))
				}
			}
		}
	}
	return ShownRow{
		What: "double-leader-acting incidents", Target: "0, by effect and by overlap of acting intervals on one clock",
		Measured: fmt.Sprintf("%d by effect in %d runs with %d accepted writes; %d overlaps in the %d runs with sound leaders that were not frozen, of all but bully", fell, len(arms), writes, overlaps, judged),
		Met:      shown(fell == 0 && overlaps == 0, int(writes)), Command: command(results),
	}
}

func staleRefused(results []Result) ShownRow {
	var refused, fell int
	ok := true
	for _, a := range fenced(results) {
		refused, fell = refused+a.Refused, fell+len(a.Fell)
		for _, v := range a.Verdicts {
			ok = ok && (v.Name != AllStaleRefused.Name || v.OK)
		}
	}
	row := ShownRow{
		What: "stale writes refused", Target: "100%, each with its token",
		Measured: fmt.Sprintf("%d of %d, each logged with its token on both sides", refused, refused+fell), Met: shown(ok && fell == 0, refused+fell), Command: command(results),
	}
	if refused+fell == 0 {
		row.Measured = "none was sent"
	}
	return row
}

func seqRises(results []Result) ShownRow {
	var fell, twice int64
	failovers := 0
	for _, a := range fenced(results) {
		fell, twice = fell+a.Audit.SeqsFell, twice+a.Audit.Duplicates
		failovers += len(a.Failovers)
	}
	return ShownRow{
		What: "seq", Target: "strictly increasing over every failover: SQL lag() finds 0",
		Measured: fmt.Sprintf("%d steps down, %d numbers twice, over %d changes of leadership", fell, twice, failovers), Met: shown(fell+twice == 0, failovers), Command: command(results),
	}
}

// failoverRow takes the arm with a TTL of 3 s, or the nearest there is.
func failoverRow(r Result) (ShownRow, bool) {
	if r.Name != "killclean" || len(r.Arms) == 0 {
		return ShownRow{}, false
	}
	a := slices.MinFunc(r.Arms, func(a, b ArmResult) int {
		return cmp.Compare(max(a.TTLMS-3000, 3000-a.TTLMS), max(b.TTLMS-3000, 3000-b.TTLMS))
	})
	var gaps, beyond []float64
	for _, f := range a.Failovers {
		if f.Fault != "" {
			gaps, beyond = append(gaps, f.GapMS), append(beyond, f.BeyondLeaseMS)
		}
	}
	if len(gaps) == 0 {
		return ShownRow{}, false
	}
	row := ShownRow{What: fmt.Sprintf("failover, TTL %g s, %s", float64(a.TTLMS)/1000, r.Backend), Target: "< 5 s"}
	limit := 5000.0
	row.Measured = fmt.Sprintf("p50 %.2f s, worst %.2f s of %d kills; beyond the lease's own end p50 %.0f ms, worst %.0f ms", Percentile(gaps, 50)/1000, slices.Max(gaps)/1000, len(gaps), Percentile(beyond, 50), slices.Max(beyond))
	if b, err := BackendNamed(r.Backend); err == nil && b.Peers {
		row.What, row.Target, limit = "failover, "+r.Backend, "< 1.5 s", 1500
		row.Measured = fmt.Sprintf("p50 %.2f s, worst %.2f s of %d kills", Percentile(gaps, 50)/1000, slices.Max(gaps)/1000, len(gaps))
	}
	row.Met = met(slices.Max(gaps) < limit)
	if a.TTLMS > 3000 {
		row.Met = "its shortest lease is longer than 3 s"
	}
	return row, true
}

func electionRow(r Result) (ShownRow, bool) {
	if r.Name != "churn" || len(r.Arms) == 0 || len(r.Arms[0].Elections) == 0 {
		return ShownRow{}, false
	}
	a := r.Arms[0]
	took, open := Campaigns(a.Elections), Latencies(a.Elections)
	p99 := Percentile(took, 99)
	least, longest, turns := math.MaxInt, 0, 0
	for node, n := range a.Led {
		least, longest, turns = min(least, n), max(longest, a.Drought[node]), turns+n
	}
	row := ShownRow{
		What: "election latency under churn, " + r.Backend, Target: "p99 < 500 ms from campaign to won, no node starved",
		Measured: fmt.Sprintf("p99 %.0f ms (p50 %.0f) of %d campaigns; since the %s p99 %.0f ms (p50 %.0f); nodes led %d times at least, longest wait %d elections",
			p99, Percentile(took, 50), len(took), Opened(a.Elections), Percentile(open, 99), Percentile(open, 50), least, longest),
		Met: met(p99 < 500 && least > 0),
	}
	if turns < 4*len(a.Led) && p99 < 500 {
		row.Met = "too few elections to tell whether one starves"
	}
	return row, true
}

func handoverRow(r Result) (ShownRow, bool) {
	if r.Name != "handover" {
		return ShownRow{}, false
	}
	var gaps, writes []float64
	var slowest, interval float64
	for _, a := range r.Arms {
		for _, h := range a.Handovers {
			gaps, slowest = append(gaps, h.GapMS), max(slowest, h.StoppedMS)
			if h.Wrote {
				writes = append(writes, h.WriteGapMS)
			}
		}
	}
	if b, err := BackendNamed(r.Backend); err == nil {
		interval = millis(int64(newSetting(r.Profile, b, "").RenewEvery(time.Duration(r.Arms[0].TTLMS) * time.Millisecond)))
	}
	if len(writes) == 0 {
		return ShownRow{}, false
	}
	return ShownRow{
		What: "graceful step-down, " + r.Backend, Target: "gap positive; work stopped within one renewal interval",
		Measured: fmt.Sprintf("gap %.2f to %.1f ms by acting, %.2f to %.1f ms from write to write, of %d; work stopped within %.1f ms, the interval is %.0f ms",
			slices.Min(gaps), slices.Max(gaps), slices.Min(writes), slices.Max(writes), len(gaps), slowest, interval),
		Met: met(slices.Min(gaps) > 0 && slices.Min(writes) > 0 && slowest <= interval),
	}, true
}

func handoffRow(r Result) (ShownRow, bool) {
	if r.Name != "handoff" || len(r.Arms) == 0 || r.Arms[0].Work == nil {
		return ShownRow{}, false
	}
	a := r.Arms[0]
	size := r.Profile.Work
	var took float64
	var redone int64
	handoffs := 0
	for _, k := range a.Work.Kinds {
		handoffs += len(k.Handoffs)
		for _, h := range k.Handoffs {
			took, redone = max(took, h.TookMS), redone+h.Redone
		}
	}
	return ShownRow{
		What: "handoff of work, " + r.Backend, Target: "resumed at the cursor; nothing redone beyond the last checkpoint, nothing skipped",
		Measured: fmt.Sprintf("%d jobs, %d GiB: resumed within %.1f ms; on record %d redone, %d skipped; %d pieces after the last checkpoint done again", size.Jobs, size.Segments*size.SegmentBytes>>30, took, a.Audit.Redone, a.Audit.Skipped, redone),
		Met:      shown(a.OK && a.Audit.Redone+a.Audit.Skipped == 0, handoffs),
	}, true
}

func sequencerRow(r Result) (ShownRow, bool) {
	if r.Name != "sequencer" || len(r.Arms) < 2 {
		return ShownRow{}, false
	}
	through, highest := r.Arms[0], r.Arms[1]
	row := ShownRow{
		What: "sequencer, " + r.Backend, Target: "at least 5,000 /next per second through failovers, in the median second; the highest is reported",
		Measured: fmt.Sprintf("%d in the median second through %d leaderships; highest %.0f per second on average over %d s, %d in the least second", through.Rates.Median, len(through.Effect), highest.Rates.Mean, len(highest.Rates.Seconds), highest.Rates.Least),
		Met:      met(through.Rates.Median >= 5000),
	}
	if r.Profile.Sequence.PerSecond < 5000 {
		row.Met = fmt.Sprintf("only %d per second were asked for", r.Profile.Sequence.PerSecond)
	}
	return row, true
}

func kneeRow(r Result) (ShownRow, bool) {
	if r.Name != "ttlsweep" {
		return ShownRow{}, false
	}
	knee, ok := Knee(SweepPoints(r))
	if !ok {
		return ShownRow{}, false
	}
	return ShownRow{
		What: "TTL trade-off, " + r.Backend, Target: "a knee, a choice, the SLO it serves",
		Measured: fmt.Sprintf("least dark time at a TTL of %v: %v in a month with %d crashes and %d stumbles; failover %v", knee.TTL, knee.Dark().Round(time.Second), CrashesAMonth, StumblesAMonth, knee.Failover.Round(10*time.Millisecond)),
		Met:      "see docs/findings.md",
	}, true
}
