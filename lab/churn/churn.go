// Package churn asks what a storm of elections costs: leaders are killed and
// started again, one after the other.
package churn

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"baton/lab"
)

// Experiment is number 6.
var Experiment = lab.Experiment{
	Number:   6,
	Name:     "churn",
	Question: "The leader is killed and started again, every few seconds, over nine nodes. How long do elections take, how much is the backend asked, and does every node get its turn?",
	Arms:     arms,
	Plot:     figures,
	Findings: findings,
	Columns:  []string{"elections", "campaign to won, p50 / p99, ms", "open to won, p50 / p99, ms", "open since", "a node led, times", "longest wait, elections", "calls per vacancy", "messages per second, mean / peak"},
	Row:      row,
}

const armName = "kill and restart"

// target is what elections take at most, 99 of 100.
const target = 500 * time.Millisecond

func arms(s lab.Setting) []lab.Arm {
	ttl, c := s.TTL(s.Profile.TTL), s.Profile.Churn
	every := max(c.Every, s.Lapse(ttl))
	return []lab.Arm{{
		Name: armName, Says: fmt.Sprintf("kill -9 of the leader and an immediate restart, %d times, every %v, or when the next one leads if that is later.", c.Kills, c.Every),
		TTL: ttl, Nodes: c.Nodes, Takes: time.Duration(c.Kills)*every + 5*time.Second,
		Script: func(ctx context.Context, f *lab.Stage) error { return script(ctx, f, c) },
		Checks: slices.Concat(s.Sound(), s.Leases(), []lab.Check{allElected(c.Kills), quickly, noneStarved}),
	}}
}

func script(ctx context.Context, f *lab.Stage, c lab.Churn) error {
	for range c.Kills {
		began := time.Now()
		if err := f.KillRestart(ctx); err != nil {
			return err
		}
		if err := f.Wait(ctx, c.Every-time.Since(began)); err != nil {
			return err
		}
	}
	return f.Steady(ctx)
}

// allElected: every kill made for one election, or more if one was unseated besides.
func allElected(kills int) lab.Check {
	return lab.Check{Name: "every kill was followed by an election", Kind: lab.Shown, Judge: func(r *lab.Record) (bool, string) {
		n := len(r.Elections())
		return n >= kills, fmt.Sprintf("%d elections after %d kills", n, kills)
	}}
}

var quickly = lab.Check{Name: fmt.Sprintf("elections take at most %v, 99 of 100", target), Kind: lab.Target, Judge: func(r *lab.Record) (bool, string) {
	took := lab.Campaigns(r.Elections())
	p99 := lab.Percentile(took, 99)
	return p99 <= float64(target.Milliseconds()), fmt.Sprintf("p50 %.0f ms, p99 %.0f ms of %d", lab.Percentile(took, 50), p99, len(took))
}}

// noneStarved: where there were turns enough for all, every node had some.
var noneStarved = lab.Check{Name: "no node starves", Kind: lab.Target, Judge: func(r *lab.Record) (bool, string) {
	led, drought := r.Turns()
	turns, least, longest := 0, -1, 0
	for node, n := range led {
		turns += n
		if least < 0 || n < least {
			least = n
		}
		longest = max(longest, drought[node])
	}
	fair := turns / len(led)
	return fair < 4 || least > 0, fmt.Sprintf("%d turns for %d nodes: the least had %d, the longest wait was %d elections", turns, len(led), least, longest)
}}

// Calls is how often a backend was asked per election, on average.
func Calls(a lab.ArmResult) float64 {
	if len(a.Elections) == 0 {
		return 0
	}
	sum := 0
	for _, e := range a.Elections {
		sum += e.Calls
	}
	return float64(sum) / float64(len(a.Elections))
}

