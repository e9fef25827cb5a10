package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// Run runs the experiments, saves each result as soon as it is there, and
// returns all. Whatever it started has ended when it returns. An error means
// that an experiment could not be run; checks that failed are in the results.
//
// A run that was cut off, by an [InterruptedError] or otherwise, is gone on with: what
// the same options have brought into the same directory before is kept, until
// all of it is there. Results of other runs stay until a new one replaces them.
func Run(ctx context.Context, o Options) (results []Result, err error) {
	r := &runner{Options: o, servers: map[string]*server{}}
	if r.checkout, err = findCheckout(); err != nil {
		return nil, err
	}
	if r.Out, err = filepath.Abs(o.Out); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.Out, 0o755); err != nil {
		return nil, err
	}
	if r.scratch, err = os.MkdirTemp("", "baton-lab-"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stopServers(), os.RemoveAll(r.scratch)) }()
	tasks, err := r.tasks()
	if err != nil {
		return nil, err
	}
	if err := r.runAll(ctx, tasks); err != nil {
		results = finished(tasks)
		if ctx.Err() != nil {
			// What broke off says less than that it was to.
			err = &InterruptedError{Done: len(results), Of: len(tasks), cause: ctx.Err()}
		}
		return results, err
	}
	return finished(tasks), r.plan.complete(r.Out)
}

// InterruptedError says that the context of a run ended before the run.
type InterruptedError struct {
	// Done is how many experiments on a backend are complete, Of how many there are.
	Done, Of int
	cause    error
}

func (e *InterruptedError) Error() string {
	return fmt.Sprintf("interrupted; %d of %d experiments are done and kept; the same command goes on", e.Done, e.Of)
}

func (e *InterruptedError) Unwrap() error { return e.cause }

// runner is a run under way.
type runner struct {
	Options
	checkout string
	scratch  string
	plan     plan
	programs programs
	machine  Machine
	progress *progress

	mu      sync.Mutex
	servers map[string]*server
}

// task is one experiment on one backend.
type task struct {
	Experiment
	setting Setting
	arms    []Arm

	mu     sync.Mutex
	result Result
	left   int // arms that have not ended
	done   bool
}

// tasks are what is to be run, and what was run before and is kept.
func (r *runner) tasks() ([]*task, error) {
	var (
		tasks   []*task
		planned time.Duration
	)
	for _, name := range r.Backends {
		b, err := BackendNamed(name)
		if err != nil {
			return nil, err
		}
		for _, e := range r.Experiments {
			t := &task{Experiment: e, setting: newSetting(r.Profile, b, r.Broken)}
			t.arms = e.Arms(t.setting)
			t.left = len(t.arms)
			for _, a := range t.arms {
				planned += a.Takes
			}
			tasks = append(tasks, t)
		}
	}
	r.progress = newProgress(r.Progress, planned, r.Profile.Parallel)
	kept, err := r.resume()
	if err != nil {
		return nil, err
	}
	for _, t := range tasks {
		before, ok := kept[resultKey{t.Number, t.setting.Backend.Name}]
		if !ok {
			continue
		}
		t.result, t.done = before, true
		r.progress.note("experiment %d on %s: there since %s", t.Number, before.Backend, before.Began.Format(time.DateTime))
		for _, a := range t.arms {
			r.progress.skip(a.Takes)
		}
	}
	return tasks, nil
}

func finished(tasks []*task) []Result {
	var all []Result
	for _, t := range tasks {
		if t.done {
			all = append(all, t.result)
		}
	}
	return all
}

func (r *runner) build(ctx context.Context) (err error) {
	dir := r.Programs
	if dir == "" {
		r.progress.note("building the programs")
		dir = filepath.Join(r.scratch, "bin")
		if err := Build(ctx, dir); err != nil {
			return err
		}
	}
	r.programs.dir, err = filepath.Abs(dir)
	return err
}

// runAll builds the programs and runs the arms of all tasks, as many at once as the profile says, and
// those that take longest first if that is more than one.
func (r *runner) runAll(ctx context.Context, tasks []*task) error {
	if err := r.build(ctx); err != nil {
		return err
	}
	r.machine = thisMachine(r.checkout)
	type job struct {
		*task
		arm Arm
		at  int // its place among the arms
	}
	var jobs []job
	for _, t := range tasks {
		if !t.done {
			r.begin(t)
			for i, a := range t.arms {
				jobs = append(jobs, job{t, a, i})
			}
		}
	}
	if r.Profile.Parallel > 1 {
		slices.SortStableFunc(jobs, func(a, b job) int { return cmp.Compare(b.arm.Takes, a.arm.Takes) })
	}
	room := semaphore.NewWeighted(int64(max(r.Profile.Parallel, 1)))
	group, running := errgroup.WithContext(ctx)
	for _, j := range jobs {
		weight := int64(min(max(r.Profile.Parallel, 1), (j.arm.nodes()+2)/3))
		if room.Acquire(running, weight) != nil {
			break // one has failed, or a signal came
		}
		group.Go(func() error {
			defer room.Release(weight)
			if err := r.runJob(running, j.task, j.arm, j.at); err != nil {
				return fmt.Errorf("experiment %d (%s) on %s, %s: %w", j.Number, j.Name, j.setting.Backend.Name, j.arm.Name, err)
			}
			return nil
		})
	}
	return cmp.Or(group.Wait(), ctx.Err())
}

