package observed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"baton"
)

// lookEvery is how often one who waits looks whether a change escaped it, and
// whether the register is there at all.
const lookEvery = 5 * time.Second

// Get reads the group.
func (l *Leases) Get(ctx context.Context, group string) (baton.Lease, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return baton.Lease{}, err
	}
	bounded, cancel := l.Begin(ctx, true)
	defer cancel()
	now, err := l.view(bounded, group)
	if err != nil {
		return baton.Lease{}, l.Fail(ctx, "get", err)
	}
	return now.lease(group, l.clock.Now()), nil
}

// Look reads the record of a group, after ending a lease that has run out.
func (l *Leases) Look(ctx context.Context, group string) (Snapshot, error) {
	now, err := l.look(ctx, group)
	return now.snap, err
}

// look is view in bounded time, for those who wait without a bound.
func (l *Leases) look(ctx context.Context, group string) (sight, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.timeout, errTimeout)
	defer cancel()
	return l.view(ctx, group)
}

// glance is look for those who wait. What it shows may be old, which is no
// harm: a beat was written before it was seen, and who ends a lease names the version.
func (l *Leases) glance(ctx context.Context, group string) (sight, error) {
	cheap, ok := l.register.(Peeker)
	if !ok {
		return l.look(ctx, group)
	}
	bounded, cancel := context.WithTimeoutCause(ctx, l.timeout, errTimeout)
	defer cancel()
	asked := l.clock.Now()
	snap, err := cheap.Peek(bounded, group)
	if err != nil {
		return sight{}, err
	}
	now := l.sights.see(group, snap, asked)
	if now.lapsed(l.clock.Now()) {
		return l.look(ctx, group)
	}
	return now, nil
}

// History returns the last terms of a group, oldest first.
func (l *Leases) History(ctx context.Context, group string) ([]baton.PastTerm, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return nil, err
	}
	bounded, cancel := l.Begin(ctx, true)
	defer cancel()
	now, past, err := l.past(bounded, group)
	if err != nil {
		return nil, l.Fail(ctx, "history", err)
	}
	r := now.snap.Record
	var history []baton.PastTerm
	for n := r.Ended; n > r.Forgotten; n-- {
		p, ok := past[n-1]
		if !ok || len(history) == MaxPast {
			break
		}
		history = append(history, p.term())
	}
	slices.Reverse(history)
	if r.Holder != nil {
		history = append(history, r.Holder.term())
	}
	return history, nil
}

// past reads a group and what is kept of those who led it, by their number.
func (l *Leases) past(ctx context.Context, group string) (sight, map[uint64]Past, error) {
	now, err := l.view(ctx, group)
	if err != nil {
		return sight{}, nil, err
	}
	kept, err := l.register.Past(ctx, group)
	if err != nil {
		return sight{}, nil, err
	}
	byNumber := make(map[uint64]Past, len(kept)+1)
	slices.SortFunc(kept, func(a, b Past) int { return cmp.Compare(a.N, b.N) })
	for _, p := range kept {
		byNumber[p.N] = p
	}
	if last := now.snap.Record.Last; last != nil {
		byNumber[last.N] = *last
	}
	return now, byNumber, nil
}

// Vacancy waits until the group is vacant or held by c, and counts meanwhile:
// it is what an observer does while nobody asks. A lease that runs out it ends.
func (l *Leases) Vacancy(ctx context.Context, group string, c baton.Candidate) (Record, error) {
	for {
		now, err := l.glance(ctx, group)
		if err != nil {
			return Record{}, err
		}
		if r := now.snap.Record; r.Holder == nil || r.heldBy(c) {
			return r, nil
		}
		if err := l.pass(ctx, group, now); err != nil {
			return Record{}, err
		}
	}
}

// Held waits until the group is held.
func (l *Leases) Held(ctx context.Context, group string) (Record, error) {
	for {
		now, err := l.glance(ctx, group)
		if err != nil || now.snap.Record.Holder != nil {
			return now.snap.Record, err
		}
		if err := l.pass(ctx, group, now); err != nil {
			return Record{}, err
		}
	}
}

// pass returns when the group may have changed, its lease has run out, or it is time to look again.
func (l *Leases) pass(ctx context.Context, group string, now sight) error {
	wait := lookEvery
	if now.snap.Record.Holder != nil {
		if left := now.ends() - l.clock.Now(); left > 0 {
			wait = min(wait, left)
		} else {
			wait = lookEvery / 5 // only who may not write gets here: it must wait for somebody who may
		}
	}
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := l.clock.AfterFunc(wait, cancel)
	defer stop()
	err := l.register.Wait(waiting, group, now.snap.Version)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && waiting.Err() == nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("wait for a change of group %q: %w", group, err)
	}
	return nil
}
