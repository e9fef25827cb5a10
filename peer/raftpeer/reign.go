package raftpeer

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"baton"
)

// reign is this peer as raft's leader of one raft term.
type reign struct {
	e     *Elector
	term  uint64
	life  context.Context
	end   context.CancelFunc
	owned sync.WaitGroup

	// since is when an earlier raft leader was confirmed last, or later: when it was known that
	// the first entry of the reign is committed, or as peers recall.
	since    time.Duration
	recalled bool // a majority has been asked
	// passed: a leadership has ended here in this reign, at over, so that others go first.
	passed bool
	over   time.Duration
}

// watchRaft begins and ends reigns as raft's leadership comes and goes.
//
// Raft's channel keeps only the latest news. It wakes, and tells nothing: the raft
// term does, and whatever counts in a reign compares it.
func (e *Elector) watchRaft() {
	tick := time.NewTicker(e.cfg.ElectionTimeout / 4)
	defer tick.Stop()
	seen := time.Now()
	for {
		if _, leader := e.raft.LeaderWithID(); leader != "" {
			seen = time.Now()
			e.sight(true)
			if leader != e.id() {
				e.attends.Forget()
			}
		} else if time.Since(seen) > 3*e.cfg.ElectionTimeout {
			e.sight(false)
		}
		e.look()
		select {
		case leader := <-e.raft.LeaderCh():
			e.cfg.trial.leaderCh(leader)
		case <-e.kicks:
		case <-tick.C:
		case <-e.closing.Done():
			e.depose()
			return
		}
	}
}

// kick makes watchRaft look.
func (e *Elector) kick() {
	select {
	case e.kicks <- struct{}{}:
	default:
	}
}

func (e *Elector) look() {
	e.mu.Lock()
	r := e.reign
	e.mu.Unlock()
	if r != nil && (!e.leads(r.term) || r.life.Err() != nil) {
		e.depose()
		r = nil
	}
	if r != nil || e.raft.State() != raft.Leader {
		return
	}
	r = &reign{e: e, term: e.raft.CurrentTerm()}
	r.life, r.end = context.WithCancel(e.closing)
	e.mu.Lock()
	e.reign = r
	e.mu.Unlock()
	e.traffic.elections.Add(1)
	r.owned.Go(r.run)
}

// depose ends the reign, if there is one. Its leadership, if there is one, can be
// trusted for as long as it was, so that the work can be stopped in peace.
func (e *Elector) depose() {
	e.mu.Lock()
	r := e.reign
	e.reign = nil
	e.mu.Unlock()
	if r == nil {
		return
	}
	r.end()
	r.owned.Wait()
}

// run is a reign: it settles what its predecessor left, and then it leads if
// this node campaigns, or hands on.
func (r *reign) run() {
	e := r.e
	if _, err := r.commit(command{Op: opBarrier}); err != nil {
		e.log.Debug("could not begin a reign", "raft_term", r.term, "err", err)
		r.end() // the next look begins another, if this peer still is raft's leader
		return
	}
	e.cfg.trial.holdUp()
	r.since = e.clock.Now()
	e.log.Debug("raft's leader", "raft_term", r.term)
	for r.life.Err() == nil {
		rec, c, changed := e.standing()
		switch {
		case rec.held() && rec.RaftTerm < r.term:
			r.settle(rec, c, changed)
		case rec.held():
			// It began in this reign, and its holder has not said that it is over.
			r.reclaim(rec, c, changed)
		case r.passed:
			r.passed = false
			r.handOn(rec)
		case c != nil:
			r.lead(c)
		default:
			r.idle(rec, changed)
		}
	}
}

// standing is all that a reign's next step depends on.
func (e *Elector) standing() (record, *candidate, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.record, e.candidate, e.changed
}

// wait returns when something changed, d has passed or the reign is over.
func (r *reign) wait(changed <-chan struct{}, d time.Duration) {
	due := make(chan struct{})
	stop := r.e.clock.AfterFunc(d, func() { close(due) })
	defer stop()
	select {
	case <-changed:
	case <-due:
	case <-r.life.Done():
	}
}

// settle ends a leadership of an earlier raft leader: when its lease, counted from its last
// confirmation, is over; or at once if it was this very process's, which would not campaign if it were not over.
func (r *reign) settle(rec record, c *candidate, changed <-chan struct{}) {
	e := r.e
	if c != nil && e.isMine(rec.Instance) {
		r.reclaim(rec, c, changed)
		return
	}
	if !r.recalled {
		r.recall()
	}
	left := r.since + rec.Lease - e.clock.Now()
	if left > 0 && !e.cfg.trial.startsAtOnce() {
		if !r.recalled {
			left = min(left, e.cfg.ElectionTimeout/20)
		}
		r.wait(changed, left)
		return
	}
	e.log.Info("its leader did not say that it has stopped, and its lease is over", "term", rec.Term, "leader", rec.Node)
	r.conclude(rec, baton.Expired)
}

// reclaim ends a leadership of this process that nobody has ended. It is over for certain
// once this node campaigns again. Its end should be on its way; if it
// does not come, others are given raft's leadership, and wait out the lease.
func (r *reign) reclaim(rec record, c *candidate, changed <-chan struct{}) {
	left := r.over + rec.Lease - r.e.clock.Now()
	switch {
	case c != nil:
		r.conclude(rec, baton.Resigned)
	case rec.RaftTerm == r.term && left > 0:
		r.wait(changed, left)
	default:
		r.idle(rec, changed)
	}
}

// idle looks for a peer that wants to lead.
func (r *reign) idle(rec record, changed <-chan struct{}) {
	if !r.handOn(rec) {
		r.wait(changed, r.e.cfg.ElectionTimeout/2)
	}
}

func (r *reign) conclude(rec record, reason baton.Reason) {
	_, err := r.commit(command{Op: opEnd, Node: rec.Node, Instance: rec.Instance, Term: rec.Term, Reason: reason, StampMS: stamp()})
	if err != nil {
		r.e.log.Debug("could not end a leadership", "term", rec.Term, "err", err)
		r.pause()
	}
}

// pause keeps a reign that cannot commit from trying all the time.
func (r *reign) pause() { r.wait(nil, r.e.cfg.ElectionTimeout/20) }

// commit proposes a command as decided in this reign, and returns the state after it.
func (r *reign) commit(c command) (record, error) {
	c.RaftTerm = r.term
	return r.e.commit(c)
}

// commit returns when the entry is committed and applied, or will not be, or that is not known.
func (e *Elector) commit(c command) (record, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return record{}, err
	}
	f := e.raft.Apply(b, e.cfg.ElectionTimeout)
	if err := f.Error(); err != nil {
		e.kick()
		return record{}, err
	}
	a := f.Response().(applied)
	return a.record, a.err
}

// stamp is the wall clock, for people.
func stamp() int64 { return time.Now().UnixMilli() }
