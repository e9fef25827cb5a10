package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"baton"
)

// storesCommand measures what each store costs through baton's own interface:
//
//	go run -C bench . stores [-heavy] [-only postgres,redis]
//
// and prints the table of docs/stores.md. Stores come one after the other, each
// alone with its server, so ratios between them are less sure than those of the
// main command, whose contenders take turns.
const storesCommand = "stores"

// dose is how much of everything a store is asked for.
type dose struct {
	elections, renewals  int
	within, slice        time.Duration // bounds the two above, and is how long 16 renew
	handovers, failovers int
	renewers             int
}

var usualDose = dose{
	elections: 300, renewals: 500, within: 5 * time.Second, slice: 2 * time.Second,
	handovers: 25, failovers: 20, renewers: 16,
}

// storeRow is what came of one store.
type storeRow struct {
	name      string
	runs      string // what was measured: the server and its version
	election  []time.Duration
	renewal   []time.Duration
	perSecond float64
	handover  []time.Duration
	failover  []time.Duration
	err       error
}

func runStores(ctx context.Context, args []string) int {
	err := measureStores(ctx, args, os.Stdout)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "bench: interrupted")
		return 130
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	return 1
}

func measureStores(ctx context.Context, args []string, out io.Writer) (err error) {
	f := flag.NewFlagSet(storesCommand, flag.ContinueOnError)
	heavy := f.Bool("heavy", os.Getenv("BATON_TEST_HEAVY") == "true", "also those whose servers take minutes to build: Consul, Kubernetes")
	only := f.String("only", "", "which stores, with commas; the heavy ones among them count as asked for")
	if err := f.Parse(args); err != nil {
		return err
	}
	chosen, err := chooseStores(*only, *heavy)
	if err != nil {
		return err
	}
	stage, err := newStage(ctx, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stage.close()) }()
	machine := describeMachine(stage.dir)
	var rows []*storeRow
	for _, k := range chosen {
		row := &storeRow{name: k.name}
		rows = append(rows, row)
		if row.err = row.measure(ctx, stage, k); row.err != nil {
			progress("%s: %v", k.name, row.err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	machine.LoadAfter = loadAverage()
	return errors.Join(printStores(out, machine, rows), failures(rows))
}

func chooseStores(only string, heavy bool) (chosen []storeKind, err error) {
	if only == "" {
		return slices.DeleteFunc(slices.Clone(storeKinds), func(k storeKind) bool { return k.heavy && !heavy }), nil
	}
	for name := range strings.SplitSeq(only, ",") {
		at := slices.IndexFunc(storeKinds, func(k storeKind) bool { return k.name == name })
		if at < 0 {
			return nil, fmt.Errorf("-only %q is not known: want some of %s", name, strings.Join(storeNames(), ", "))
		}
		chosen = append(chosen, storeKinds[at])
	}
	return chosen, nil
}

func failures(rows []*storeRow) error {
	var errs []error
	for _, r := range rows {
		if r.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.name, r.err))
		}
	}
	return errors.Join(errs...)
}

// measure starts the store's server, measures and stops it.
func (r *storeRow) measure(ctx context.Context, stage *stage, k storeKind) (err error) {
	progress("%s: starting", k.name)
	backing, err := k.start(ctx, stage)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, backing.stop()) }()
	r.runs = backing.runs
	handles := &storeHandles{name: k.name, backing: backing}
	defer func() { err = errors.Join(err, handles.Close()) }()
	return r.take(ctx, handles, usualDose)
}

// take measures one thing after the other.
func (r *storeRow) take(ctx context.Context, h *storeHandles, d dose) (err error) {
	s, err := h.handle(ctx, 0)
	if err != nil {
		return err
	}
	progress("%s: elections", r.name)
	if r.election, err = elections(ctx, s, d); err != nil {
		return fmt.Errorf("elections: %w", err)
	}
	progress("%s: renewals", r.name)
	if r.renewal, err = renewals(ctx, s, d); err != nil {
		return fmt.Errorf("renewals: %w", err)
	}
	if r.perSecond, err = renewalsAtOnce(ctx, s, d); err != nil {
		return fmt.Errorf("renewals at once: %w", err)
	}
	progress("%s: handovers", r.name)
	if r.handover, err = handovers(ctx, h, "handover", d.handovers); err != nil {
		return fmt.Errorf("handovers: %w", err)
	}
	progress("%s: failovers", r.name)
	if r.failover, err = crashes(ctx, h, "failover", d.failovers); err != nil {
		return fmt.Errorf("failovers: %w", err)
	}
	for _, times := range [][]time.Duration{r.election, r.renewal, r.handover, r.failover} {
		slices.Sort(times)
	}
	return nil
}

// longTTL is one that no measurement outlasts.
func longTTL(s baton.Store) time.Duration { return min(holdTTL, s.Guarantees().MaxTTL) }

