package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// entrant is one load of one contender, with its clients ready.
type entrant struct {
	contender contender
	load      load
	clients   []operation
	turns     []turn
}

// turn is what one slice of time brought.
type turn struct {
	took      time.Duration
	latencies []time.Duration
	failures  int
	failure   error // the first
	servers   time.Duration
	client    time.Duration
}

func (t turn) rate() float64 { return float64(len(t.latencies)) / t.took.Seconds() }

func (b *bench) renewals(ctx context.Context, contenders []contender) error {
	return b.loads(ctx, contenders, "renewals", b.clients, contender.Renewals, aim{Ratio: 1.3})
}

func (b *bench) cycles(ctx context.Context, contenders []contender) error {
	if err := b.loads(ctx, contenders, "acquire and release", 1, contender.Cycles, aim{}); err != nil {
		return err
	}
	return b.loads(ctx, contenders, "acquire and release", b.clients, contender.Cycles, aim{Ratio: 3.5})
}

func (b *bench) reads(ctx context.Context, contenders []contender) error {
	return b.loads(ctx, contenders, "linearizable reads", b.clients, contender.Reads, aim{Ratio: 2})
}

// loads measures one kind of load on all contenders, turn by turn.
func (b *bench) loads(ctx context.Context, contenders []contender, what string, clients int, of func(contender) []load, goal aim) error {
	what = fmt.Sprintf("%s, %d at once", what, clients)
	var entrants []*entrant
	for _, c := range contenders {
		for _, l := range of(c) {
			e := &entrant{contender: c, load: l}
			for i := range clients {
				op, err := l.open(ctx, i)
				if err != nil {
					return fmt.Errorf("%s: client %d: %w", c.Name(), i, err)
				}
				e.clients = append(e.clients, op)
			}
			entrants = append(entrants, e)
		}
	}
	warmUp := min(b.slice/2, 500*time.Millisecond)
	err := inTurns(ctx, what, b.rounds, entrants, func(round int, e *entrant) error {
		if round == 0 {
			if _, err := e.slice(ctx, warmUp); err != nil {
				return err
			}
		}
		t, err := e.slice(ctx, b.slice)
		e.turns = append(e.turns, t)
		return err
	})
	if err != nil {
		return err
	}
	b.report.addRates(what, entrants, goal)
	return nil
}

// inTurns gives each its turn in every round. Each round begins with
// another one, so that nobody always follows the same.
func inTurns[T any](ctx context.Context, what string, rounds int, all []T, do func(round int, one T) error) error {
	for round := range rounds {
		progress("%s: round %d of %d", what, round+1, rounds)
		for i := range all {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := do(round, all[(i+round)%len(all)]); err != nil {
				return err
			}
		}
	}
	return nil
}

// slice lets all clients work for d, each as fast as it is answered.
func (e *entrant) slice(ctx context.Context, d time.Duration) (turn, error) {
	perClient := make([]turn, len(e.clients))
	servers, client := cpuOf(e.contender.PIDs()), cpuOfSelf()
	start := time.Now()
	var working sync.WaitGroup
	for i, op := range e.clients {
		working.Go(func() {
			t := &perClient[i]
			for now := time.Now(); now.Sub(start) < d && ctx.Err() == nil; {
				err := op(ctx)
				done := time.Now()
				if err == nil {
					t.latencies = append(t.latencies, done.Sub(now))
				} else if t.failures++; t.failure == nil {
					t.failure = err
				}
				now = done
			}
		})
	}
	working.Wait()
	t := turn{took: time.Since(start), servers: cpuOf(e.contender.PIDs()) - servers, client: cpuOfSelf() - client}
	for _, one := range perClient {
		t.latencies = append(t.latencies, one.latencies...)
		t.failures += one.failures
		if t.failure == nil {
			t.failure = one.failure
		}
	}
	slices.Sort(t.latencies)
	if err := ctx.Err(); err != nil {
		return t, err
	}
	if len(t.latencies) == 0 {
		return t, fmt.Errorf("%s: nothing succeeded in %v: %w", e.contender.Name(), t.took, t.failure)
	}
	return t, nil
}
