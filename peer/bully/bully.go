package bully

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"baton"
	"baton/internal/feed"
)

// ErrBullied is why a leadership ends when a higher id declares victory.
var ErrBullied = errors.New("leadership lost: a node with a higher id leads")

// Config says which node this is. Group, NodeID, Peers and ElectionTimeout must be set.
type Config struct {
	Group    string
	NodeID   string
	Metadata map[string]string
	// Peers are the addresses of all nodes, this one's among them. Ids are ordered as strings.
	Peers map[string]string
	// Via are addresses at which this node reaches others, where those are not their own.
	Via map[string]string
	// ElectionTimeout is how long a leader may be silent.
	ElectionTimeout time.Duration
	OnOverrun       func(baton.Overrun)
	Logger          *slog.Logger
	Clock           baton.Clock

	transport http.RoundTripper
}

// Lease is how long a leader trusts itself after a heartbeat that it sent, whether or not
// anybody heard it.
func (c Config) Lease() time.Duration { return 2 * c.ElectionTimeout }

// Elector is one node.
type Elector struct {
	cfg     Config
	client  *http.Client
	feed    *feed.Feed
	kicks   chan struct{}
	closing context.Context
	close   context.CancelFunc
	owned   sync.WaitGroup

	mu      sync.Mutex
	won     chan *baton.Leadership // of the campaign that waits; nil if none does
	led     *baton.Leadership      // the current one, or the last
	tenure  *baton.Tenure          // nil unless this node leads
	leader  message                // without a node: nobody
	heard   time.Time              // of the leader
	quiet   time.Time              // until then this node starts no election
	seen    baton.Term
	sent    map[string]uint64
	changes uint64
	closed  bool
}

var _ baton.Elector = (*Elector)(nil)

// run holds elections when there is a reason, and heartbeats while this node leads.
func (e *Elector) run() {
	tick := time.NewTicker(e.cfg.ElectionTimeout / 4)
	defer tick.Stop()
	for {
		e.mu.Lock()
		tenure, leader := e.tenure, e.leader
		vacant := leader.Node < e.cfg.NodeID || time.Since(e.heard) > e.cfg.ElectionTimeout
		elect := tenure == nil && e.won != nil && vacant && time.Now().After(e.quiet)
		e.mu.Unlock()
		switch {
		case tenure != nil && tenure.Extend(e.trusted()): // nobody is asked whether that is right
			e.tell(heartbeat, leader, "")
		case elect:
			e.elect()
		}
		select {
		case <-tick.C:
		case <-e.kicks:
		case <-e.closing.Done():
			return
		}
	}
}

func (e *Elector) trusted() time.Duration { return e.cfg.Clock.Now() + e.cfg.Lease()*9/10 }

func (e *Elector) elect() {
	m := message{Node: e.cfg.NodeID, Instance: baton.NewInstanceID(), Metadata: e.cfg.Metadata}
	higher := e.tell(election, m, m.Node)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent["elections"]++
	if higher { // it declares victory, or is asked again
		e.quiet = time.Now().Add(2 * e.cfg.ElectionTimeout)
		return
	}
	m.Term = max(e.seen+1, baton.Term(time.Now().UnixMilli())<<10)
	e.mu.Unlock()
	e.tell(victory, m, "") // whoever led, and heard it, has stopped by now
	e.mu.Lock()
	if e.won == nil || e.leader.Node > m.Node && time.Since(e.heard) < e.cfg.ElectionTimeout {
		return // given up, or a higher one was faster
	}
	e.led, e.tenure = baton.NewLeadership(baton.LeadershipConfig{
		Token: baton.Token{Group: e.cfg.Group, Term: m.Term, InstanceID: m.Instance},
		Clock: e.cfg.Clock, Until: e.trusted(), StopGrace: e.cfg.Lease() / 10,
		Release: func(context.Context) error { e.resign(m); return nil }, OnOverrun: e.cfg.OnOverrun,
	})
	e.learn(m)
	e.won <- e.led
	e.won = nil
	e.cfg.Logger.Info("elected", "group", e.cfg.Group, "node", m.Node, "term", m.Term)
}

