// Package fencingoff asks whether the fencing token carries the load: the
// partition and the pause once more, without and with fencing.
package fencingoff

import (
	"fmt"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"baton/lab"
	"baton/lab/gcpause"
	"baton/lab/partition"
)

// Experiment is number 5.
var Experiment = lab.Experiment{
	Number:   5,
	Name:     "fencingoff",
	Question: "The partition and the pause once more, without fencing: which damage appears? And with it again: is it gone?",
	Arms:     arms,
	Plot:     figures,
	Findings: findings,
	Columns:  []string{"partition, off: steps down, numbers twice", "on: the same, refused", "pause, off: steps down, numbers twice", "on: the same, refused"},
	Row:      row,
}

func arms(s lab.Setting) []lab.Arm {
	var all []lab.Arm
	for _, arm := range []lab.Arm{partition.Lingering(s), gcpause.Frozen(s)} {
		off := arm
		off.Name, off.FencingOff = arm.Name+", fencing off", true
		off.Checks = []lab.Check{lab.Damaged, lab.FailedOver, lab.OnlyKilled, lab.Skewed}
		arm.Name += ", fencing on"
		all = append(all, off, arm)
	}
	return all
}

// damage is what went wrong in an arm.
func damage(a lab.ArmResult) float64 {
	return float64(a.Audit.SeqsFell + a.Audit.Duplicates)
}

func findings(r lab.Result) []string {
	var said []string
	for _, a := range r.Arms {
		said = append(said, fmt.Sprintf("%s: %d steps where numbers did not rise, %d numbers given out twice (%d of them seen twice by clients), %d stale writes refused.",
			a.Name, a.Audit.SeqsFell, a.Audit.Duplicates, a.Load.Twice, a.Refused))
	}
	return said
}

func figures(r lab.Result) ([]lab.Figure, error) {
	p := plot.New()
	p.Y.Label.Text = "steps down + numbers used twice"
	p.Y.Min = 0
	var (
		values plotter.Values
		names  []string
	)
	for _, a := range r.Arms {
		values, names = append(values, damage(a)), append(names, a.Name)
	}
	bars, err := plotter.NewBarChart(values, vg.Points(40))
	if err != nil {
		return nil, err
	}
	bars.Color, bars.LineStyle.Width = lab.Red, 0
	p.Add(bars)
	p.NominalX(names...)
	p.X.Tick.Label.Font.Size = vg.Points(8)
	f, err := lab.Draw(p, 2.6*vg.Inch, "Damage without and with fencing: the resource's own count.")
	return []lab.Figure{f}, err
}

func row(r lab.Result) []string {
	var cells []string
	for _, a := range r.Arms {
		cell := fmt.Sprintf("%d, %d", a.Audit.SeqsFell, a.Audit.Duplicates)
		if a.Fencing {
			cell += fmt.Sprintf(", %d refused", a.Refused)
		}
		cells = append(cells, cell)
	}
	return cells
}
