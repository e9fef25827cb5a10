package main

import (
	"fmt"
	"io"
	"time"
)

// printStores prints the table of docs/stores.md. Nothing in it names a date, so
// that a second run is compared with the first by its figures.
func printStores(w io.Writer, m machine, rows []*storeRow) error {
	p := &printer{w: w}
	p.line("| store | election | renewal | renewals/s | handover | crash |")
	p.line("|---|---|---|---|---|---|")
	for _, r := range rows {
		if r.err != nil {
			p.line("| %s | failed | | | | |", r.name)
			continue
		}
		p.line("| %s | %s / %s | %s | %.0f | %s / %s | %s / %s |", r.name,
			at(r.election, 0.5), at(r.election, 0.99), at(r.renewal, 0.5), r.perSecond,
			at(r.handover, 0.5), at(r.handover, 0.99), at(r.failover, 0.5), at(r.failover, 1))
	}
	p.line("")
	p.line("Milliseconds. Election: Acquire of a vacant group, p50 / p99. Renewal: p50, one at a time; per second with %d at", usualDose.renewers)
	p.line("once. Handover: from before a leader resigns until the next of %d electors that wait leads, p50 / p99. Crash: from the", waiting)
	p.line("end of a vanished leader's lease, as its holder counts it, until the elector that waits leads, p50 / most.")
	p.line("")
	for _, r := range rows {
		if r.err == nil {
			p.line("- %s: %s", r.name, r.runs)
		}
	}
	p.line("- %d x %s, %s, %s, %s; clients and servers share it", m.Cores, m.CPU, m.System, m.Go, m.Fsync)
	if m.busy() {
		p.line("- THE MACHINE WAS BUSY, load average %.1f before and %.1f after: these figures are worth nothing", m.LoadBefore, m.LoadAfter)
	}
	return p.err
}

// printer keeps the first error for the end.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if _, err := fmt.Fprintf(p.w, format+"\n", args...); err != nil && p.err == nil {
		p.err = err
	}
}

// at is a quantile of a sorted list in milliseconds, with the figures that mean something.
func at(sorted []time.Duration, q float64) string {
	ms := millis(quantile(sorted, q))
	switch {
	case ms < 0.995:
		return fmt.Sprintf("%.2f", ms)
	case ms < 9.95:
		return fmt.Sprintf("%.1f", ms)
	}
	return fmt.Sprintf("%.0f", ms)
}
