package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"time"

	"baton/internal/fleet"
	"baton/internal/fleet/proxy"
)

// errUnsettled: the fleet has not come to rest in the time given.
var errUnsettled = errors.New("the fleet has not settled in time")

// action is something that is done to a leader.
type action struct {
	name string
	// begin does it and returns what undoes it, nil if nothing does. Undoing must
	// work after the context has ended.
	begin func(ctx context.Context, t target) (undo func() error, err error)
	// lasts is when it is undone.
	lasts time.Duration
	// says is what it does, for people.
	says string
}

// target is the leader and all that is needed to harm it.
type target struct {
	fleet  *fleet.File
	http   *http.Client
	node   fleet.Node
	status fleet.Status
}

func killLeader() action {
	return action{name: "kill-leader", says: "kill -9", begin: func(_ context.Context, t target) (func() error, error) {
		p, err := findProcess(t.fleet, t.node, t.status)
		if err != nil {
			return nil, err
		}
		return nil, p.signal(syscall.SIGKILL)
	}}
}

// stopLeader asks the process to end, as a deployment does.
func stopLeader() action {
	return action{name: "stop-leader", says: "asked to end", begin: func(_ context.Context, t target) (func() error, error) {
		p, err := findProcess(t.fleet, t.node, t.status)
		if err != nil {
			return nil, err
		}
		return nil, p.signal(syscall.SIGTERM)
	}}
}

// resignTimeout is how long a node may take to stop its work and give its lease back.
const resignTimeout = 10 * time.Second

// resignLeader asks the leader to hand over and goes on as a follower.
func resignLeader(to string) action {
	says := "asked to hand over"
	if to != "" {
		says += " to " + to
	}
	return action{name: "resign-leader", says: says, begin: func(ctx context.Context, t target) (func() error, error) {
		ctx, cancel := context.WithTimeout(ctx, resignTimeout)
		defer cancel()
		err := fleet.Resign(ctx, t.http, t.node.HTTP, to)
		var refusal *fleet.Refusal
		if errors.As(err, &refusal) && refusal.Code != fleet.CodeConflict {
			err = fmt.Errorf("%w: %s answers %w", errUndone, t.node.ID, err)
		}
		return nil, err
	}}
}

// pauseLeader stops the whole process, as a long collection of garbage or a
// migrated virtual machine would.
func pauseLeader(d time.Duration) action {
	return action{name: "gc-pause-leader", says: fmt.Sprintf("stopped for %v", d), lasts: d, begin: func(_ context.Context, t target) (func() error, error) {
		p, err := findProcess(t.fleet, t.node, t.status)
		if err != nil {
			return nil, err
		}
		return func() error { return p.signal(syscall.SIGCONT) }, p.signal(syscall.SIGSTOP)
	}}
}

// outlive is how long the proxy keeps a fault for whose end nobody asks.
const outlive = 2 * time.Second

// faultLeader disturbs what the leader and the backend say to each other.
func faultLeader(name, says string, f proxy.Fault, d time.Duration) action {
	f.ForMS = (d + outlive).Milliseconds()
	return action{name: name, says: says, lasts: d, begin: func(ctx context.Context, t target) (func() error, error) {
		if t.fleet.Proxy == "" || len(t.node.Via) == 0 {
			return nil, fmt.Errorf("nothing stands between node %s and its backend: the fleet file needs proxy and via", t.node.ID)
		}
		c := &proxy.Client{Address: t.fleet.Proxy, HTTP: t.http}
		return func() error { return c.Heal(context.Background(), t.node.ID) }, c.Set(ctx, t.node.ID, f)
	}}
}

// perform does it to the leader and watches what comes of it, for at most wait
// after it was undone. However it ends, it is undone.
func perform(ctx context.Context, f *fleet.File, a action, wait time.Duration, tell io.Writer) (Report, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: 2}
	defer transport.CloseIdleConnections()
	hc := &http.Client{Transport: transport}
	node, claims, err := findLeader(ctx, f, hc)
	if err != nil {
		return Report{Action: a.name}, err
	}
	o := &observer{Report: Report{Action: a.name, Target: claim(claims[0]), AlsoClaimed: []Leader{}}, tell: tell, refused: claims[0].WritesRefused}
	for _, s := range claims[1:] {
		o.AlsoClaimed = append(o.AlsoClaimed, claim(s))
		o.say("%s says that it leads, too, with the lower token %d", s.NodeID, s.FenceToken)
	}
	o.began, o.BeganAtNS = time.Now(), fleet.Now()
	undo, err := a.begin(ctx, target{fleet: f, http: hc, node: node, status: claims[0]})
	if errors.Is(err, errUndone) {
		return Report{Action: a.name}, err
	}
	if err != nil {
		if undo != nil {
			err = errors.Join(err, undo()) // it may have been done all the same
		}
		return o.Report, err
	}
	o.DoneAtNS = fleet.Now()
	o.say("%8.0f ms  %s (process %d), which led with token %d: %s", 0.0, node.ID, o.Target.PID, o.Target.FenceToken, a.says)
	err = o.observe(ctx, f, hc, a.lasts, undo, wait)
	return o.Report, err
}

// observe watches until the fault is to be undone, undoes it, and watches until
// the fleet has settled.
func (o *observer) observe(ctx context.Context, f *fleet.File, hc *http.Client, lasts time.Duration, undo func() error, wait time.Duration) error {
	watching, stop := context.WithCancel(context.Background())
	looks := watch(watching, f, hc)
	defer func() {
		stop()
		for range looks { // until all watchers are gone
		}
	}()
	if undo != nil {
		o.until(ctx, looks, time.After(lasts), func() bool { return false })
		err := undo()
		healed := o.after(time.Now())
		o.HealedAfterMS, o.healed = &healed, true
		if err != nil {
			return fmt.Errorf("undo %s: %w", o.Action, err)
		}
		o.say("%8.0f ms  %s goes on undisturbed", healed, o.Target.NodeID)
	}
	o.until(ctx, looks, time.After(wait), o.settled)
	switch {
	case ctx.Err() != nil:
		o.Interrupted = true
		return context.Cause(ctx)
	case !o.settled():
		return fmt.Errorf("%w: waited %v", errUnsettled, wait)
	}
	return nil
}

func (o *observer) until(ctx context.Context, looks <-chan look, end <-chan time.Time, done func() bool) {
	for !done() {
		select {
		case l := <-looks:
			o.take(l)
		case <-end:
			return
		case <-ctx.Done():
			return
		}
	}
}
