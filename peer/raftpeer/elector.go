package raftpeer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"baton"
	"baton/internal/feed"
	"baton/internal/raftnode"
)

// Elector is one peer.
type Elector struct {
	cfg     Config
	clock   baton.Clock
	log     *slog.Logger
	raft    *raft.Raft
	peers   peers
	traffic traffic
	attends *raftnode.Attendance
	abreast abreast
	feed    *feed.Feed
	kicks   chan struct{}

	closing  context.Context
	close    context.CancelFunc
	owned    sync.WaitGroup
	teardown []func() error // in reverse order, by Close
	// endBallot is for when raft ends, which waits for its questions to be answered.
	endBallot func()

	mu       sync.Mutex
	record   record
	position feed.Position // of the newest event
	changed  chan struct{} // closed when record, candidate or reign change
	sighted  bool          // raft has a leader, as far as is known here
	reign    *reign        // nil unless this peer is raft's leader
	// candidate is the campaign that waits for its win.
	candidate   *candidate
	campaigning bool
	closed      bool
	last        *baton.Leadership // the current one, or the one before
	mine        []string          // the instances that began here, or may have
	next        succession        // whom the last leader here wants to be followed by
	// vouched is when this peer last said, for whichever raft leader, that it was in that one's raft
	// term: of what an earlier process of its said, it only knows that it was before its own start.
	vouched time.Duration
	offers  map[raft.ServerID]offer // the latest that was declined, of each peer
}

var _ baton.Elector = (*Elector)(nil)

// candidate is a campaign that waits.
type candidate struct {
	ctx context.Context
	won chan *baton.Leadership
}

// parts are what a peer is built from: files and sockets, or their likes in memory.
type parts struct {
	logs      raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore
	transport raftnode.Transport
	peers     peers
	// bootstrap are the peers that the group begins with; empty if it has begun.
	bootstrap []raft.Server
}

// peers is how nodes talk to each other, beside raft.
type peers interface {
	// state asks a peer how it is. The answer is to this very question.
	state(ctx context.Context, to raft.Server, q question) (peerState, error)
	// end has raft's leader commit the end of a leadership.
	end(ctx context.Context, to raft.Server, c command) error
}

// question is what a peer is asked for.
type question struct {
	// VouchFor is the raft term of a leader that will trust itself for a lease if enough
	// peers are in it; 0 if nothing of that kind depends on the answer.
	VouchFor uint64 `json:"vouch_for,omitempty"`
}

// peerState is what a peer says of itself.
type peerState struct {
	RaftTerm    uint64 `json:"raft_term"`
	Campaigning bool   `json:"campaigning"`
	// Vouched is how long ago it last vouched for a raft leader, on its own clock, and at least how
	// long ago an earlier process of its did.
	Vouched time.Duration `json:"vouched_ns"`
}

// start makes a peer of its parts. It owns none of them.
func start(cfg Config, p parts) (*Elector, error) {
	e := &Elector{
		cfg: cfg, clock: cfg.Clock, log: cfg.Logger.With("group", cfg.Group, "node", cfg.NodeID), peers: p.peers,
		feed: feed.New(feed.Config{Store: cfg.NodeID}), kicks: make(chan struct{}, 1), changed: make(chan struct{}), offers: map[raft.ServerID]offer{},
		abreast: abreast{times: map[raft.ServerID]int{}}, vouched: cfg.trial.startedAt(cfg.Clock.Now()),
	}
	e.closing, e.close = context.WithCancel(context.Background())
	e.attends = raftnode.NewAttendance(e.log, "peer", 3*cfg.ElectionTimeout)
	config := cfg.raft()
	transport := &countedTransport{Transport: raftnode.Attended{Transport: p.transport, By: e.attends}, traffic: &e.traffic, abreast: &e.abreast}
	serve, end := func(*raft.Raft) {}, func() {}
	if !cfg.trial.splits() {
		ballot := raftnode.NewBallot(transport.Transport, e.id(), cfg.ElectionTimeout)
		transport.Transport, serve, end = ballot, ballot.Serve, ballot.End
	}
	if len(p.bootstrap) > 0 {
		err := raft.BootstrapCluster(config, p.logs, p.stable, p.snapshots, transport, raft.Configuration{Servers: p.bootstrap})
		if err != nil && !errors.Is(err, raft.ErrCantBootstrap) {
			end()
			return nil, fmt.Errorf("begin the group: %w", err)
		}
	}
	r, err := raft.NewRaft(config, machine{e}, p.logs, p.stable, p.snapshots, transport)
	if err != nil {
		end()
		return nil, fmt.Errorf("start raft: %w", err)
	}
	serve(r)
	e.raft, e.endBallot = r, end
	e.owned.Go(e.watchRaft)
	return e, nil
}

