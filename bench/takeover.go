package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"baton"
)

const (
	waiting = 9
	// hold is how long each leads: long enough for whoever resigned to be back in line.
	hold = 20 * time.Millisecond
	// crashTTL is the shortest that etcd grants with its default settings.
	crashTTL = 2 * time.Second
	// patience is far beyond any takeover that was seen.
	patience = 30 * time.Second
)

// timed is a contender whose takeovers are timed.
type timed struct {
	contender contender
	rounds    [][]time.Duration
}

func timeds(contenders []contender) []*timed {
	var list []*timed
	for _, c := range contenders {
		list = append(list, &timed{contender: c})
	}
	return list
}

// handover times how long a group has no leader when its leader resigns and
// nine others wait: from before the release is sent until the next one has its grant.
func (b *bench) handover(ctx context.Context, contenders []contender) error {
	what := fmt.Sprintf("handover, %d waiting", waiting)
	all := timeds(contenders)
	err := inTurns(ctx, what, b.rounds, all, func(round int, t *timed) error {
		gaps, err := handovers(ctx, t.contender, fmt.Sprintf("handover-%d", round), b.handovers)
		t.rounds = append(t.rounds, gaps)
		return err
	})
	if err != nil {
		return err
	}
	b.report.addTimes(what, "from before the resignation is sent until the next one's campaign has returned", all, aim{Ratio: 0.6})
	return nil
}

func handovers(ctx context.Context, c contender, group string, n int) (gaps []time.Duration, err error) {
	type win struct {
		who candidate
		at  time.Time
		err error
	}
	bounded, cancel := context.WithTimeout(ctx, patience+time.Duration(n)*(hold+time.Second))
	wins := make(chan win)
	var all []candidate
	var campaigning sync.WaitGroup
	defer func() {
		cancel()
		campaigning.Wait()
		for _, one := range all {
			err = errors.Join(err, one.Close())
		}
	}()
	campaign := func(who candidate) {
		err := who.Campaign(bounded)
		select {
		case wins <- win{who, time.Now(), err}:
		case <-bounded.Done():
		}
	}
	next := func() (win, error) {
		select {
		case w := <-wins:
			return w, w.err
		case <-bounded.Done():
			return win{}, fmt.Errorf("nobody won: %w", bounded.Err())
		}
	}
	for i := range waiting + 1 {
		one, err := c.Candidate(bounded, group, i)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name(), err)
		}
		all = append(all, one)
		campaigning.Go(func() { campaign(one) })
	}
	leader, err := next()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name(), err)
	}
	if err := pause(bounded, 10*hold); err != nil { // for all to be in line
		return nil, err
	}
	for range n {
		if err := pause(bounded, hold); err != nil {
			return nil, err
		}
		sent := time.Now()
		if err := leader.who.Resign(bounded); err != nil {
			return nil, fmt.Errorf("%s: resign: %w", c.Name(), err)
		}
		won, err := next()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name(), err)
		}
		gaps = append(gaps, won.at.Sub(sent))
		// Only now: one that is quick could win its own resignation.
		resigned := leader.who
		campaigning.Go(func() { campaign(resigned) })
		leader = won
	}
	return gaps, leader.who.Resign(bounded)
}

// crash times how long beyond its lease's own end a leader that fell silent
// keeps the group from the one who waits.
func (b *bench) crash(ctx context.Context, contenders []contender) error {
	what := "crash failover, beyond the lease's end"
	rounds := max(2, b.rounds/3)
	all := timeds(contenders)
	err := inTurns(ctx, what, rounds, all, func(round int, t *timed) error {
		late, err := crashes(ctx, t.contender, fmt.Sprintf("crash-%d", round), b.crashes)
		t.rounds = append(t.rounds, late)
		return err
	})
	if err != nil {
		return err
	}
	b.report.addTimes(what, fmt.Sprintf("from the last renewal's sending plus the lease's %v until the one who waits has its grant", crashTTL),
		all, aim{P99: 100 * time.Millisecond})
	return nil
}

// crashes has n leaders fall silent, spread over a second: a store that looks
// at its leases every now and then is met at all of its moments.
func crashes(ctx context.Context, c contender, group string, n int) ([]time.Duration, error) {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	late, errs := make([]time.Duration, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { late[i], errs[i] = crashOne(bounded, c, fmt.Sprintf("%s-%d", group, i), i) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name(), err)
	}
	return late, nil
}

// crashOne takes another group when the lease was over before its last renewal, as on a machine that stood still meanwhile.
func crashOne(ctx context.Context, c contender, group string, client int) (late time.Duration, err error) {
	late, err = crashIn(ctx, c, group, client)
	for try := 2; try <= 5 && errors.Is(err, baton.ErrNotLeader); try++ {
		late, err = crashIn(ctx, c, fmt.Sprintf("%s-try-%d", group, try), client)
	}
	return late, err
}

func crashIn(ctx context.Context, c contender, group string, client int) (late time.Duration, err error) {
	h, err := c.Hold(ctx, group, client, crashTTL)
	if err != nil {
		return 0, fmt.Errorf("hold %s: %w", group, err)
	}
	next, err := c.Candidate(ctx, group, client)
	if err != nil {
		return 0, fmt.Errorf("join %s: %w", group, err)
	}
	defer func() { err = errors.Join(err, next.Close()) }()
	var won time.Time
	campaign := make(chan error, 1)
	go func() {
		err := next.Campaign(ctx)
		won = time.Now()
		campaign <- err
	}()
	// Its last renewal, then silence.
	paused := pause(ctx, 200*time.Millisecond+rand.N(time.Second))
	ends, renewed := h.Renew(ctx)
	if err := errors.Join(paused, renewed, <-campaign); err != nil {
		return 0, fmt.Errorf("take %s over: %w", group, err)
	}
	return won.Sub(ends), next.Resign(ctx)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
