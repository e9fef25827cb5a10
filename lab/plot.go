package lab

import (
	"bytes"
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Figure is a drawing with what it shows.
type Figure struct {
	// Name is the file's, where it is one of its own.
	Name    string
	Caption string
	SVG     []byte
}

// The colours of all figures.
var (
	Blue  = color.RGBA{0x3b, 0x7d, 0xd8, 0xff}
	Green = color.RGBA{0x2a, 0x9d, 0x5c, 0xff}
	Red   = color.RGBA{0xd6, 0x45, 0x45, 0xff}
	Grey  = color.RGBA{0xc8, 0xcc, 0xd2, 0xff}
)

// Draw makes a figure of a plot.
func Draw(p *plot.Plot, height vg.Length, caption string) (Figure, error) {
	c := vgsvg.New(7.5*vg.Inch, height)
	p.Draw(draw.New(c))
	var text bytes.Buffer
	if _, err := c.WriteTo(&text); err != nil {
		return Figure{}, fmt.Errorf("draw %q: %w", caption, err)
	}
	svg := text.Bytes()
	return Figure{Caption: caption, SVG: svg[max(0, bytes.Index(svg, []byte("<svg"))):]}, nil
}

// seconds is a moment as the time since the arm began.
func (a ArmResult) seconds(at int64) float64 { return float64(at-a.Began) / 1e9 }

// figures draws what every arm has.
func (a ArmResult) figures() ([]Figure, error) {
	lanes, err := a.lanes()
	if err != nil {
		return nil, err
	}
	counts, err := a.counts()
	return []Figure{lanes, counts}, err
}

// lanes shows which node acted when, by belief and by effect.
func (a ArmResult) lanes() (Figure, error) {
	p := plot.New()
	p.X.Label.Text = "seconds"
	var nodes []string
	for id := range a.SkewMS {
		nodes = append(nodes, id)
	}
	slices.Sort(nodes)
	p.NominalY(nodes...)
	lane := func(node string) float64 { return float64(slices.Index(nodes, node)) }
	for _, f := range a.Faults {
		to := f.Ended
		if to == 0 {
			to = f.Began + (a.Ended-a.Began)/300
		}
		if err := bar(p, a.seconds(f.Began), a.seconds(to), lane(f.Node), vg.Points(26), Grey); err != nil {
			return Figure{}, err
		}
	}
	for _, i := range a.Belief {
		if err := bar(p, a.seconds(i.From), a.seconds(i.To), lane(i.Node)+0.09, vg.Points(7), Blue); err != nil {
			return Figure{}, err
		}
	}
	for _, i := range a.Effect {
		if err := bar(p, a.seconds(i.From), a.seconds(i.To), lane(i.Node)-0.09, vg.Points(7), Green); err != nil {
			return Figure{}, err
		}
	}
	var refused plotter.XYs
	for _, f := range a.Refusals {
		for _, i := range a.Belief {
			if i.Term == f.Term {
				refused = append(refused, plotter.XY{X: a.seconds(f.At), Y: lane(i.Node) - 0.3})
				break
			}
		}
	}
	if err := marks(p, refused); err != nil {
		return Figure{}, err
	}
	p.X.Min, p.X.Max = 0, a.seconds(a.Ended)
	p.Y.Min, p.Y.Max = -0.5, float64(len(nodes))-0.5
	caption := "Who acted: by belief (blue, as the node logged it), by effect (green, from the first to the last accepted write of a term)"
	if len(a.Faults) > 0 {
		caption += "; grey: the fault"
	}
	if len(refused) > 0 {
		caption += "; red: stale writes that were refused"
	}
	return Draw(p, 1.9*vg.Inch, caption+".")
}

// counts shows leaders_acting.
func (a ArmResult) counts() (Figure, error) {
	p := plot.New()
	p.X.Label.Text = "seconds"
	p.Y.Label.Text = "leaders_acting"
	p.Legend.Top, p.Legend.Left = true, true
	for _, s := range []struct {
		name   string
		acting []Interval
		color  color.Color
		width  vg.Length
	}{{"by belief", a.Belief, Blue, vg.Points(3)}, {"by effect", a.Effect, Green, vg.Points(1.5)}} {
		line := plotter.XYs{{X: 0, Y: 0}}
		count := 0
		for _, step := range steps(s.acting) {
			x := a.seconds(step.At)
			line = append(line, plotter.XY{X: x, Y: float64(count)}, plotter.XY{X: x, Y: float64(step.Count)})
			count = step.Count
		}
		line = append(line, plotter.XY{X: a.seconds(a.Ended), Y: float64(count)})
		l, err := plotter.NewLine(line)
		if err != nil {
			return Figure{}, err
		}
		l.Color, l.Width = s.color, s.width
		p.Add(l)
		p.Legend.Add(s.name, l)
	}
	p.X.Min, p.X.Max = 0, a.seconds(a.Ended)
	p.Y.Min, p.Y.Max = 0, 3
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 1, Label: "1"}, {Value: 2, Label: "2"}, {Value: 3, Label: "3"}}
	return Draw(p, 1.6*vg.Inch, "leaders_acting over time.")
}

// bar is a thick horizontal line.
func bar(p *plot.Plot, from, to, y float64, width vg.Length, c color.Color) error {
	l, err := plotter.NewLine(plotter.XYs{{X: from, Y: y}, {X: to, Y: y}})
	if err != nil {
		return err
	}
	l.Color, l.Width = c, width
	p.Add(l)
	return nil
}

func marks(p *plot.Plot, at plotter.XYs) error {
	if len(at) == 0 {
		return nil
	}
	s, err := plotter.NewScatter(at)
	if err != nil {
		return err
	}
	s.Shape, s.Color, s.Radius = draw.CrossGlyph{}, Red, vg.Points(4)
	p.Add(s)
	return nil
}

// Palette are the colours of the lines of one figure.
func Palette(i int) color.Color {
	all := []color.Color{
		Blue, Red, Green, color.RGBA{0xe0, 0x8a, 0x1e, 0xff}, color.RGBA{0x8e, 0x5b, 0xc0, 0xff},
		color.RGBA{0x2b, 0xa7, 0xb5, 0xff}, color.RGBA{0xb0, 0x6a, 0x4c, 0xff}, color.RGBA{0x5b, 0x66, 0x75, 0xff}, color.RGBA{0xd8, 0x5b, 0x9e, 0xff},
	}
	return all[i%len(all)]
}