// Campaign blocks until this node is elected.
func (e *Elector) Campaign(ctx context.Context) (*baton.Leadership, error) {
	c := &candidate{ctx: ctx, won: make(chan *baton.Leadership)}
	if err := e.enter(c); err != nil {
		return nil, err
	}
	defer e.leave()
	select {
	case l := <-c.won:
		return l, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("campaign for %s as %s: %w", e.cfg.Group, e.cfg.NodeID, ctx.Err())
	case <-e.closing.Done():
		return nil, fmt.Errorf("campaign for %s as %s: %w", e.cfg.Group, e.cfg.NodeID, baton.ErrClosed)
	}
}

func (e *Elector) enter(c *candidate) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return baton.ErrClosed
	case e.campaigning, e.last != nil && e.last.Valid():
		return &baton.ConflictError{Reason: baton.ConflictBusy, Message: fmt.Sprintf("node %q already campaigns for group %q, or leads it", e.cfg.NodeID, e.cfg.Group)}
	}
	e.candidate, e.campaigning = c, true
	e.announce()
	return nil
}

func (e *Elector) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.candidate, e.campaigning = nil, false
	e.announce()
}

// Observe yields who leads, and then every change, as this peer learns of it.
// While raft has no leader that it knows of, it yields LeaderUnknown.
func (e *Elector) Observe(ctx context.Context) iter.Seq2[baton.Event, error] {
	return func(yield func(baton.Event, error) bool) {
		for ev, err := range e.feed.Watch(ctx, e.cfg.Group, "", e.state) {
			if err != nil && ctx.Err() == nil {
				err = baton.ErrClosed
			} else if err != nil {
				err = ctx.Err()
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// state is what an observer is told first.
func (e *Elector) state() baton.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.sighted {
		return e.unknown()
	}
	return e.record.event(e.cfg.Group)
}

var errNoRaftLeader = errors.New("raft has no leader: a majority of the peers does not answer, or they are electing one")

func (e *Elector) unknown() baton.Event {
	return baton.Event{Type: baton.LeaderUnknown, Group: e.cfg.Group, Time: time.Now(), Err: errNoRaftLeader}
}

// sight takes note of whether raft has a leader.
func (e *Elector) sight(leader bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sighted == leader {
		return
	}
	e.sighted = leader
	event := e.unknown()
	if leader {
		event = e.record.event(e.cfg.Group)
		event.Gap = true
	} else {
		e.log.Warn("nobody is known to lead", "err", errNoRaftLeader)
	}
	e.publish(0, event)
}

// Close resigns what is led, hands raft's leadership on, and stops. Work that Run
// called is asked to stop and waited for as long as it can be trusted.
func (e *Elector) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	l := e.last
	e.mu.Unlock()

	var err error
	if l != nil && l.Valid() {
		err = l.Resign(context.Background())
		if errors.Is(err, baton.ErrNotLeader) {
			err = nil // somebody was faster
		}
		<-l.Over()
		e.awaitEnd(l.Term())
	}
	e.close()
	e.owned.Wait()
	if e.raft.State() == raft.Leader && len(e.cfg.Peers) > 1 {
		// Better than letting the others find out. If it fails they will.
		if err := e.handOnAny(); err != nil {
			e.log.Info("raft's leadership not handed on", "err", err)
		}
	}
	return errors.Join(err, e.stop())
}

// awaitEnd waits until the end of a leadership is on record, as long as that can help.
func (e *Elector) awaitEnd(term baton.Term) {
	late := time.After(e.cfg.Lease)
	for {
		rec, _, changed := e.standing()
		if !rec.held() || rec.Term != term {
			return
		}
		select {
		case <-changed:
		case <-late:
			return
		}
	}
}

// stop ends everything without a word to the others.
func (e *Elector) stop() error {
	e.close()
	e.feed.Close()
	e.owned.Wait()
	ending := e.raft.Shutdown()
	e.endBallot()
	errs := []error{ending.Error()}
	for _, f := range slices.Backward(e.teardown) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// answer is what this peer tells others.
//
// The raft term is read and the vouching noted under one lock: the term only rises, so whoever is
// told of a later one is told of everything that was vouched for in this one.
func (e *Elector) answer(q question) peerState {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := peerState{RaftTerm: e.raft.CurrentTerm(), Campaigning: e.candidate != nil && !e.closed}
	now := e.clock.Now()
	if q.VouchFor != 0 && q.VouchFor == s.RaftTerm {
		e.vouched = now
	}
	s.Vouched = now - e.vouched
	return s
}

func (e *Elector) id() raft.ServerID { return raft.ServerID(e.cfg.NodeID) }

// others are all peers but this one. Their set never changes once the group has begun, and every one has a vote.
func (e *Elector) others() ([]raft.Server, error) {
	f := e.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, err
	}
	// A copy: what raft returns is its own, and the next caller's.
	return slices.DeleteFunc(slices.Clone(f.Configuration().Servers), func(s raft.Server) bool { return s.ID == e.id() }), nil
}

// leads reports whether this peer is raft's leader of exactly this raft term.
//
// Whoever asks has led in this term before, and terms only rise. So if the state
// is read first, and the term is still this one after that, the leadership was
// one of this term.
func (e *Elector) leads(raftTerm uint64) bool {
	return e.raft.State() == raft.Leader && e.raft.CurrentTerm() == raftTerm
}
