package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is the result of a run.
type report struct {
	Command    string   `json:"command"`
	Machine    machine  `json:"machine"`
	Contenders []string `json:"contenders"`
	Rows       []row    `json:"rows"`
	Scale      []scale  `json:"scale,omitempty"`
}

// row is one contender in one measurement. Rates and ratios are medians of the rounds.
type row struct {
	Measure   string   `json:"measure"`
	Contender string   `json:"contender"`
	Counted   string   `json:"counted"`
	Rate      *spread  `json:"per_second,omitempty"`
	P50       float64  `json:"p50_ms"`
	P99       float64  `json:"p99_ms"`
	Max       float64  `json:"max_ms"`
	Samples   int      `json:"samples"`
	Failures  int      `json:"failures"`
	Failure   string   `json:"failure,omitempty"`
	ServerCPU *float64 `json:"server_cpu_us,omitempty"`
	ClientCPU *float64 `json:"client_cpu_us,omitempty"`
	// Against is the row of the same measurement that Ratio divides by.
	Against string  `json:"against,omitempty"`
	Ratio   *spread `json:"ratio,omitempty"`
	Aim     string  `json:"aim,omitempty"`
	Met     *bool   `json:"met,omitempty"`
}

// spread is the median of the rounds, with the least and the most.
type spread struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
}

func spreadOf(list []float64) *spread {
	list = slices.Sorted(slices.Values(list))
	n := len(list)
	return &spread{Median: (list[(n-1)/2] + list[n/2]) / 2, Least: list[0], Most: list[n-1]}
}

// aim is what we want of Baton; it is shown and never enforced.
type aim struct {
	// Ratio to the rival: at least, for rates, and at most, for times.
	Ratio float64
	P99   time.Duration
}

// quantile of a sorted list.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (r *row) times(all []time.Duration) {
	slices.Sort(all)
	r.P50, r.P99, r.Max, r.Samples = millis(quantile(all, 0.5)), millis(quantile(all, 0.99)), millis(quantile(all, 1)), len(all)
}

// judge compares with the aim, if there is one and the contender is the one it is for.
func (r *row) judge(text string, met bool) { r.Aim, r.Met = text, &met }

func (r *report) addRates(what string, entrants []*entrant, goal aim) {
	for _, e := range entrants {
		line := row{Measure: what, Contender: e.contender.Name(), Counted: e.load.counted}
		if e.load.way != "" {
			line.Contender += ", " + e.load.way
		}
		var all []time.Duration
		var rates []float64
		var servers, client time.Duration
		for _, t := range e.turns {
			all, rates = append(all, t.latencies...), append(rates, t.rate())
			servers, client = servers+t.servers, client+t.client
			line.Failures += t.failures
			if t.failure != nil && line.Failure == "" {
				line.Failure = t.failure.Error()
			}
		}
		line.times(all)
		line.Rate = spreadOf(rates)
		each := func(d time.Duration) *float64 { v := float64(d.Microseconds()) / float64(len(all)); return &v }
		line.ServerCPU, line.ClientCPU = each(servers), each(client)
		if rival := rivalOf(entrants, e); rival != nil {
			var ratios []float64
			for i := range e.turns {
				ratios = append(ratios, e.turns[i].rate()/rival.turns[i].rate())
			}
			line.Against, line.Ratio = strings.TrimSuffix(e.contender.Rival()+", "+rival.load.way, ", "), spreadOf(ratios)
			if goal.Ratio > 0 {
				line.judge(fmt.Sprintf(">= %.1fx", goal.Ratio), line.Ratio.Median >= goal.Ratio)
			}
		}
		r.Rows = append(r.Rows, line)
	}
}

// rivalOf is the first load of the contender that e is compared with.
func rivalOf(entrants []*entrant, e *entrant) *entrant {
	for _, other := range entrants {
		if other.contender.Name() == e.contender.Rival() {
			return other
		}
	}
	return nil
}

func (r *report) addTimes(what, counted string, all []*timed, goal aim) {
	for _, t := range all {
		line := row{Measure: what, Contender: t.contender.Name(), Counted: counted}
		line.times(slices.Concat(t.rounds...))
		for _, other := range all {
			if other.contender.Name() != t.contender.Rival() {
				continue
			}
			var ratios []float64
			for i := range t.rounds {
				ratios = append(ratios, float64(middle(t.rounds[i]))/float64(middle(other.rounds[i])))
			}
			line.Against, line.Ratio = other.contender.Name(), spreadOf(ratios)
			if goal.Ratio > 0 {
				line.judge(fmt.Sprintf("p50 <= %.1fx", goal.Ratio), line.Ratio.Median <= goal.Ratio)
			}
			if goal.P99 > 0 {
				line.judge(fmt.Sprintf("p99 < %v", goal.P99), line.P99 < millis(goal.P99))
			}
		}
		r.Rows = append(r.Rows, line)
	}
}

