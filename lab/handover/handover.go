// Package handover asks how clean a graceful handover is: the leader resigns,
// names a successor, or is asked to end.
package handover

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

// Experiment is number 7.
var Experiment = lab.Experiment{
	Number:   7,
	Name:     "handover",
	Question: "The leader is asked to go. How soon has it stopped, and how long is it from its last write to the next leader's first?",
	Arms:     arms,
	Plot:     figures,
	Findings: findings,
	Columns:  []string{"handovers", "stopped after the order, worst, ms", "gap by acting: least / p50 / most, ms", "from write to write: least / p50 / most, ms"},
	Row:      row,
}

func arms(s lab.Setting) []lab.Arm {
	ttl := s.TTL(s.Profile.TTL)
	arm := func(name, says string, one func(ctx context.Context, f *lab.Stage) error) lab.Arm {
		times := 4 * s.Profile.Repeats
		return lab.Arm{
			Name: name, Says: says, TTL: ttl, Takes: time.Duration(times)*(ttl/6+time.Second) + 3*time.Second,
			Script: func(ctx context.Context, f *lab.Stage) error {
				for range times {
					if err := one(ctx, f); err != nil {
						return err
					}
					if err := f.Steady(ctx); err != nil {
						return err
					}
				}
				return nil
			},
			Checks: append(slices.Concat(s.Sound(), clean(s)), lab.StoppedWithin(s.RenewEvery(ttl))),
		}
	}
	all := []lab.Arm{
		arm("resign", "The leader gives up, and goes on as a follower.", func(ctx context.Context, f *lab.Stage) error {
			_, err := f.Resign(ctx, "")
			return err
		}),
		arm("shutdown", "The leader's process is asked to end (SIGTERM), and starts again.", func(ctx context.Context, f *lab.Stage) error {
			fault, err := f.Stop(ctx)
			if err != nil {
				return err
			}
			return f.Restart(ctx, fault.Node)
		}),
	}
	if s.Backend.Transfers {
		all = append(all, arm("transfer", "The leader gives up in favour of a node that is named.", transfer))
	}
	return all
}

// clean is what a backend promises of handovers that lets nobody in too soon.
func clean(s lab.Setting) []lab.Check {
	if s.Backend.Unguarded {
		return nil
	}
	return []lab.Check{lab.HandedOver, lab.GapPositive}
}

// transfer hands over to the node that has waited least, as the line has it.
func transfer(ctx context.Context, f *lab.Stage) error {
	leader, err := f.Leader(ctx)
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(f.Nodes(), func(id string) bool { return id == leader })
	_, err = f.Resign(ctx, others[f.Rand().IntN(len(others))])
	return err
}

// gaps are the times from stop to start, and from write to write.
func gaps(a lab.ArmResult) (acting, writes, stopped []float64) {
	for _, h := range a.Handovers {
		acting, stopped = append(acting, h.GapMS), append(stopped, h.StoppedMS)
		if h.Wrote {
			writes = append(writes, h.WriteGapMS)
		}
	}
	return acting, writes, stopped
}

func findings(r lab.Result) []string {
	var said []string
	for _, a := range r.Arms {
		acting, writes, stopped := gaps(a)
		if len(acting) == 0 {
			continue
		}
		said = append(said, fmt.Sprintf("%s: %d handovers; work stopped %s ms after the order; %.2f ms (p50; %.2f to %.2f) from stop to start, %.1f ms (p50) from the old leader's last write to the new one's first.",
			a.Name, len(acting), lab.Span(stopped), lab.Percentile(acting, 50), slices.Min(acting), slices.Max(acting), lab.Percentile(writes, 50)))
	}
	return said
}

func figures(r lab.Result) ([]lab.Figure, error) {
	var all plotter.Values
	for _, a := range r.Arms {
		_, writes, _ := gaps(a)
		all = append(all, writes...)
	}
	if len(all) == 0 {
		return nil, nil
	}
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "milliseconds", "handovers"
	h, err := plotter.NewHist(all, 20)
	if err != nil {
		return nil, err
	}
	h.FillColor, h.LineStyle.Width = lab.Blue, 0
	p.Add(h)
	p.X.Min = 0
	f, err := lab.Draw(p, 2.4*vg.Inch, "The gap: from the old leader's last accepted write to the new one's first.")
	return []lab.Figure{f}, err
}

func row(r lab.Result) []string {
	var acting, writes, stopped []float64
	for _, a := range r.Arms {
		g, w, s := gaps(a)
		acting, writes, stopped = append(acting, g...), append(writes, w...), append(stopped, s...)
	}
	if len(acting) == 0 || len(writes) == 0 {
		return nil
	}
	spread := func(all []float64) string {
		return fmt.Sprintf("%.2f / %.1f / %.1f", slices.Min(all), lab.Percentile(all, 50), slices.Max(all))
	}
	return []string{fmt.Sprint(len(acting)), fmt.Sprintf("%.1f", slices.Max(stopped)), spread(acting), spread(writes)}
}
