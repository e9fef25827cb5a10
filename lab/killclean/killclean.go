// Package killclean asks what a crash of the leader costs: kill -9 under load,
// for several TTLs.
package killclean

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"baton/lab"
)

// Experiment is number 1.
var Experiment = lab.Experiment{
	Number:   1,
	Name:     "killclean",
	Question: "The leader is killed under load. How long until the next one writes, against the TTL, and does any number go backward?",
	Arms:     arms,
	Plot:     figures,
	Findings: findings,
	Columns:  []string{"kills", "failover by TTL: p50 (worst), seconds", "of it beyond the lease's own end: p50 (worst), ms"},
	Row:      row,
}

// slack is what may lie between the end of a lease and the next leader's first
// write: the backend notices (etcd looks every 500 ms), and an election. What a backend adds to
// its TTLs comes on top.
const slack = 2 * time.Second

func arms(s lab.Setting) []lab.Arm {
	var all []lab.Arm
	for _, ttl := range ttls(s) {
		all = append(all, lab.Arm{
			Name: fmt.Sprintf("ttl %v", ttl), Says: "kill -9 of the leader, which then starts again.",
			TTL: ttl, Broken: s.Broken, Takes: time.Duration(s.Profile.Repeats)*(s.Lapse(ttl)+2*time.Second) + 2*time.Second,
			Script: func(ctx context.Context, f *lab.Stage) error { return script(ctx, f, s.Profile.Repeats) },
			Checks: append(slices.Concat(s.Sound(), s.Leases(), targets(s, ttl)), lab.FailedOver),
		})
	}
	return all
}

// ttls are one where nothing depends on it.
func ttls(s lab.Setting) []time.Duration {
	if s.Backend.Peers {
		return []time.Duration{s.Profile.TTL}
	}
	return s.TTLs(s.Profile.TTLs)
}

// The targets: a failover with a TTL of 3 s, and one among peers.
const (
	leaseTarget = 5 * time.Second
	peersTarget = 1500 * time.Millisecond
)

func targets(s lab.Setting, ttl time.Duration) []lab.Check {
	slack := slack + s.Lapse(ttl) - ttl
	switch {
	case s.Backend.Peers:
		return []lab.Check{lab.Within(peersTarget)}
	case ttl <= 3*time.Second:
		return []lab.Check{lab.Within(leaseTarget), lab.Beyond(slack)}
	}
	return []lab.Check{lab.Beyond(slack)}
}

func script(ctx context.Context, f *lab.Stage, repeats int) error {
	for range repeats {
		fault, err := f.Kill(ctx)
		if err != nil {
			return err
		}
		if err := f.Restart(ctx, fault.Node); err != nil {
			return err
		}
		if err := f.Steady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// kills are the failovers after kills, of all arms.
func kills(r lab.Result) []lab.Failover {
	var all []lab.Failover
	for _, a := range r.Arms {
		for _, f := range a.Failovers {
			if f.Fault != "" {
				all = append(all, f)
			}
		}
	}
	return all
}

func findings(r lab.Result) []string {
	var said []string
	for _, a := range r.Arms {
		var gaps, beyond []float64
		for _, f := range a.Failovers {
			if f.Fault != "" {
				gaps, beyond = append(gaps, f.GapMS), append(beyond, f.BeyondLeaseMS)
			}
		}
		if len(gaps) > 0 {
			text := fmt.Sprintf("%d kills, failover %s ms from the last write of the old leader to the first of the new one", len(gaps), lab.Span(gaps))
			if slices.Max(beyond) != 0 {
				text += fmt.Sprintf("; of that %s ms lie beyond the lease's own end", lab.Span(beyond))
			}
			if !peers(r) {
				text = fmt.Sprintf("TTL %d ms: %s", a.TTLMS, text)
			}
			said = append(said, text+".")
		}
	}
	return said
}

// peers: no TTL has a say in it.
func peers(r lab.Result) bool {
	b, err := lab.BackendNamed(r.Backend)
	return err == nil && b.Peers
}

func row(r lab.Result) []string {
	kills := 0
	var failovers, excess []string
	for _, a := range r.Arms {
		var gaps, beyond []float64
		for _, f := range a.Failovers {
			if f.Fault != "" {
				gaps, beyond = append(gaps, f.GapMS/1000), append(beyond, f.BeyondLeaseMS)
			}
		}
		if len(gaps) > 0 {
			kills += len(gaps)
			failover := fmt.Sprintf("%.2f (%.2f)", lab.Percentile(gaps, 50), slices.Max(gaps))
			if !peers(r) {
				failover = fmt.Sprintf("%g s: %s", float64(a.TTLMS)/1000, failover)
			}
			failovers = append(failovers, failover)
			excess = append(excess, fmt.Sprintf("%.0f (%.0f)", lab.Percentile(beyond, 50), slices.Max(beyond)))
		}
	}
	return []string{fmt.Sprint(kills), strings.Join(failovers, "; "), strings.Join(excess, "; ")}
}

func figures(r lab.Result) ([]lab.Figure, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "TTL, seconds", "seconds"
	p.Legend.Top, p.Legend.Left = true, true
	var gap, beyond plotter.XYs
	longest := 0.0
	for _, f := range kills(r) {
		ttl := float64(f.TTLMS) / 1000
		longest = max(longest, ttl)
		gap = append(gap, plotter.XY{X: ttl, Y: f.GapMS / 1000})
		beyond = append(beyond, plotter.XY{X: ttl, Y: max(0, f.BeyondLeaseMS/1000)})
	}
	if len(gap) == 0 {
		return nil, nil
	}
	bound, err := plotter.NewLine(plotter.XYs{{X: 0, Y: 0}, {X: longest * 1.1, Y: longest * 1.1}})
	if err != nil {
		return nil, err
	}
	bound.Color = lab.Grey
	p.Add(bound, plotter.NewGrid())
	p.Legend.Add("the TTL itself", bound)
	for _, s := range []struct {
		name string
		at   plotter.XYs
		draw.GlyphStyle
	}{
		{"failover", gap, draw.GlyphStyle{Color: lab.Blue, Radius: vg.Points(4), Shape: draw.CircleGlyph{}}},
		{"its part beyond the lease's end", beyond, draw.GlyphStyle{Color: lab.Red, Radius: vg.Points(4), Shape: draw.PyramidGlyph{}}},
	} {
		points, err := plotter.NewScatter(s.at)
		if err != nil {
			return nil, err
		}
		points.GlyphStyle = s.GlyphStyle
		p.Add(points)
		p.Legend.Add(s.name, points)
	}
	p.X.Min, p.Y.Min, p.X.Max, p.Y.Max = 0, 0, longest*1.1, longest*1.6
	f, err := lab.Draw(p, 3*vg.Inch, "Failover against TTL. The bound is TTL + the backend's lag in noticing + an election; a leader killed right before a renewal was due leaves a shorter rest of its lease.")
	return []lab.Figure{f}, err
}
