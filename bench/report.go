package main

import (
	"fmt"
	"slices"
	"strings"
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
