package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"baton"
	"baton/fenced/fencedclient"
	"baton/internal/fleet"
	"baton/internal/fleet/workset"
)

// owned is one kind of work that the leader owns: pieces in an order, of which
// a checkpoint says how many are done.
type owned struct {
	name     string
	resource *fencedclient.Resource
	total    func(workset.Size) int64
	do       func(s *workset.Set, first, last int64) (sum uint64, err error)
}

// checkpoint is what one leader hands on to the next: its place, and a sum over
// all before it, in text, since JSON's numbers end sooner.
type checkpoint struct {
	Done int64  `json:"done"`
	Sum  uint64 `json:"sum,string"`
}

// adoptWork takes the resources of the work set, as adopt does.
func (t *term) adoptWork() (bool, error) {
	for _, o := range []owned{
		{jobsResource, nil, func(s workset.Size) int64 { return s.Jobs }, (*workset.Set).Run},
		{segmentsResource, nil, workset.Size.Blocks, (*workset.Set).Compact},
	} {
		var err error
		if o.resource, err = t.take(o.name); o.resource == nil {
			return false, err
		}
		t.owned = append(t.owned, o)
	}
	return true, nil
}

// workOff goes on with the work from where the last checkpoint ended, until it
// is done or ctx ends. What it has done and not checkpointed when it stops, the
// next leader does again.
func (t *term) workOff(ctx context.Context, o owned) error {
	began := fleet.Now()
	set, err := workset.Open(t.opt.workDir)
	if err != nil {
		return err
	}
	defer func() { _ = set.Close() }() // it was only read
	at, err := t.lastCheckpoint(ctx, o)
	if err != nil || at == nil {
		return err
	}
	t.events.Log(t.about(t.l, fleet.Event{Type: fleet.Resumed, Resource: o.name, Units: &fencedclient.Units{First: 1, Last: at.Done}, Nanos: fleet.Now() - began}))
	total := o.total(set.Size)
	step := max(1, int64(float64(total)*float64(t.opt.checkpointEvery)/float64(t.opt.workTime)))
	ticker := time.NewTicker(max(t.opt.checkpointEvery, t.opt.workTime/time.Duration(total)) / strokes)
	defer ticker.Stop()
	for at.Done < total {
		done, err := t.doWork(ctx, set, o, *at, min(step, total-at.Done), ticker.C)
		if err != nil || done == nil {
			return err
		}
		if err := t.save(o, at, *done); err != nil || t.mayWrite() != nil {
			return err
		}
	}
	return nil
}

// strokes is in how many parts the work between two checkpoints is done.
const strokes = 10

// doWork does the next pieces, a part at each tick, and returns the checkpoint after
// them; nil, without an error, if the leadership ended first.
func (t *term) doWork(ctx context.Context, set *workset.Set, o owned, at checkpoint, step int64, tick <-chan time.Time) (*checkpoint, error) {
	for i, end := int64(1), at.Done+step; i <= strokes; i++ {
		select {
		case <-ctx.Done():
			return nil, nil
		case <-tick:
		}
		if t.mayWrite() != nil {
			return nil, nil
		}
		units := fencedclient.Units{First: at.Done + 1, Last: end - step + step*i/strokes}
		if units.Last < units.First {
			continue
		}
		sum, err := o.do(set, units.First, units.Last)
		if err != nil {
			return nil, err
		}
		at = checkpoint{Done: units.Last, Sum: at.Sum + sum}
		t.events.Log(t.about(t.l, fleet.Event{Type: fleet.Worked, Resource: o.name, Units: &units}))
	}
	return &at, nil
}

// save makes next the checkpoint. If that failed for now, at is where the work
// stands, and what is beyond is done again.
func (t *term) save(o owned, at *checkpoint, next checkpoint) error {
	data, err := json.Marshal(next)
	if err != nil {
		return err
	}
	units := fencedclient.Units{First: at.Done + 1, Last: next.Done}
	_, err = t.record(o.name, 1, func(ctx context.Context) (int64, error) { return o.resource.SaveAfter(ctx, units, data) })
	switch {
	case err == nil:
		*at = next
	case fatal(err):
		return err
	default:
		return t.reread(o, at)
	}
	return nil
}

// reread finds out where the work stands after a checkpoint of which nobody knows
// whether it landed.
func (t *term) reread(o owned, at *checkpoint) error {
	now, err := t.lastCheckpoint(t.write, o)
	if now != nil {
		*at = *now
	}
	return err
}

// lastCheckpoint reads where the work stands; nil, without an error, if the
// leadership ended first.
func (t *term) lastCheckpoint(ctx context.Context, o owned) (*checkpoint, error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		reading, cancel := context.WithTimeout(ctx, t.opt.writeTimeout())
		saved, err := o.resource.Checkpoint(reading)
		cancel()
		var at checkpoint
		if err == nil {
			if err := json.Unmarshal(saved.Data, &at); err != nil {
				return nil, fmt.Errorf("read the checkpoint of %s: %w", o.name, err)
			}
		}
		if err == nil || errors.Is(err, baton.ErrNotFound) {
			return &at, nil
		}
		t.log.Warn("cannot read the checkpoint; asking again", "resource", o.name, "term", t.l.Term(), "err", err)
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(pause):
		}
	}
}