// resign tells the others, and lets them go first.
func (e *Elector) resign(m message) {
	m.Left = true
	e.mu.Lock()
	if e.leader.Instance == m.Instance {
		e.tenure = nil
		e.learn(m)
	}
	e.quiet = time.Now().Add(2 * e.cfg.ElectionTimeout)
	e.mu.Unlock()
	e.tell(heartbeat, m, "")
}

// hear takes note of what another node says, and reports whether it agrees: that there is
// a higher one to see to an election, or that the other leads.
func (e *Elector) hear(kind string, m message) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.kick()
	if kind == election {
		return !e.closed && (e.won != nil || e.tenure != nil && e.led.Valid())
	}
	e.seen = max(e.seen, m.Term)
	switch {
	case m.Left && m.Instance != e.leader.Instance:
		return true // of no interest any more
	case e.tenure != nil && e.led.Valid() && m.Node < e.cfg.NodeID:
		return false
	case e.tenure != nil:
		e.tenure.End(fmt.Errorf("%w: %s", ErrBullied, m.Node))
		e.tenure = nil
	}
	e.heard = time.Now()
	e.learn(m)
	return true
}

// learn makes known who leads. Called under e.mu.
func (e *Elector) learn(m message) {
	if e.leader.Instance == m.Instance && !m.Left {
		return
	}
	e.changes++
	e.seen = max(e.seen, m.Term)
	e.feed.Publish(feed.Position{Index: e.changes}, e.event(m))
	if m.Left {
		m = message{Term: m.Term}
	}
	e.leader = m
}

func (e *Elector) event(m message) baton.Event {
	if m.Left || m.Node == "" {
		return baton.Event{Type: baton.LeaderLost, Group: e.cfg.Group, Term: m.Term, PreviousNodeID: m.Node, Reason: baton.Resigned, Time: time.Now()}
	}
	return baton.Event{Type: baton.LeaderChanged, Group: e.cfg.Group, Term: m.Term, NodeID: m.Node, InstanceID: m.Instance, Metadata: m.Metadata, Time: time.Now()}
}

func (e *Elector) kick() {
	select {
	case e.kicks <- struct{}{}:
	default:
	}
}

// Campaign blocks until no higher id answers.
func (e *Elector) Campaign(ctx context.Context) (*baton.Leadership, error) {
	e.mu.Lock()
	if e.closed || e.won != nil || e.led != nil && e.led.Valid() {
		e.mu.Unlock()
		return nil, &baton.ConflictError{Reason: baton.ConflictBusy, Message: "already campaigns or leads, or is closed"}
	}
	won := make(chan *baton.Leadership, 1)
	e.won, e.tenure = won, nil
	e.mu.Unlock()
	e.kick()
	select {
	case l := <-won:
		return l, nil
	case <-ctx.Done():
	case <-e.closing.Done():
	}
	e.mu.Lock()
	e.won = nil
	e.mu.Unlock()
	select {
	case l := <-won: // in the same moment
		_ = l.Resign(context.WithoutCancel(ctx)) // which cannot fail
	default:
	}
	return nil, fmt.Errorf("campaign for %s as %s: %w", e.cfg.Group, e.cfg.NodeID, cmp.Or(ctx.Err(), baton.ErrClosed))
}

// Observe yields who leads, as far as this node has heard.
func (e *Elector) Observe(ctx context.Context) iter.Seq2[baton.Event, error] {
	return e.feed.Watch(ctx, e.cfg.Group, "", func() baton.Event {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.event(e.leader)
	})
}

// Close resigns what is led and stops.
func (e *Elector) Close() error {
	e.mu.Lock()
	led := e.led
	e.closed = true
	e.mu.Unlock()
	if led != nil && led.Valid() {
		_ = led.Resign(context.Background()) // which cannot fail
		<-led.Over()
	}
	e.close()
	e.feed.Close()
	e.owned.Wait()
	return nil
}
