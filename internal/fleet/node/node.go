// Package node is the inside of baton/cmd/node: a process that takes part in
// elections and, while it leads, does the singleton work of a fleet.
//
// It serves
//
//	GET  /status   who it is, its role, its fencing token: fleet.Status
//	POST /next     a number that no other request gets: fleet.Number, or fleet.Refusal
//	POST /resign   gives up the leadership: fleet.Resignation; {}, or fleet.Refusal
//	GET  /metrics  for Prometheus, leaders_acting among them
package node

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"baton"
	"baton/fenced/fencedclient"
	"baton/internal/fleet"
)

// addressKey is the key of a candidate's metadata under which it says where it
// serves HTTP, so that followers can name their leader's address.
const addressKey = "http"

// Node is one node of a fleet.
type Node struct {
	opt      options
	address  string       // where it serves
	bare     *slog.Logger // for whoever says by itself which node it is
	log      *slog.Logger
	clock    baton.Clock
	events   *fleet.EventLog
	metrics  *metrics
	resource *fencedclient.Client
	sent     sent                // to the resource
	exit     func(baton.Overrun) // ends the process

	mu     sync.Mutex
	led    *baton.Leadership // the current one, or the last
	acting *sequencer        // while the work goes on
	known  fleet.Leader      // as the elector was told; zero for nobody
	served nextTally
}

func (n *Node) status() fleet.Status {
	n.mu.Lock()
	led, acting, known := n.led, n.acting != nil, n.known
	n.mu.Unlock()
	s := fleet.Status{
		NodeID: n.opt.nodeID, Group: n.opt.group, Backend: n.opt.backend, PID: os.Getpid(),
		Acting: acting, WallMS: n.wall().UnixMilli(),
		WritesAccepted: n.metrics.accepted.Load(), WritesRefused: n.metrics.refused.Load(),
	}
	switch {
	case led != nil && led.Valid():
		s.Role, s.FenceToken, s.LeaseTTLRemainingMS = fleet.RoleLeader, led.Term(), led.Remaining().Milliseconds()
		s.Leader = &fleet.Leader{NodeID: n.opt.nodeID, Address: n.address, Term: led.Term()}
	case known.NodeID != "" && known.NodeID != n.opt.nodeID:
		s.Role, s.Leader = fleet.RoleFollower, &known
	default:
		s.Role = fleet.RoleCandidate
	}
	return s
}

// wall is the node's wall clock, which is off by its skew.
func (n *Node) wall() time.Time { return time.Now().Add(n.opt.skew) }

// participate joins the fleet and takes part in its elections until ctx ends.
func (n *Node) participate(ctx context.Context) (err error) {
	elector, store, err := n.join(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	watching, stop := context.WithCancel(ctx)
	var observer sync.WaitGroup
	observer.Go(func() { n.observe(watching, elector) })
	defer func() {
		stop()
		observer.Wait()
		err = errors.Join(err, elector.Close())
	}()
	return baton.Run(ctx, candidacy{elector, n}, n.lead)
}

// join opens the backend, and waits for one that is not there yet.
func (n *Node) join(ctx context.Context) (baton.Elector, io.Closer, error) {
	open, err := findBackend(n.opt.backend)
	if err != nil {
		return nil, nil, err
	}
	pause := 50 * time.Millisecond
	for {
		elector, store, err := open(ctx, n)
		switch {
		case err == nil:
			return elector, store, nil
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case !errors.Is(err, baton.ErrUnavailable):
			return nil, nil, &usageError{err}
		}
		n.log.Warn("the backend does not answer; asking again", "backend", n.opt.backend, "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Second)
	}
}

// observe keeps up with who leads.
func (n *Node) observe(ctx context.Context, e baton.Elector) {
	for event, err := range e.Observe(ctx) {
		if err != nil {
			if ctx.Err() == nil {
				n.log.Error("cannot observe who leads", "err", err)
			}
			return
		}
		var known fleet.Leader
		switch event.Type {
		case baton.LeaderChanged:
			known = fleet.Leader{NodeID: event.NodeID, Address: event.Metadata[addressKey], Term: event.Term}
		case baton.LeaderUnknown:
			continue // the last leader may still lead
		}
		n.mu.Lock()
		n.known = known
		n.mu.Unlock()
	}
}

// candidacy is an elector whose wins and losses the node takes note of.
type candidacy struct {
	baton.Elector
	node *Node
}

func (c candidacy) Campaign(ctx context.Context) (*baton.Leadership, error) {
	began := time.Now()
	l, err := c.Elector.Campaign(ctx)
	if err == nil {
		c.node.elected(l, time.Since(began))
	}
	return l, err
}

func (n *Node) elected(l *baton.Leadership, after time.Duration) {
	n.mu.Lock()
	n.led = l
	n.mu.Unlock()
	n.metrics.campaign.Observe(after.Seconds())
	n.metrics.transitions.WithLabelValues(string(fleet.RoleLeader)).Inc()
	n.events.Log(n.about(l, fleet.Event{Type: fleet.Elected, Nanos: int64(after)}))
	context.AfterFunc(l.Context(), func() {
		n.metrics.transitions.WithLabelValues(string(fleet.RoleFollower)).Inc()
		n.events.Log(n.about(l, fleet.Event{Type: fleet.Lost, Cause: l.Cause().Error()}))
	})
}

// about names the leadership that an event is of.
func (n *Node) about(l *baton.Leadership, e fleet.Event) fleet.Event {
	e.Term, e.Instance = l.Term(), l.Token().InstanceID
	return e
}

// moments is what work that has been told to stop is given on a busy machine, however short its lease was.
const moments = 2 * time.Second

// overran is told that the work goes on although its lease is over. A process
// that was frozen finds itself so when it wakes, and stops within moments; one
// whose work is stuck does not, and is ended.
func (n *Node) overran(o baton.Overrun) {
	at := fleet.Now() // o.By is until now
	n.metrics.overruns.Inc()
	n.log.Error("the work has not stopped although its lease can no longer be trusted", "term", o.Token.Term, "late", o.By, "cause", o.Cause)
	n.events.Log(fleet.Event{At: at, Type: fleet.Overrun, Term: o.Token.Term, Instance: o.Token.InstanceID, Nanos: int64(o.By), Cause: o.Cause.Error()})
	if n.opt.unsafeLinger > 0 {
		return // it was asked to
	}
	time.AfterFunc(max(n.opt.stopGrace(), moments), func() {
		n.mu.Lock()
		stuck := n.acting != nil && n.led.Token() == o.Token
		n.mu.Unlock()
		if stuck {
			n.exit(o)
		}
	})
}
