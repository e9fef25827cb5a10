package lab

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Options are what to run and how.
type Options struct {
	Profile     Profile
	Experiments []Experiment
	Backends    []string
	Seed        uint64
	// Out is the directory for results and logs.
	Out string
	// Etcd is the URL of an etcd that runs; one is started if it is empty.
	Etcd string
	// Broken is Setting.Broken.
	Broken string
	// Programs is where the fleet's programs are; they are built if it is empty.
	Programs string
	// Progress is where to show how far it is.
	Progress io.Writer

	checkout string
}

// Run runs the experiments, saves each result as soon as it is there, and
// returns all. Whatever it started has ended when it returns. An error means
// that an experiment could not be run; checks that failed are in the results.
func Run(ctx context.Context, o Options) (results []Result, err error) {
	if o.checkout, err = findCheckout(); err != nil {
		return nil, err
	}
	if o.Out, err = filepath.Abs(o.Out); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp("", "baton-lab-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()

	p := newProgress(o.Progress, o.planned())
	if o.Programs == "" {
		p.begin("programs")
		o.Programs = filepath.Join(scratch, "bin")
		if err := Build(ctx, o.Programs); err != nil {
			return nil, err
		}
	}
	if o.Programs, err = filepath.Abs(o.Programs); err != nil {
		return nil, err
	}
	built := programs{o.Programs}
	machine := thisMachine(o.checkout)
	for _, name := range o.Backends {
		more, err := o.runBackend(ctx, name, scratch, built, machine, p)
		results = append(results, more...)
		if err != nil {
			return results, err
		}
	}
	return results, nil
}

// planned is about how long all of it takes.
func (o *Options) planned() time.Duration {
	var sum time.Duration
	for _, name := range o.Backends {
		for _, e := range o.Experiments {
			for _, a := range e.Arms(o.setting(name)) {
				sum += a.Takes
			}
		}
	}
	return sum
}

func (o *Options) setting(backend string) Setting {
	return Setting{Profile: o.Profile, Backend: backend, Broken: o.Broken}
}

func (o *Options) runBackend(ctx context.Context, name, scratch string, built programs, m Machine, p *progress) (results []Result, err error) {
	p.begin(name)
	dir := filepath.Join(scratch, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	b, err := o.startBackend(ctx, name, dir, built)
	if err != nil {
		return nil, fmt.Errorf("start the backend: %w", err)
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	for _, e := range o.Experiments {
		r, err := o.runExperiment(ctx, e, b, built, m, p)
		if err != nil {
			return results, fmt.Errorf("experiment %d (%s) on %s: %w", e.Number, e.Name, name, err)
		}
		results = append(results, r)
	}
	return results, nil
}

func (o *Options) runExperiment(ctx context.Context, e Experiment, b *backend, built programs, m Machine, p *progress) (Result, error) {
	r := Result{
		Number: e.Number, Name: e.Name, Question: e.Question, Backend: b.name, BackendVersion: b.version,
		Profile: o.Profile, Seed: o.Seed, Broken: o.Broken, Command: o.command(e, b.name),
		Machine: m, Began: time.Now().UTC().Truncate(time.Second), OK: true,
	}
	began := time.Now()
	for _, arm := range e.Arms(o.setting(b.name)) {
		p.begin(fmt.Sprintf("experiment %d on %s, %s", e.Number, b.name, arm.Name))
		a, err := o.runArm(ctx, e, arm, b, built, p)
		if err != nil {
			return r, fmt.Errorf("%s: %w", arm.Name, err)
		}
		verdict := "all checks passed"
		if !a.OK {
			verdict = "FAILED"
		}
		p.end(arm.Takes, verdict)
		for _, v := range a.Verdicts {
			if !v.OK {
				p.say("%s: %s: %s", v.Kind, v.Name, v.Saw)
			}
		}
		r.Arms = append(r.Arms, a)
		r.OK = r.OK && a.OK
	}
	r.TookMS = time.Since(began).Milliseconds()
	r.Findings = e.Findings(r)
	return r, r.save(o.Out)
}

// command is what runs this experiment again.
func (o *Options) command(e Experiment, backend string) string {
	c := fmt.Sprintf("go run ./cmd/lab run --profile %s --only %d --backend %s --seed %d", o.Profile.Name, e.Number, backend, o.Seed)
	if o.Broken != "" {
		c += " --broken " + o.Broken
	}
	return c
}

// runArm runs one arm. Its logs stay in a directory of its own.
func (o *Options) runArm(ctx context.Context, e Experiment, arm Arm, b *backend, built programs, p *progress) (a ArmResult, err error) {
	name := fmt.Sprintf("%d-%s-%s-%s", e.Number, e.Name, b.name, strings.ReplaceAll(arm.Name, " ", "-"))
	dir := filepath.Join(o.Out, "logs", name)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return a, err
	}
	hash := fnv.New64a()
	_, _ = io.WriteString(hash, name) // a hash takes everything
	s := &Stage{arm: arm, rand: rand.New(rand.NewPCG(o.Seed, hash.Sum64())), dir: dir, programs: built, say: p.say}
	// Whatever backend it is may have seen this group in a run before.
	group := fmt.Sprintf("lab-%d-%s-%d", e.Number, e.Name, time.Now().UnixNano())
	if err := openStage(ctx, s, b, group, o.Profile); err != nil {
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
	return newArmResult(record, s.skew, o.Profile.Strict), nil
}
