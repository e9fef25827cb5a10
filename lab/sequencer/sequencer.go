// Package sequencer asks how many numbers a second the fleet gives out, each
// after a fenced commit, through failovers and at its highest.
package sequencer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"baton/lab"
)

// Experiment is number 9.
var Experiment = lab.Experiment{
	Number:   9,
	Name:     "sequencer",
	Question: "How many numbers a second does the fleet give out, each after a fenced commit that covers it, while leaders are killed and asked to go, and how many at most?",
	Arms:     arms,
	Plot:     figures,
	Findings: findings,
	Columns:  []string{"asked for, per second", "through failovers: median second, answer p50 / p99 ms", "highest: mean per second (least second), for", "answer p50 / p99 ms"},
	Row:      row,
}

// target is how many numbers a second there are to be.
const target = 5000

func arms(s lab.Setting) []lab.Arm {
	ttl, d := s.TTL(s.Profile.TTL), s.Profile.SequenceFor
	checks := slices.Concat(s.Sound(), []lab.Check{lab.Served(min(target, s.Profile.Sequence.PerSecond))})
	return []lab.Arm{
		{
			Name: "through failovers", Says: "Requests at a steady rate. The leader is killed, and later asked to go.",
			TTL: ttl, Load: s.Profile.Sequence, Takes: d + 2*s.Lapse(ttl) + 5*time.Second,
			Script: func(ctx context.Context, f *lab.Stage) error { return through(ctx, f, d/3) },
			Checks: append(checks, lab.FailedOver),
		},
		{
			Name: "highest", Says: "Every client asks again as soon as it was answered.",
			TTL: ttl, Load: lab.Load{Clients: 2 * s.Profile.Sequence.Clients}, Takes: d + 3*time.Second,
			Script: func(ctx context.Context, f *lab.Stage) error { return f.Wait(ctx, d) },
			Checks: checks,
		},
	}
}

func through(ctx context.Context, f *lab.Stage, between time.Duration) error {
	if err := f.Wait(ctx, between); err != nil {
		return err
	}
	fault, err := f.Kill(ctx)
	if err != nil {
		return err
	}
	if err := f.Restart(ctx, fault.Node); err != nil {
		return err
	}
	if err := f.Wait(ctx, between); err != nil {
		return err
	}
	if _, err := f.Resign(ctx, ""); err != nil {
		return err
	}
	return f.Wait(ctx, between)
}

func findings(r lab.Result) []string {
	var said []string
	for _, a := range r.Arms {
		t := a.Rates
		said = append(said, fmt.Sprintf("%s: %d numbers in %d s: %.0f per second on average, %d in the median second, %d in the least; an answer took p50 %.1f ms, p99 %.1f ms. %d leaderships.",
			a.Name, a.Load.Answered, len(t.Seconds), t.Mean, t.Median, t.Least, t.P50MS, t.P99MS, len(a.Effect)))
	}
	return said
}

func figures(r lab.Result) ([]lab.Figure, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "seconds", "numbers per second"
	p.Legend.Top, p.Y.Min = true, 0
	for i, a := range r.Arms {
		var line plotter.XYs
		for at, n := range a.Rates.Seconds {
			line = append(line, plotter.XY{X: float64(at), Y: float64(n)})
		}
		if len(line) == 0 {
			continue
		}
		l, err := plotter.NewLine(line)
		if err != nil {
			return nil, err
		}
		l.Color, l.Width = lab.Palette(i), vg.Points(2)
		p.Add(l)
		p.Legend.Add(a.Name, l)
	}
	p.Y.Max *= 1.2
	f, err := lab.Draw(p, 2.6*vg.Inch, "Numbers given out, second by second.")
	return []lab.Figure{f}, err
}

func row(r lab.Result) []string {
	if len(r.Arms) < 2 {
		return nil
	}
	through, highest := r.Arms[0].Rates, r.Arms[1].Rates
	return []string{
		fmt.Sprint(r.Arms[0].Load.PerSecond), fmt.Sprintf("%d, %.1f / %.1f", through.Median, through.P50MS, through.P99MS),
		fmt.Sprintf("%.0f (%d), %d s", highest.Mean, highest.Least, len(highest.Seconds)), fmt.Sprintf("%.1f / %.1f", highest.P50MS, highest.P99MS),
	}
}
