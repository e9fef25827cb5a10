// Package gcpause asks the classic question: a leader looks at its lease, finds
// it good, is frozen for longer than the lease lasts, wakes, and writes.
package gcpause

import (
	"context"
	"fmt"
	"slices"
	"time"

	"baton/lab"
)

// Experiment is number 4.
var Experiment = lab.Experiment{
	Number:   4,
	Name:     "gcpause",
	Question: "The leader is frozen between its look at the lease and its write, for TTL + 500 ms, and wakes when another leads. What becomes of the write?",
	Arms:     func(s lab.Setting) []lab.Arm { return []lab.Arm{Frozen(s)} },
	Findings: findings,
	Columns:  []string{"pauses", "stale writes sent", "refused", "accepted", "beside its successor, by belief, for"},
	Row:      row,
}

const (
	frozenName = "frozen leader"
	// beyond is how much longer than the lease the pause is.
	beyond = 500 * time.Millisecond
	// thinking is the time between a node's look at its lease and the write:
	// long against the write itself, so that nearly every pause falls into it.
	// No check that the node makes before can help; a real pause finds the
	// same window, only a smaller one.
	thinking = 50 * time.Millisecond
	// most is how many more pauses are tried until one has hit the window.
	most = 15
)

// Frozen is the arm. Its nodes are sound: nothing about them is broken.
func Frozen(s lab.Setting) lab.Arm {
	ttl := s.TTL(s.Profile.TTL)
	return lab.Arm{
		Name: frozenName, Says: "SIGSTOP of the whole process, SIGCONT after TTL + 500 ms, or as much longer as the backend keeps a lease that is not renewed. The nodes are sound and look at the clock right before each write; the pause falls between look and write.",
		TTL: ttl, WriteDelay: thinking, Takes: time.Duration(s.Profile.Repeats)*(2*s.Lapse(ttl)+time.Second) + 2*time.Second,
		Script: func(ctx context.Context, f *lab.Stage) error {
			return script(ctx, f, s.Profile.Repeats, s.Lapse(ttl)+beyond)
		},
		Checks: append(slices.Concat(lab.Fenced(), s.Leases()), lab.StaleSent(1), lab.FailedOver, lab.OnlyKilled),
	}
}

func script(ctx context.Context, f *lab.Stage, repeats int, d time.Duration) error {
	for i := 0; i < repeats || !f.PastWriteSeen() && i < repeats+most; i++ {
		if _, err := f.Freeze(ctx, d); err != nil {
			return err
		}
		if err := f.Steady(ctx); err != nil {
			return err
		}
	}
	return nil
}

func findings(r lab.Result) []string {
	a, ok := r.Arm(frozenName)
	if !ok {
		return nil
	}
	said := []string{fmt.Sprintf("%d pauses: the woken leader sent %d stale writes, %d were refused, 0 got in. By belief it acted beside its successor for %v after it woke.",
		len(a.Faults), a.Refused+len(a.Fell), a.Refused, lab.Together(a))}
	if len(a.Fell) > 0 {
		said[0] = fmt.Sprintf("%d pauses: %d stale writes were refused, %d GOT IN.", len(a.Faults), a.Refused, len(a.Fell))
	}
	if len(a.Refusals) > 0 {
		f := a.Refusals[0]
		said = append(said, fmt.Sprintf("The first refused token is %s; the resource belonged to %s.", f.Token, f.HeldBy))
	}
	return said
}

func row(r lab.Result) []string {
	a, ok := r.Arm(frozenName)
	if !ok {
		return nil
	}
	return []string{fmt.Sprint(len(a.Faults)), fmt.Sprint(a.Refused + len(a.Fell)), fmt.Sprint(a.Refused), fmt.Sprint(len(a.Fell)), lab.Together(a).String()}
}
