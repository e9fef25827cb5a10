package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"baton"
)

// fake is a contender in memory: whoever waits longest is next, after delay.
// Leases end where they should, and are found to have ended lag later.
type fake struct {
	contender
	name, rival string
	delay, lag  time.Duration

	mu     sync.Mutex
	groups map[string]*fakeGroup
	wins   []int
	over   int // leases that are over before they are renewed
}

type fakeGroup struct {
	held bool
	line []chan struct{}
}

func (f *fake) Name() string  { return f.name }
func (f *fake) Rival() string { return f.rival }
func (f *fake) PIDs() []int   { return nil }

func (f *fake) group(name string) *fakeGroup {
	if f.groups == nil {
		f.groups = map[string]*fakeGroup{}
	}
	if f.groups[name] == nil {
		f.groups[name] = &fakeGroup{}
	}
	return f.groups[name]
}

func (f *fake) open(group string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.group(group)
	if g.held = len(g.line) > 0; g.held {
		close(g.line[0])
		g.line = g.line[1:]
	}
}

type fakeCandidate struct {
	f     *fake
	group string
	who   int
}

func (f *fake) Candidate(_ context.Context, group string, client int) (candidate, error) {
	return &fakeCandidate{f, group, client}, nil
}

func (c *fakeCandidate) Campaign(ctx context.Context) error {
	c.f.mu.Lock()
	g := c.f.group(c.group)
	turn := make(chan struct{})
	if g.held {
		g.line = append(g.line, turn)
	} else {
		g.held = true
		close(turn)
	}
	c.f.mu.Unlock()
	select {
	case <-turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.wins = append(c.f.wins, c.who)
	return nil
}

func (c *fakeCandidate) Resign(context.Context) error {
	time.Sleep(c.f.delay)
	c.f.open(c.group)
	return nil
}

func (c *fakeCandidate) Close() error { return nil }

type fakeHolder struct {
	f     *fake
	group string
	ttl   time.Duration
}

func (f *fake) Hold(_ context.Context, group string, _ int, ttl time.Duration) (holder, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.group(group).held = true
	return &fakeHolder{f, group, ttl}, nil
}

func (h *fakeHolder) Renew(context.Context) (time.Time, error) {
	h.f.mu.Lock()
	over := h.f.over > 0
	h.f.over--
	h.f.mu.Unlock()
	if over {
		h.f.open(h.group)
		return time.Time{}, baton.ErrNotLeader
	}
	time.AfterFunc(h.ttl+h.f.lag, func() { h.f.open(h.group) })
	return time.Now().Add(h.ttl), nil
}

func TestHandoversAreTimedFromTheResignationAndNeverToOneself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{name: "fake", delay: 3 * time.Millisecond}
		gaps, err := handovers(t.Context(), f, "g", 30)
		if err != nil {
			t.Fatal(err)
		}
		if len(gaps) != 30 || slices.Min(gaps) != f.delay || slices.Max(gaps) != f.delay {
			t.Errorf("got %v, want 30 times %v", gaps, f.delay)
		}
		for i := 1; i < len(f.wins); i++ {
			if f.wins[i] == f.wins[i-1] {
				t.Errorf("candidate %d won its own resignation: %v", f.wins[i], f.wins)
			}
		}
	})
}

func TestCrashesAreTimedFromTheLeasesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{name: "fake", lag: 7 * time.Millisecond, over: 3}
		late, err := crashes(t.Context(), f, "g", 20)
		if err != nil {
			t.Fatal(err)
		}
		if len(late) != 20 || slices.Min(late) != f.lag || slices.Max(late) != f.lag {
			t.Errorf("got %v, want 20 times %v", late, f.lag)
		}
	})
}

func TestTurnsBeginWithAnotherInEveryRound(t *testing.T) {
	var order []string
	err := inTurns(t.Context(), "test", 3, []string{"a", "b", "c"}, func(round int, one string) error {
		order = append(order, fmt.Sprint(round, one))
		return nil
	})
	if want := "0a 0b 0c 1b 1c 1a 2c 2a 2b"; err != nil || strings.Join(order, " ") != want {
		t.Errorf("got %v, %v, want %s", order, err, want)
	}
}

func TestSliceCountsWhatSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		n := 0
		op := func(context.Context) error {
			time.Sleep(10 * time.Millisecond)
			if n++; n%2 == 0 {
				return broken
			}
			return nil
		}
		e := &entrant{contender: &fake{name: "fake"}, clients: []operation{op}}
		got, err := e.slice(t.Context(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.latencies) != 50 || got.failures != 50 || !errors.Is(got.failure, broken) || got.rate() != 50 {
			t.Errorf("got %d, %d failures (%v), %.1f per second", len(got.latencies), got.failures, got.failure, got.rate())
		}
		e.clients = []operation{func(context.Context) error { time.Sleep(time.Millisecond); return broken }}
		if _, err := e.slice(t.Context(), time.Second); !errors.Is(err, broken) {
			t.Errorf("a contender that does nothing: %v", err)
		}
	})
}

// turnsOf makes turns of a second with so many operations of a millisecond.
func turnsOf(counts ...int) (turns []turn) {
	for _, n := range counts {
		turns = append(turns, turn{took: time.Second, latencies: slices.Repeat([]time.Duration{time.Millisecond}, n)})
	}
	return turns
}

func TestRatiosAreMediansOfTheRounds(t *testing.T) {
	var r report
	r.addRates("renewals", []*entrant{
		{contender: &fake{name: "baton", rival: "etcd"}, load: load{counted: "a"}, turns: turnsOf(100, 300, 400)},
		{contender: &fake{name: "etcd"}, load: load{way: "once", counted: "b"}, turns: turnsOf(100, 100, 200)},
		{contender: &fake{name: "etcd"}, load: load{way: "stream", counted: "c"}, turns: turnsOf(900, 900, 900)},
	}, aim{Ratio: 1.5})
	r.addTimes("handover", "d", []*timed{
		{contender: &fake{name: "baton", rival: "etcd"}, rounds: [][]time.Duration{{time.Millisecond}, {3 * time.Millisecond}}},
		{contender: &fake{name: "etcd"}, rounds: [][]time.Duration{{2 * time.Millisecond}, {2 * time.Millisecond}}},
	}, aim{Ratio: 0.6})
	ours := r.Rows[0]
	if *ours.Ratio != (spread{Median: 2, Least: 1, Most: 3}) || ours.Against != "etcd, once" || !*ours.Met {
		t.Errorf("rates: %+v, ratio %+v", ours, ours.Ratio)
	}
	times := r.Rows[3]
	if *times.Ratio != (spread{Median: 1, Least: 0.5, Most: 1.5}) || *times.Met {
		t.Errorf("times: %+v, ratio %+v", times, times.Ratio)
	}
	var out bytes.Buffer
	if err := r.print(&out, "text"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2.00x", "1.00-3.00", ">= 1.5x met", "p50 <= 0.6x MISSED", "renewals, etcd, stream: c"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the text lacks %q:\n%s", want, out.String())
		}
	}
}

func TestFlagsThatMakeNoSense(t *testing.T) {
	for _, args := range []string{"-only speed", "-contenders zookeeper", "-o yaml", "-scale 0", "-scale 10,x", "-rounds -1", "-clients 0", "more"} {
		if _, err := parse(strings.Fields(args)); err == nil {
			t.Errorf("%s: accepted", args)
		}
	}
	s, err := parse([]string{"-full", "-rounds", "2"})
	if err != nil || s.rounds != 2 || s.slice != 2*time.Second || s.scale != "100000,1000000" {
		t.Errorf("got %+v, %v", s, err)
	}
}
