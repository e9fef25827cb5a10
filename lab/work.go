package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"baton"
	"baton/internal/fleet"
	"baton/internal/fleet/workset"
)

// WorkRecord is what became of the work that leaders own.
type WorkRecord struct {
	Kinds []WorkKind `json:"kinds"`
}

// WorkKind is one kind of it: jobs, or blocks of segments.
type WorkKind struct {
	Resource string `json:"resource"`
	Units    int64  `json:"units"`
	// Done and Sum are the last checkpoint's, Expected is what the sum over all is.
	Done     int64  `json:"done"`
	Sum      uint64 `json:"sum,string"`
	Expected uint64 `json:"expected,string"`
	// ScanMS is how long the lab took for all of it, without a pause: what a handoff
	// without a checkpoint costs at least.
	ScanMS float64 `json:"scan_ms"`
	// Handoffs are the resumptions, the first leader's among them.
	Handoffs []Handoff `json:"handoffs"`
}

// Handoff is a leader that went on with the work.
type Handoff struct {
	Term baton.Term `json:"term"`
	Node string     `json:"node"`
	// At is where it began, Recorded where the last accepted checkpoint before its
	// own ended: the same.
	At       int64 `json:"at_unit"`
	Recorded int64 `json:"recorded_unit"`
	// Redone is how much the leader before it had done beyond that.
	Redone int64 `json:"redone"`
	// TookMS is how long it took to open the set and to read the checkpoint.
	TookMS float64 `json:"took_ms"`
}

// workKind is a kind of work of a set, and how it is done.
type workKind struct {
	resource string
	units    int64
	do       func(s *workset.Set, first, last int64) (uint64, error)
}

func workKinds(size workset.Size) []workKind {
	return []workKind{
		{jobsResource, size.Jobs, (*workset.Set).Run},
		{segmentsResource, size.Blocks(), (*workset.Set).Compact},
	}
}

// checkpointed is what nodes keep in a checkpoint.
type checkpointed struct {
	Done int64  `json:"done"`
	Sum  uint64 `json:"sum,string"`
}

// WorkDone waits until all work is done, and says how far it is meanwhile.
func (s *Stage) WorkDone(ctx context.Context) error {
	limit := s.arm.patience() + 2*s.arm.WorkTime
	waiting, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the work is not done within %v", limit))
	defer cancel()
	for waiting.Err() == nil {
		done := true
		for _, k := range workKinds(*s.arm.Work) {
			at, err := s.checkpoint(waiting, k.resource)
			done = done && err == nil && at.Done == k.units
		}
		if done {
			return nil
		}
		pause(waiting, 100*time.Millisecond)
	}
	return context.Cause(waiting)
}

// WorkAt is the part of the jobs that is done, from 0 to 1.
func (s *Stage) WorkAt(ctx context.Context) float64 {
	at, err := s.checkpoint(ctx, jobsResource)
	if err != nil {
		return 0
	}
	return float64(at.Done) / float64(s.arm.Work.Jobs)
}

func (s *Stage) checkpoint(ctx context.Context, resource string) (checkpointed, error) {
	var at checkpointed
	saved, err := s.resource.Checkpoint(ctx, resource)
	if err == nil {
		err = json.Unmarshal(saved.Data, &at)
	}
	return at, err
}

// readWork reads what the last checkpoints say, and counts the work itself.
func (s *Stage) readWork(ctx context.Context) error {
	if s.arm.Work == nil {
		return nil
	}
	set, err := workset.Open(s.scratch)
	if err != nil {
		return err
	}
	defer func() { _ = set.Close() }() // it was only read
	s.record.Work = &WorkRecord{}
	for _, k := range workKinds(set.Size) {
		at, err := s.checkpoint(ctx, k.resource)
		if err != nil {
			return fmt.Errorf("read the last checkpoint of %s: %w", k.resource, err)
		}
		kind := WorkKind{Resource: k.resource, Units: k.units, Done: at.Done, Sum: at.Sum}
		began := time.Now()
		if kind.Expected, err = k.do(set, 1, k.units); err != nil {
			return err
		}
		kind.ScanMS = millis(int64(time.Since(began)))
		kind.Handoffs = s.record.handoffs(k.resource)
		s.record.Work.Kinds = append(s.record.Work.Kinds, kind)
	}
	return nil
}

// handoffs are the resumptions of one kind of work, as the nodes logged them,
// beside what the resource has on record.
func (r *Record) handoffs(resource string) []Handoff {
	var all []Handoff
	for _, e := range r.Events {
		if e.Type != fleet.Resumed || e.Resource != resource {
			continue
		}
		h := Handoff{Term: e.Term, Node: e.Node, At: e.Units.Last, Recorded: r.recorded(resource, e.Term), TookMS: millis(e.Nanos)}
		h.Redone = max(0, r.worked(resource, e.Term)-h.Recorded)
		all = append(all, h)
	}
	return all
}

// recorded is where the last checkpoint of the terms before this one ended.
func (r *Record) recorded(resource string, before baton.Term) int64 {
	var last int64
	for _, w := range r.Writes {
		if w.Resource == resource && w.Term < before && w.Covers != nil {
			last = w.Covers.Last
		}
	}
	return last
}

// worked is how far the terms before this one had come, on record or not.
func (r *Record) worked(resource string, before baton.Term) int64 {
	var last int64
	for _, e := range r.Events {
		if e.Type == fleet.Worked && e.Resource == resource && e.Term < before {
			last = max(last, e.Units.Last)
		}
	}
	return last
}

// WorkOnce: by the resource's own record no work was done twice and none left out.
var WorkOnce = Check{"audit: SQL lag() finds no work redone or skipped", Safety, func(r *Record) (bool, string) {
	a := r.Audit
	var want int64
	for _, k := range r.Work.Kinds {
		want += k.Units
	}
	return a.Redone == 0 && a.Skipped == 0 && a.Units == want,
		fmt.Sprintf("%d of %d pieces of work on record, %d redone, %d skipped", a.Units, want, a.Redone, a.Skipped)
}}

// WorkAddsUp: the sums that leaders handed on, checkpoint by checkpoint, are those
// over the whole set.
var WorkAddsUp = Check{"the sums over all work are right", Safety, func(r *Record) (bool, string) {
	ok, saw := true, ""
	for _, k := range r.Work.Kinds {
		ok = ok && k.Done == k.Units && k.Sum == k.Expected
		saw += fmt.Sprintf("%s: %d of %d, sum %x, should be %x; ", k.Resource, k.Done, k.Units, k.Sum, k.Expected)
	}
	return ok, saw
}}

// ResumedThere: every leader went on exactly where the last accepted checkpoint ended.
var ResumedThere = Check{"every leader resumes at the last checkpoint", Safety, func(r *Record) (bool, string) {
	var all, wrong int
	for _, k := range r.Work.Kinds {
		for _, h := range k.Handoffs {
			all++
			if h.At != h.Recorded {
				wrong++
			}
		}
	}
	return wrong == 0 && all > 0, fmt.Sprintf("%d resumptions, %d elsewhere", all, wrong)
}}
