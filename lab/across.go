package lab

import (
	"cmp"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// acrossFigures compare the backends.
func acrossFigures(results []Result) ([]Figure, error) {
	results = byNumber(results)
	var all []Figure
	for _, drawn := range []func([]Result) (*plot.Plot, string, string){failoverAcross, sweepAcross, churnAcross, callsAcross, gapsAcross} {
		p, name, caption := drawn(results)
		if p == nil {
			continue
		}
		f, err := Draw(p, 3.2*vg.Inch, caption)
		if err != nil {
			return nil, err
		}
		f.Name = name
		all = append(all, f)
	}
	return all, nil
}

// of are the results of one experiment.
func of(results []Result, name string) []Result {
	return slices.DeleteFunc(slices.Clone(results), func(r Result) bool { return r.Name != name })
}

// lines draws a line with marks for each backend.
func lines(x, y string, results []Result, points func(Result) plotter.XYs) *plot.Plot {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	drawn := false
	for _, r := range results {
		at := points(r)
		if len(at) == 0 {
			continue
		}
		line, marks, err := plotter.NewLinePoints(at)
		if err != nil {
			continue // of nothing that can be drawn
		}
		c := Palette(order(r.Backend))
		line.Color, line.Width = c, vg.Points(1.5)
		marks.GlyphStyle = draw.GlyphStyle{Color: c, Radius: vg.Points(3), Shape: draw.CircleGlyph{}}
		p.Add(line, marks)
		p.Legend.Add(r.Backend, line, marks)
		drawn = true
	}
	if !drawn {
		return nil
	}
	p.X.Min, p.Y.Min = min(0, p.X.Min), min(0, p.Y.Min)
	p.Y.Max *= 1.3
	return p
}

func failoverAcross(results []Result) (*plot.Plot, string, string) {
	p := lines("TTL, seconds", "failover, seconds", of(results, "killclean"), func(r Result) plotter.XYs {
		var at plotter.XYs
		for _, a := range r.Arms {
			var gaps []float64
			for _, f := range a.Failovers {
				if f.Fault != "" {
					gaps = append(gaps, f.GapMS/1000)
				}
			}
			if len(gaps) > 0 {
				at = append(at, plotter.XY{X: float64(a.TTLMS) / 1000, Y: slices.Max(gaps)})
			}
		}
		return at
	})
	return p, "failover-ttl", "Failover against TTL: the worst of each TTL, from the old leader's last accepted write to the next one's first. For peers nothing depends on the TTL."
}

func sweepAcross(results []Result) (*plot.Plot, string, string) {
	p := lines("TTL, seconds", "part of stumbles", of(results, "ttlsweep"), func(r Result) plotter.XYs {
		var at plotter.XYs
		for _, s := range SweepPoints(r) {
			at = append(at, plotter.XY{X: s.TTL.Seconds(), Y: float64(s.False) / float64(max(s.Stumbles, 1))})
		}
		return at
	})
	return p, "unseated-ttl", "The part of stumbles that unseated a leader which was well, against the TTL."
}

func churnAcross(results []Result) (*plot.Plot, string, string) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "milliseconds", "part of elections"
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Legend.Left, p.Legend.Top = true, true
	p.Add(plotter.NewGrid())
	drawn := false
	for _, r := range of(results, "churn") {
		if len(r.Arms) == 0 || len(r.Arms[0].Elections) == 0 {
			continue
		}
		took := Latencies(r.Arms[0].Elections)
		slices.SortFunc(took, cmp.Compare[float64])
		line := plotter.XYs{{X: max(1, took[0]), Y: 0}}
		for i, ms := range took {
			line = append(line, plotter.XY{X: max(1, ms), Y: float64(i+1) / float64(len(took))})
		}
		l, err := plotter.NewLine(line)
		if err != nil {
			continue
		}
		l.Color, l.Width, l.StepStyle = Palette(order(r.Backend)), vg.Points(2), plotter.PreStep
		p.Add(l)
		p.Legend.Add(r.Backend, l)
		drawn = true
	}
	if !drawn {
		return nil, "", ""
	}
	p.Y.Min, p.Y.Max = 0, 1
	p.X.Min, p.X.Max = 1, p.X.Max*1.5
	return p, "election-latency", "Election latency under churn, nine nodes: the part of elections that took no longer, from the release or the lease's end to the grant; of bully, which has neither, from the kill."
}

func callsAcross(results []Result) (*plot.Plot, string, string) {
	var (
		values plotter.Values
		names  []string
	)
	for _, r := range of(results, "churn") {
		if len(r.Arms) == 0 || len(r.Arms[0].Elections) == 0 {
			continue
		}
		sum := 0
		for _, e := range r.Arms[0].Elections {
			sum += e.Calls
		}
		if sum > 0 {
			values, names = append(values, float64(sum)/float64(len(r.Arms[0].Elections))), append(names, r.Backend)
		}
	}
	if len(values) == 0 {
		return nil, "", ""
	}
	p := plot.New()
	p.Y.Label.Text, p.Y.Min = "calls per vacancy", 0
	bars, err := plotter.NewBarChart(values, vg.Points(30))
	if err != nil {
		return nil, "", ""
	}
	bars.Color, bars.LineStyle.Width = Blue, 0
	p.Add(bars)
	p.NominalX(names...)
	return p, "calls-per-vacancy", "What nine nodes together ask their store per vacancy, beside renewals; a restarted node's own first calls are among them."
}

func gapsAcross(results []Result) (*plot.Plot, string, string) {
	p := plot.New()
	p.Y.Label.Text = "milliseconds"
	var names []string
	for _, r := range of(results, "handover") {
		var gaps plotter.Values
		for _, a := range r.Arms {
			for _, h := range a.Handovers {
				if h.Wrote {
					gaps = append(gaps, h.WriteGapMS)
				}
			}
		}
		if len(gaps) == 0 {
			continue
		}
		box, err := plotter.NewBoxPlot(vg.Points(24), float64(len(names)), gaps)
		if err != nil {
			continue
		}
		p.Add(box)
		names = append(names, r.Backend)
	}
	if len(names) == 0 {
		return nil, "", ""
	}
	p.NominalX(names...)
	p.Y.Min = 0
	return p, "handover-gap", "Graceful handovers: from the old leader's last accepted write to the next one's first."
}
