// Package partition asks what a leader does that is cut off from the backend,
// but not from its clients and the resource.
package partition

import (
	"context"
	"fmt"
	"slices"
	"time"

	"baton/lab"
)

// Experiment is number 3.
var Experiment = lab.Experiment{
	Number:   3,
	Name:     "partition",
	Question: "The leader is cut off from the backend and goes on serving. Do two nodes act at once, and what does the resource let in?",
	Arms:     arms,
	Findings: findings,
	Columns:  []string{"a sound leader stopped before the next began by, ms", "its stale writes", "lingering leaders: two by belief for", "stale writes refused", "accepted"},
	Row:      row,
}

func arms(s lab.Setting) []lab.Arm {
	return []lab.Arm{sound(s), Lingering(s)}
}

const (
	soundName     = "sound leader"
	lingeringName = "lingering leader"
)

// sound: leaders as they should be. That answers come late before the cut is
// what tells trust from the send from trust from the receipt.
func sound(s lab.Setting) lab.Arm {
	ttl := s.TTL(s.Profile.TTL)
	return lab.Arm{
		Name: soundName, Says: "First the backend's answers come late, then the leader is cut off, both ways. It stops before its lease ends.",
		TTL: ttl, Broken: s.Broken, Takes: time.Duration(s.Profile.Repeats)*(ttl+3*s.Lapse(ttl)) + 3*time.Second,
		Script: func(ctx context.Context, f *lab.Stage) error {
			return repeat(ctx, f, s.Profile.Repeats, func() error {
				if err := f.Slow(ctx, late(s)); err != nil {
					return err
				}
				if err := f.Wait(ctx, ttl); err != nil {
					return err
				}
				return cut(ctx, f, 2*s.Lapse(ttl))
			})
		},
		Checks: append(slices.Concat(s.Sound(), s.Leases(), stopped(s)), lab.FailedOver),
	}
}

// Lingering is the arm whose leaders go on after their leadership, as those do
// that never look at the clock: two nodes think that they lead.
func Lingering(s lab.Setting) lab.Arm {
	ttl := s.TTL(s.Profile.TTL)
	return lab.Arm{
		Name: lingeringName, Says: "The leader is cut off, and its work goes on although its leadership has ended: two nodes think that they lead, and the resource decides.",
		TTL: ttl, Linger: s.Lapse(ttl) + slowest, Takes: time.Duration(s.Profile.Repeats)*(3*s.Lapse(ttl)) + 3*time.Second,
		Script: func(ctx context.Context, f *lab.Stage) error {
			return repeat(ctx, f, s.Profile.Repeats, func() error { return cut(ctx, f, 2*s.Lapse(ttl)) })
		},
		Checks: append(lab.Fenced(), lab.TwoByBelief, lab.StaleSent(1), lab.FailedOver, lab.OnlyKilled),
	}
}

// slowest is by how much later than its backend lets it a successor may begin: on a
// machine that stands still for seconds, it is still met by the leader before it.
const slowest = 5 * time.Second

// late is how late answers are: so that it matters, and renewals still come
// through in time. A renewal may take several answers.
func late(s lab.Setting) time.Duration {
	if s.Backend.Peers {
		return s.RenewEvery(0) / 5
	}
	return s.TTL(s.Profile.TTL) / time.Duration(5*max(s.Backend.Answers, 1))
}

// stopped: a leader that some kind of quorum stands behind has stopped by the
// time another may write.
func stopped(s lab.Setting) []lab.Check {
	if s.Backend.Unguarded {
		return nil
	}
	return []lab.Check{lab.NoneStale}
}

func cut(ctx context.Context, f *lab.Stage, d time.Duration) error {
	_, err := f.Cut(ctx, d)
	return err
}

func repeat(ctx context.Context, f *lab.Stage, times int, do func() error) error {
	for range times {
		if err := do(); err != nil {
			return err
		}
		if err := f.Steady(ctx); err != nil {
			return err
		}
	}
	return nil
}

func findings(r lab.Result) []string {
	var said []string
	if a, ok := r.Arm(soundName); ok {
		if gaps := lab.StopGaps(a); len(gaps) > 0 {
			said = append(said, fmt.Sprintf("A sound leader that was cut off stopped %s ms before the next one began; %d stale writes of it reached the resource.", lab.Span(gaps), a.Refused))
		}
	}
	if a, ok := r.Arm(lingeringName); ok {
		said = append(said, fmt.Sprintf("Of leaders that go on regardless, two acted at once by belief for %v; the resource refused %d stale writes and accepted %d: by effect there was one leader at all times.",
			lab.Together(a), a.Refused, len(a.Fell)))
	}
	return said
}

func row(r lab.Result) []string {
	cells := []string{"-", "-", "-", "-", "-"}
	if a, ok := r.Arm(soundName); ok {
		if gaps := lab.StopGaps(a); len(gaps) > 0 {
			cells[0], cells[1] = lab.Span(gaps), fmt.Sprint(a.Refused)
		}
	}
	if a, ok := r.Arm(lingeringName); ok {
		cells[2], cells[3], cells[4] = lab.Together(a).String(), fmt.Sprint(a.Refused), fmt.Sprint(len(a.Fell))
	}
	return cells
}