func findings(r lab.Result) []string {
	a, ok := r.Arm(armName)
	if !ok || len(a.Elections) == 0 {
		return nil
	}
	took, campaigns := lab.Latencies(a.Elections), lab.Campaigns(a.Elections)
	since := lab.Opened(a.Elections)
	var least, most []int
	for node, n := range a.Led {
		least, most = append(least, n), append(most, a.Drought[node])
	}
	said := []string{
		fmt.Sprintf("%d elections among %d nodes: p50 %.0f ms, p99 %.0f ms from the %s to the grant.", len(took), a.Nodes, lab.Percentile(took, 50), lab.Percentile(took, 99), since),
		fmt.Sprintf("Nodes led %d to %d times each; the longest that one waited was %d elections.", slices.Min(least), slices.Max(least), slices.Max(most)),
	}
	if calls := Calls(a); calls > 0 { // peers ask nobody
		said = append(said, fmt.Sprintf("Of the time, p50 %.0f ms and p99 %.0f ms are from when the winner first asked for the open group: the rest is what the backend takes to notice.", lab.Percentile(campaigns, 50), lab.Percentile(campaigns, 99)))
		said = append(said, fmt.Sprintf("Per vacancy the nodes asked their store %.1f times beside renewals, all together, those that the restarted node makes anyway among them.", calls))
	}
	return append(said, fmt.Sprintf("On the wire: %.0f messages per second on average, %.0f in the busiest second.", a.Traffic.PerSecond, a.Traffic.Peak))
}

func figures(r lab.Result) ([]lab.Figure, error) {
	a, ok := r.Arm(armName)
	if !ok || len(a.Elections) == 0 {
		return nil, nil
	}
	took := lab.Latencies(a.Elections)
	slices.SortFunc(took, cmp.Compare[float64])
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "milliseconds", "part of elections"
	var line plotter.XYs
	for i, ms := range took {
		line = append(line, plotter.XY{X: ms, Y: float64(i+1) / float64(len(took))})
	}
	l, err := plotter.NewLine(line)
	if err != nil {
		return nil, err
	}
	l.Color, l.StepStyle, l.Width = lab.Blue, plotter.PreStep, vg.Points(2)
	p.Add(plotter.NewGrid(), l)
	p.X.Min, p.Y.Min, p.Y.Max = min(0, took[0]), 0, 1
	latency, err := lab.Draw(p, 2.6*vg.Inch, "Election latency under churn: the part of elections that took no longer.")
	if err != nil {
		return nil, err
	}
	turns, err := turnsFigure(a)
	return []lab.Figure{latency, turns}, err
}

func turnsFigure(a lab.ArmResult) (lab.Figure, error) {
	p := plot.New()
	p.Y.Label.Text, p.Y.Min = "times led", 0
	var (
		nodes  []string
		values plotter.Values
	)
	for node := range a.Led {
		nodes = append(nodes, node)
	}
	slices.Sort(nodes)
	for _, node := range nodes {
		values = append(values, float64(a.Led[node]))
	}
	bars, err := plotter.NewBarChart(values, vg.Points(24))
	if err != nil {
		return lab.Figure{}, err
	}
	bars.Color, bars.LineStyle.Width = lab.Green, 0
	p.Add(bars)
	p.NominalX(nodes...)
	return lab.Draw(p, 2*vg.Inch, "Who led how often.")
}

func row(r lab.Result) []string {
	a, ok := r.Arm(armName)
	if !ok || len(a.Elections) == 0 {
		return nil
	}
	took, campaigns := lab.Latencies(a.Elections), lab.Campaigns(a.Elections)
	var led, waits []int
	for node, n := range a.Led {
		led, waits = append(led, n), append(waits, a.Drought[node])
	}
	calls := "-"
	if n := Calls(a); n > 0 {
		calls = fmt.Sprintf("%.1f", n)
	}
	return []string{
		fmt.Sprint(len(took)), halfAndMost(campaigns), halfAndMost(took), lab.Opened(a.Elections),
		fmt.Sprintf("%d to %d", slices.Min(led), slices.Max(led)), fmt.Sprint(slices.Max(waits)), calls,
		fmt.Sprintf("%.0f / %.0f", a.Traffic.PerSecond, a.Traffic.Peak),
	}
}

func halfAndMost(ms []float64) string {
	return fmt.Sprintf("%.0f / %.0f", lab.Percentile(ms, 50), lab.Percentile(ms, 99))
}