func (r *runner) begin(t *task) {
	t.result = Result{
		Number: t.Number, Name: t.Name, Question: t.Question, Backend: t.setting.Backend.Name,
		Profile: r.Profile, Seed: r.Seed, Broken: r.Broken, Command: r.command(t), Run: r.plan.Began,
		Machine: r.machine, OK: true, Arms: make([]ArmResult, len(t.arms)),
	}
}

// runJob runs one arm; the last one of a task saves its result.
func (r *runner) runJob(ctx context.Context, t *task, arm Arm, at int) error {
	s, err := r.server(ctx, t.setting.Backend)
	if err != nil {
		return fmt.Errorf("start the backend: %w", err)
	}
	p := r.progress.begin(fmt.Sprintf("experiment %d on %s, %s", t.Number, t.setting.Backend.Name, arm.Name), arm.Takes)
	began := time.Now()
	a, err := r.runArm(ctx, t, arm, s, p)
	if err != nil {
		return err
	}
	verdict := "all checks passed"
	if !a.OK {
		verdict = "FAILED"
	}
	p.end(verdict)
	for _, v := range a.Verdicts {
		if !v.OK {
			p.say("%s: %s: %s", v.Kind, v.Name, v.Saw)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.result.BackendVersion = s.version
	t.result.Arms[at] = a
	t.result.OK = t.result.OK && a.OK
	t.result.TookMS += time.Since(began).Milliseconds()
	if t.result.Began.IsZero() {
		t.result.Began = began.UTC().Truncate(time.Second)
	}
	if t.left--; t.left > 0 {
		return nil
	}
	t.result.Findings = t.Findings(t.result)
	t.done = true
	return t.result.save(r.Out)
}

// server starts a backend's server when it is first needed.
func (r *runner) server(ctx context.Context, b Backend) (*server, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.servers[b.Name]; s != nil {
		return s, nil
	}
	if !b.Peers && r.Stores[b.Name] == "" {
		r.progress.note("starting the server of %s", b.Name)
	}
	dir := filepath.Join(r.scratch, b.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	s, err := b.open(ctx, starter{dir: dir, programs: r.programs, checkout: r.checkout, stores: r.Stores})
	if err == nil {
		r.servers[b.Name] = s
	}
	return s, err
}

func (r *runner) stopServers() error {
	var err error
	for _, s := range r.servers {
		err = errors.Join(err, s.stop())
	}
	return err
}

// command is what runs this experiment again.
func (r *runner) command(t *task) string {
	c := fmt.Sprintf("go run ./cmd/lab run --profile %s %s --seed %d", r.Profile.Name, choice([]string{fmt.Sprint(t.Number)}, []string{t.setting.Backend.Name}), r.Seed)
	if named, err := ProfileNamed(r.Profile.Name); err == nil && named.Work.Jobs != r.Profile.Work.Jobs {
		c += fmt.Sprintf(" --jobs %d", r.Profile.Work.Jobs)
	}
	if r.Broken != "" {
		c += " --broken " + r.Broken
	}
	return c
}

// runArm runs one arm. Its logs stay in a directory of its own.
func (r *runner) runArm(ctx context.Context, t *task, arm Arm, b *server, p *part) (a ArmResult, err error) {
	name := fmt.Sprintf("%d-%s-%s-%s", t.Number, t.Name, t.setting.Backend.Name, strings.ReplaceAll(arm.Name, " ", "-"))
	dir := filepath.Join(r.Out, "logs", name)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return a, err
	}
	if arm.Load == (Load{}) {
		arm.Load = r.Profile.Load
	}
	hash := fnv.New64a()
	_, _ = io.WriteString(hash, name) // a hash takes everything
	s := &Stage{
		arm: arm, backend: t.setting.Backend, rand: rand.New(rand.NewPCG(r.Seed, hash.Sum64())),
		dir: dir, scratch: filepath.Join(r.scratch, name), programs: r.programs, say: p.say,
	}
	// Whatever backend it is may have seen this group in a run before.
	group := fmt.Sprintf("lab-%d-%s-%d", t.Number, t.Name, time.Now().UnixNano())
	if err := openStage(ctx, s, b, group); err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.Steady(ctx); err != nil {
		return a, err
	}
	if err := arm.Script(ctx, s); err != nil {
		return a, err
	}
	record, err := s.finish(ctx)
	if err != nil {
		return a, err
	}
	return newArmResult(record, s.skew, r.Profile.Strict), nil
}