func middle(list []time.Duration) time.Duration {
	return quantile(slices.Sorted(slices.Values(list)), 0.5)
}

func (r *report) print(w io.Writer, format string) error {
	if format == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	m := r.Machine
	fmt.Fprintf(w, "\n%s\n%s, revision %s\n", r.Command, m.When, m.Revision)
	fmt.Fprintf(w, "%d x %s, %s, %s, %s\n%s\n", m.Cores, m.CPU, m.Memory, m.System, m.Go, m.Fsync)
	fmt.Fprintf(w, "load average %.1f before, %.1f after; clients and servers share the machine\n", m.LoadBefore, m.LoadAfter)
	if m.busy() {
		fmt.Fprintf(w, "THE MACHINE WAS BUSY when the run began: take the ratios with care and the rest not at all\n")
	}
	for _, c := range r.Contenders {
		fmt.Fprintln(w, c)
	}
	r.printRates(w)
	r.printTimes(w)
	r.printScale(w)
	return r.printCounted(w)
}

func (r *report) printRates(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	last := ""
	for _, l := range r.Rows {
		if l.Rate == nil {
			continue
		}
		if last == "" {
			fmt.Fprintln(t, "\n\tper second\tleast-most\tp50 ms\tp99 ms\tserver us\tclient us\tratio\tleast-most\taim\t")
		}
		if l.Measure != last {
			fmt.Fprintf(t, "%s\t\t\t\t\t\t\t\t\t\t\n", l.Measure)
			last = l.Measure
		}
		fmt.Fprintf(t, "  %s\t%.0f\t%.0f-%.0f\t%.2f\t%.2f\t%.0f\t%.0f\t%s\t%s\n",
			l.Contender, l.Rate.Median, l.Rate.Least, l.Rate.Most, l.P50, l.P99, *l.ServerCPU, *l.ClientCPU, l.ratio(), l.verdict())
	}
	_ = t.Flush() // what it writes to reports its own errors
}

func (r *report) printTimes(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	last := ""
	for _, l := range r.Rows {
		if l.Rate != nil {
			continue
		}
		if last == "" {
			fmt.Fprintln(t, "\n\tp50 ms\tp99 ms\tmost ms\tsamples\tratio of p50\tleast-most\taim\t")
		}
		if l.Measure != last {
			fmt.Fprintf(t, "%s\t\t\t\t\t\t\t\t\n", l.Measure)
			last = l.Measure
		}
		fmt.Fprintf(t, "  %s\t%.2f\t%.2f\t%.2f\t%d\t%s\t%s\n", l.Contender, l.P50, l.P99, l.Max, l.Samples, l.ratio(), l.verdict())
	}
	_ = t.Flush()
}

func (l row) ratio() string {
	if l.Ratio == nil {
		return "\t"
	}
	return fmt.Sprintf("%.2fx\t%.2f-%.2f", l.Ratio.Median, l.Ratio.Least, l.Ratio.Most)
}

func (l row) verdict() string {
	var said []string
	if l.Met != nil {
		said = append(said, l.Aim+map[bool]string{true: " met", false: " MISSED"}[*l.Met])
	}
	if l.Failures > 0 {
		said = append(said, fmt.Sprintf("%d failed: %s", l.Failures, l.Failure))
	}
	return strings.Join(said, "; ") + "\t"
}

// printCounted says what one operation is.
func (r *report) printCounted(w io.Writer) error {
	seen := map[string]bool{}
	_, err := fmt.Fprintln(w, "\nWhat is counted (one at a time per client; server and client us are CPU time for one):")
	for _, l := range r.Rows {
		what, _, _ := strings.Cut(l.Measure, ",")
		system := strings.Replace(l.Contender, " x3", "", 1)
		line := fmt.Sprintf("  %s, %s: %s", what, system, l.Counted)
		if l.Rate == nil {
			line = fmt.Sprintf("  %s: %s", what, l.Counted)
		}
		if !seen[line] {
			seen[line] = true
			_, err = fmt.Fprintln(w, line)
		}
	}
	return err
}
