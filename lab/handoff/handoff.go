// Package handoff asks what it costs to hand on work in progress: millions of
// jobs, and segments of many gigabytes.
package handoff

import (
	"context"
	"fmt"
	"slices"
	"time"

	"baton/internal/fleet/workset"
	"baton/lab"
)

// Experiment is number 8: what a handoff does to a cursor over 100 GB.
var Experiment = lab.Experiment{
	Number:   8,
	Name:     "handoff",
	Question: "The leader works off a table of jobs and a list of segments, and is killed, frozen and asked to go meanwhile. Where do its successors go on, what is done twice, what is left out?",
	Arms:     arms,
	Findings: findings,
	Columns:  []string{"work", "handoffs", "went on within, ms", "done again", "redone / skipped on record", "a scan of all, ms"},
	Row:      row,
}

func arms(s lab.Setting) []lab.Arm {
	ttl, size := s.TTL(s.Profile.TTL), s.Profile.Work
	return []lab.Arm{{
		Name: "work set", Says: fmt.Sprintf("%d jobs and %d GiB in %d segments; a checkpoint every 250 ms. Killed, frozen for TTL + 500 ms, asked to go.", size.Jobs, size.Segments*size.SegmentBytes>>30, size.Segments),
		TTL: ttl, Work: &size, WorkTime: s.Profile.WorkTime, Takes: s.Profile.WorkTime + 3*s.Lapse(ttl) + 3*time.Second,
		Script: script(s.Lapse(ttl) + 500*time.Millisecond),
		Checks: slices.Concat(lab.Fenced(), []lab.Check{lab.WorkOnce, lab.WorkAddsUp, lab.ResumedThere, lab.FailedOver, lab.OnlyKilled}),
	}}
}

func script(freeze time.Duration) func(ctx context.Context, f *lab.Stage) error {
	return func(ctx context.Context, f *lab.Stage) error {
		for i, interrupt := range []func() error{
			func() error {
				fault, err := f.Kill(ctx)
				if err != nil {
					return err
				}
				return f.Restart(ctx, fault.Node)
			},
			func() error { _, err := f.Resign(ctx, ""); return err },
			func() error { _, err := f.Freeze(ctx, freeze); return err },
		} {
			for part := float64(i+1) / 4; f.WorkAt(ctx) < part; {
				if err := f.Wait(ctx, 50*time.Millisecond); err != nil {
					return err
				}
			}
			if err := interrupt(); err != nil {
				return err
			}
		}
		return f.WorkDone(ctx)
	}
}

func findings(r lab.Result) []string {
	var said []string
	for _, a := range r.Arms {
		if a.Work == nil {
			continue
		}
		for _, k := range a.Work.Kinds {
			what := fmt.Sprintf("%d jobs", k.Units)
			if k.Resource == "segments" {
				what = fmt.Sprintf("%d GiB of segments", k.Units*workset.BlockBytes>>30)
			}
			var took []float64
			var redone, most int64
			for _, h := range k.Handoffs {
				took = append(took, h.TookMS)
				redone, most = redone+h.Redone, max(most, h.Redone)
			}
			if len(took) == 0 {
				continue
			}
			said = append(said, fmt.Sprintf("%s: %d leaders went on where the last checkpoint ended, in %.1f ms at most; %d pieces were done again in all (at most %d at once, what one checkpoint covers), none twice on record, none left out. To begin again would have meant %.0f ms of reading at the least, and all %d pieces.",
				what, len(took), slices.Max(took), redone, most, k.ScanMS, k.Units))
		}
	}
	return said
}

func row(r lab.Result) []string {
	if len(r.Arms) == 0 || r.Arms[0].Work == nil {
		return nil
	}
	a := r.Arms[0]
	var took, scan float64
	var redone int64
	handoffs := 0
	for _, k := range a.Work.Kinds {
		scan += k.ScanMS
		handoffs = len(k.Handoffs) - 1
		for _, h := range k.Handoffs {
			took, redone = max(took, h.TookMS), redone+h.Redone
		}
	}
	size := r.Profile.Work
	return []string{
		fmt.Sprintf("%d jobs, %d GiB", size.Jobs, size.Segments*size.SegmentBytes>>30), fmt.Sprint(handoffs), fmt.Sprintf("%.1f", took),
		fmt.Sprint(redone), fmt.Sprintf("%d / %d", a.Audit.Redone, a.Audit.Skipped), fmt.Sprintf("%.0f", scan),
	}
}