// elections times Acquire of a group that was just given up.
func elections(ctx context.Context, s baton.Store, d dose) (times []time.Duration, err error) {
	for start := time.Now(); len(times) < d.elections && time.Since(start) < d.within; {
		sent := time.Now()
		lease, err := s.Acquire(ctx, "election", newCandidate(0), longTTL(s))
		if err != nil {
			return nil, err
		}
		times = append(times, time.Since(sent))
		if err := s.Release(ctx, lease.ID()); err != nil {
			return nil, err
		}
	}
	return times[len(times)/10:], nil // the first ones warm up
}

// renewals times Renew, one after the other.
func renewals(ctx context.Context, s baton.Store, d dose) (times []time.Duration, err error) {
	lease, err := s.Acquire(ctx, "renewal", newCandidate(0), longTTL(s))
	if err != nil {
		return nil, err
	}
	for start := time.Now(); len(times) < d.renewals && time.Since(start) < d.within; {
		sent := time.Now()
		if _, err := s.Renew(ctx, lease.ID(), lease.TTL); err != nil {
			return nil, err
		}
		times = append(times, time.Since(sent))
	}
	return times[len(times)/10:], nil
}

// renewalsAtOnce counts what several leaders of one process renew in a second,
// each as fast as it is answered.
func renewalsAtOnce(ctx context.Context, s baton.Store, d dose) (perSecond float64, err error) {
	leases := make([]baton.Lease, d.renewers)
	for i := range leases {
		if leases[i], err = s.Acquire(ctx, fmt.Sprintf("renewals-%d", i), newCandidate(i), longTTL(s)); err != nil {
			return 0, err
		}
	}
	counts, errs := make([]int, len(leases)), make([]error, len(leases))
	start := time.Now()
	var renewing sync.WaitGroup
	for i, lease := range leases {
		renewing.Go(func() {
			for errs[i] == nil && time.Since(start) < d.slice {
				_, errs[i] = s.Renew(ctx, lease.ID(), lease.TTL)
				counts[i]++
			}
		})
	}
	renewing.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return float64(total) / time.Since(start).Seconds(), errors.Join(errs...)
}

// storeHandles is a store as a contender in takeovers: each candidate is an
// elector on a handle of its own, as in a process of its own.
type storeHandles struct {
	contender
	name    string
	backing *storeBacking

	mu   sync.Mutex
	open []baton.Store
}

func (h *storeHandles) Name() string { return h.name }

func (h *storeHandles) Close() error {
	var errs []error
	for _, s := range h.open {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// handle is the one of this number, of as many as there are candidates in a handover.
func (h *storeHandles) handle(ctx context.Context, number int) (baton.Store, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	number %= waiting + 1
	for len(h.open) <= number {
		s, err := h.backing.open(ctx)
		if err != nil {
			return nil, err
		}
		h.open = append(h.open, s)
	}
	return h.open[number], nil
}

func (h *storeHandles) Candidate(ctx context.Context, group string, client int) (candidate, error) {
	s, err := h.handle(ctx, client)
	if err != nil {
		return nil, err
	}
	elector, err := baton.NewElector(s, baton.Config{
		Group: group, NodeID: fmt.Sprintf("node-%d", client), TTL: max(10*time.Second, s.Guarantees().MinTTL),
		Logger: slog.New(slog.DiscardHandler),
	})
	return &electing{elector: elector}, err
}

type electing struct {
	elector *baton.LeaseElector
	leads   *baton.Leadership
}

func (e *electing) Campaign(ctx context.Context) (err error) {
	e.leads, err = e.elector.Campaign(ctx)
	return err
}

func (e *electing) Resign(ctx context.Context) error { return e.leads.Resign(ctx) }
func (e *electing) Close() error                     { return e.elector.Close() }

// Hold takes a lease that nobody renews, of the shortest TTL that the store has if that is longer.
func (h *storeHandles) Hold(ctx context.Context, group string, client int, ttl time.Duration) (holder, error) {
	s, err := h.handle(ctx, client+1) // another process than the one that waits
	if err != nil {
		return nil, err
	}
	c := baton.Candidate{NodeID: "holder", InstanceID: baton.NewInstanceID()}
	lease, err := s.Acquire(ctx, group, c, max(ttl, s.Guarantees().MinTTL))
	return &held{store: s, lease: lease}, err
}

type held struct {
	store baton.Store
	lease baton.Lease
}

// Renew returns when a holder that trusts the store would stop, but for its margin.
func (h *held) Renew(ctx context.Context) (time.Time, error) {
	sent := time.Now()
	lease, err := h.store.Renew(ctx, h.lease.ID(), h.lease.TTL)
	return sent.Add(lease.Remaining), err
}
