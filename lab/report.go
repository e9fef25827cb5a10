package lab

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed report.html
var reportText string

var reportPage = template.Must(template.New("report").Funcs(template.FuncMap{
	"svg":   func(f Figure) template.HTML { return template.HTML(f.SVG) }, //nolint:gosec // drawn by ourselves
	"lines": func(s []string) string { return strings.Join(s, "\n") },
	"since": func(a ArmResult, at int64) string { return fmt.Sprintf("%.3f s", a.seconds(at)) },
	"ms":    func(ms float64) string { return fmt.Sprintf("%.0f", ms) },
	"ms3":   func(ms float64) string { return fmt.Sprintf("%.3f", ms) },
	"sum": func(all []Overlap) string {
		return total(all).Round(time.Millisecond / 10).String()
	},
}).Parse(reportText))

// Summary is the machine-readable result of all experiments: result.json.
type Summary struct {
	OK     bool     `json:"ok"`
	Failed []string `json:"failed"`
	// Unfinished says that the last run was cut off, and how many results are its own.
	Unfinished string     `json:"unfinished,omitempty"`
	Shown      []ShownRow `json:"shown"`
	Results    []Result   `json:"results"`
}

// page is what the template shows.
type page struct {
	Summary
	Origins  []string
	Across   []Figure
	Sections []section
}

type section struct {
	Result
	Figures []Figure
	Drawn   []drawnArm
}

type drawnArm struct {
	ArmResult
	Figures []Figure
}

// Report writes result.json and report.html, one page with everything in it, of
// the results in dir.
func Report(dir string, experiments []Experiment) (Summary, error) {
	s := Summary{OK: true, Failed: []string{}}
	results, err := ReadResults(dir)
	if err != nil {
		return s, err
	}
	s.Results = results
	p := page{}
	for _, r := range results {
		s.OK = s.OK && r.OK
		s.Failed = append(s.Failed, r.Failed()...)
		drawn, err := drawSection(r, experiments)
		if err != nil {
			return s, err
		}
		p.Sections = append(p.Sections, drawn)
	}
	s.Shown = MustBeShown(results)
	if s.Unfinished, err = unfinished(dir, results); err != nil {
		return s, err
	}
	p.Summary, p.Origins = s, origins(byNumber(results))
	if p.Across, err = acrossFigures(results); err != nil {
		return s, err
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return s, err
	}
	if err := os.WriteFile(filepath.Join(dir, "result.json"), append(text, '\n'), 0o644); err != nil {
		return s, fmt.Errorf("write the summary: %w", err)
	}
	var html strings.Builder
	if err := reportPage.Execute(&html, p); err != nil {
		return s, fmt.Errorf("write the report: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "report.html"), []byte(html.String()), 0o644); err != nil {
		return s, fmt.Errorf("write the report: %w", err)
	}
	return s, nil
}

func drawSection(r Result, experiments []Experiment) (section, error) {
	drawn := section{Result: r}
	if i := slices.IndexFunc(experiments, func(e Experiment) bool { return e.Name == r.Name }); i >= 0 && experiments[i].Plot != nil {
		figures, err := experiments[i].Plot(r)
		if err != nil {
			return drawn, fmt.Errorf("plot experiment %d: %w", r.Number, err)
		}
		drawn.Figures = figures
	}
	for _, a := range r.Arms {
		figures, err := a.figures()
		if err != nil {
			return drawn, fmt.Errorf("plot experiment %d, %s: %w", r.Number, a.Name, err)
		}
		drawn.Drawn = append(drawn.Drawn, drawnArm{a, figures})
	}
	return drawn, nil
}
