package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// sheet is a text whose columns are aligned. The first error is kept for the end.
type sheet struct {
	tab *tabwriter.Writer
	err error
}

func (s *sheet) line(format string, args ...any) {
	if _, err := fmt.Fprintf(s.tab, format+"\n", args...); err != nil && s.err == nil {
		s.err = err
	}
}

func (r *report) print(w io.Writer, format string) error {
	if format == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	s := &sheet{tab: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	r.printHead(s)
	r.printRates(s)
	r.printTimes(s)
	r.printScale(s)
	r.printCounted(s)
	if err := s.tab.Flush(); s.err == nil {
		s.err = err
	}
	return s.err
}

func (r *report) printHead(s *sheet) {
	m := r.Machine
	s.line("\n%s", r.Command)
	s.line("%s, revision %s", m.When, m.Revision)
	s.line("%d x %s, %s, %s, %s", m.Cores, m.CPU, m.Memory, m.System, m.Go)
	s.line("%s", m.Fsync)
	s.line("load average %.1f before, %.1f after; clients and servers share the machine", m.LoadBefore, m.LoadAfter)
	if m.busy() {
		s.line("THE MACHINE WAS BUSY when the run began: take the ratios with care and the rest not at all")
	}
	for _, c := range r.Contenders {
		s.line("%s", c)
	}
}

func (r *report) printRates(s *sheet) {
	last := ""
	for _, l := range r.Rows {
		if l.Rate == nil {
			continue
		}
		if last == "" {
			s.line("\n\tper second\tleast-most\tp50 ms\tp99 ms\tserver us\tclient us\tratio\tleast-most\taim\t")
		}
		if l.Measure != last {
			s.line("%s\t\t\t\t\t\t\t\t\t\t", l.Measure)
			last = l.Measure
		}
		s.line("  %s\t%.0f\t%.0f-%.0f\t%.2f\t%.2f\t%.0f\t%.0f\t%s\t%s", l.Contender,
			l.Rate.Median, l.Rate.Least, l.Rate.Most, l.P50, l.P99, *l.ServerCPU, *l.ClientCPU, l.ratio(), l.verdict())
	}
}

func (r *report) printTimes(s *sheet) {
	last := ""
	for _, l := range r.Rows {
		if l.Rate != nil {
			continue
		}
		if last == "" {
			s.line("\n\tp50 ms\tp99 ms\tmost ms\tsamples\tratio of p50\tleast-most\taim\t")
		}
		if l.Measure != last {
			s.line("%s\t\t\t\t\t\t\t\t", l.Measure)
			last = l.Measure
		}
		s.line("  %s\t%.2f\t%.2f\t%.2f\t%d\t%s\t%s", l.Contender, l.P50, l.P99, l.Max, l.Samples, l.ratio(), l.verdict())
	}
}

func (r *row) ratio() string {
	if r.Ratio == nil {
		return "\t"
	}
	return fmt.Sprintf("%.2fx\t%.2f-%.2f", r.Ratio.Median, r.Ratio.Least, r.Ratio.Most)
}

func (r *row) verdict() string {
	var said []string
	if r.Met != nil {
		said = append(said, r.Aim+map[bool]string{true: " met", false: " MISSED"}[*r.Met])
	}
	if r.Failures > 0 {
		said = append(said, fmt.Sprintf("%d failed: %s", r.Failures, r.Failure))
	}
	return strings.Join(said, "; ") + "\t"
}

func (r *report) printScale(s *sheet) {
	if len(r.Scale) == 0 {
		return
	}
	line := func(what string, of func(one scale) string) {
		for _, one := range r.Scale {
			what += "\t" + of(one)
		}
		s.line("%s\t", what)
	}
	perLease := func(bytes int64, one scale) string {
		return fmt.Sprintf("%d MB, %d B a lease", bytes>>20, (bytes-one.EmptyRSS)/int64(one.Leases))
	}
	ms := func(d time.Duration) string { return d.Round(time.Millisecond).String() }
	line("\none baton server with live leases", func(one scale) string { return fmt.Sprint(one.Leases) })
	line("  acquired, per second", func(one scale) string { return fmt.Sprintf("%.0f", one.FillRate) })
	line("  renewals at random, per second (p99)", func(one scale) string { return fmt.Sprintf("%.0f (%.1f ms)", one.Renewals, one.RenewP99) })
	line("  resident memory after the last grant", func(one scale) string { return perLease(one.RSS, one) })
	line("  resident memory after a restart", func(one scale) string { return perLease(one.SettledRSS, one) })
	line("  kill -9 until a lease is renewed, from the log", func(one scale) string { return fmt.Sprintf("%s, log of %d MB", ms(one.FromLog), one.LogBytes>>20) })
	line("  kill -9 until a lease is renewed, from a snapshot", func(one scale) string { return ms(one.FromSnapshot) })
	line("  snapshot written in", func(one scale) string { return fmt.Sprintf("%s, %d MB", ms(one.Snapshot), one.SnapshotBytes>>20) })
	line("  longest renewal until it was", func(one scale) string { return ms(one.Stall) })
	line("  leases live at the end", func(one scale) string { return fmt.Sprint(one.Live) })
	for _, one := range r.Scale {
		if one.Limit != "" {
			s.line("  %d leases: %s", one.Leases, one.Limit)
		}
	}
}

// printCounted says what one operation is.
func (r *report) printCounted(s *sheet) {
	if len(r.Rows) == 0 {
		return
	}
	s.line("\nWhat is counted (one at a time per client; server and client us are CPU time for one):")
	seen := map[string]bool{}
	for _, l := range r.Rows {
		what, _, _ := strings.Cut(l.Measure, ",")
		if l.Rate != nil {
			what += ", " + strings.Replace(l.Contender, " x3", "", 1)
		}
		line := fmt.Sprintf("  %s: %s", what, l.Counted)
		if !seen[line] {
			seen[line] = true
			s.line("%s", line)
		}
	}
}
