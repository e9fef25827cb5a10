// Package ttlsweep asks which TTL to choose: what a crash costs and what a stumble
// costs, for each.
package ttlsweep

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"baton/lab"
)

// Experiment is number 2.
var Experiment = lab.Experiment{
	Number:   2,
	Name:     "ttlsweep",
	Question: "For each TTL: how long is nobody at work after a crash, and how many stumbles, such as pauses, a slow backend, a busy machine, unseat a leader that is well?",
	Arms:     arms,
	Plot:     figures,
	Findings: findings,
	Columns:  []string{"TTL: stumbles that unseated a leader / failover after a kill / dark in a month", "least at"},
	Row:      row,
}

func arms(s lab.Setting) []lab.Arm {
	ttls := s.TTLs(s.Profile.Sweep)
	if s.Backend.Peers {
		ttls = []time.Duration{s.Profile.TTL} // nothing depends on it
	}
	var all []lab.Arm
	for _, ttl := range ttls {
		all = append(all, lab.Arm{
			Name: fmt.Sprintf("ttl %v", ttl), Says: "The leader stumbles, in the same ways for every TTL; then it is killed.",
			TTL: ttl, Takes: takes(s.Profile.Stumbles, s.Lapse(ttl)),
			Script: func(ctx context.Context, f *lab.Stage) error { return script(ctx, f, s.Profile.Stumbles) },
			// No check by belief: a leader that wakes from a pause acts for a moment.
			Checks: append(lab.Fenced(), lab.OnlyKilled, killedOver),
		})
	}
	return all
}

func takes(stumbles []lab.Stumble, ttl time.Duration) time.Duration {
	sum := ttl + 5*time.Second
	for _, u := range stumbles {
		sum += u.For + time.Second + ttl/6
	}
	return sum
}

func script(ctx context.Context, f *lab.Stage, stumbles []lab.Stumble) error {
	for _, u := range stumbles {
		if err := stumble(ctx, f, u); err != nil {
			return err
		}
		if err := f.Steady(ctx); err != nil {
			return err
		}
	}
	fault, err := f.Kill(ctx)
	if err != nil {
		return err
	}
	if err := f.Restart(ctx, fault.Node); err != nil {
		return err
	}
	return f.Steady(ctx)
}

func stumble(ctx context.Context, f *lab.Stage, u lab.Stumble) (err error) {
	switch u.Kind {
	case lab.StumblePause:
		_, err = f.Freeze(ctx, u.For)
	case lab.StumbleSlow:
		_, err = f.Delay(ctx, u.By, u.For)
	case lab.StumbleBusy:
		err = f.Busy(ctx, u.For)
	default:
		err = fmt.Errorf("no such stumble: %+v", u)
	}
	return err
}

// killedOver: the one that was killed was followed. Those that stumble need not be.
var killedOver = lab.Check{Name: "after the kill another leadership wrote", Kind: lab.Shown, Judge: func(r *lab.Record) (bool, string) {
	for _, f := range r.Failovers() {
		if f.Fault == lab.KindKill {
			return true, fmt.Sprintf("after %.0f ms", f.GapMS)
		}
	}
	return false, "none"
}}

func findings(r lab.Result) []string {
	var said []string
	points := lab.SweepPoints(r)
	for _, p := range points {
		said = append(said, fmt.Sprintf("TTL %v: %d of %d stumbles unseated a leader that was well (the longest pause that did not: %v); after a kill nobody wrote for %v. In a month with %d crashes and %d such stumbles nobody writes for %v.",
			p.TTL, p.False, p.Stumbles, p.Longest.Round(time.Millisecond), p.Failover.Round(time.Millisecond), lab.CrashesAMonth, lab.StumblesAMonth, p.Dark().Round(time.Second)))
	}
	if knee, ok := lab.Knee(points); ok {
		said = append(said, fmt.Sprintf("The least of that is at a TTL of %v.", knee.TTL))
	}
	return said
}

func row(r lab.Result) []string {
	points := lab.SweepPoints(r)
	var all []string
	for _, p := range points {
		all = append(all, fmt.Sprintf("%v: %d of %d / %v / %v", p.TTL, p.False, p.Stumbles, p.Failover.Round(10*time.Millisecond), p.Dark().Round(time.Second)))
	}
	least := "-"
	if knee, ok := lab.Knee(points); ok {
		least = knee.TTL.String()
	}
	return []string{strings.Join(all, "; "), least}
}

func figures(r lab.Result) ([]lab.Figure, error) {
	points := lab.SweepPoints(r)
	if len(points) < 2 {
		return nil, nil
	}
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "TTL, seconds", "seconds; stumbles"
	p.Legend.Top, p.Legend.Left = true, true
	var failover, unseated plotter.XYs
	for _, at := range points {
		failover = append(failover, plotter.XY{X: at.TTL.Seconds(), Y: at.Failover.Seconds()})
		unseated = append(unseated, plotter.XY{X: at.TTL.Seconds(), Y: float64(at.False)})
	}
	for _, s := range []struct {
		name string
		at   plotter.XYs
		draw.GlyphStyle
	}{
		{"failover after a kill, seconds", failover, draw.GlyphStyle{Color: lab.Blue, Radius: vg.Points(4), Shape: draw.CircleGlyph{}}},
		{fmt.Sprintf("leaders unseated, of %d stumbles", points[0].Stumbles), unseated, draw.GlyphStyle{Color: lab.Red, Radius: vg.Points(4), Shape: draw.PyramidGlyph{}}},
	} {
		line, marks, err := plotter.NewLinePoints(s.at)
		if err != nil {
			return nil, err
		}
		line.Color, marks.GlyphStyle = s.Color, s.GlyphStyle
		p.Add(line, marks)
		p.Legend.Add(s.name, line, marks)
	}
	p.X.Min, p.Y.Min = 0, 0
	p.Y.Max *= 1.4
	f, err := lab.Draw(p, 3*vg.Inch, "The trade: a longer TTL makes a crash dearer and a stumble cheaper.")
	return []lab.Figure{f}, err
}
