package raftpeer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"baton"
)

// errLostRaft is why the work has to stop when raft has another leader, or none.
var errLostRaft = errors.New("leadership lost: this node is no longer raft's leader")

// holding is a leadership and what became of it.
type holding struct {
	r         *reign
	rec       record
	l         *baton.Leadership
	tenure    *baton.Tenure
	successor string // guarded by e.mu
}

// lead begins a leadership for a candidate and keeps it until it is over.
func (r *reign) lead(c *candidate) {
	e := r.e
	instance := e.cfg.NewInstanceID()
	e.remember(instance)
	sent := e.clock.Now()
	rec, err := r.commit(command{Op: opBegin, Node: e.cfg.NodeID, Instance: instance, Metadata: e.cfg.Metadata, Lease: e.cfg.Lease, StampMS: stamp()})
	e.cfg.trial.holdUp()
	if err != nil {
		e.log.Debug("could not begin to lead", "raft_term", r.term, "err", err)
		r.pause()
		return
	}
	// That a majority accepted the entry would confirm as well, but nobody remembers when it did.
	if !e.cfg.trial.trustsBegin() {
		if sent, err = r.firstRound(c); err != nil {
			r.conclude(rec, baton.Resigned) // nothing was begun
			return
		}
	}
	h := r.hold(c, rec, e.trusted(sent))
	select {
	case c.won <- h.l:
	case <-c.ctx.Done():
		h.abandon()
		return
	case <-e.closing.Done():
		h.abandon()
		return
	}
	h.keep(sent)
	r.passed, r.over = true, e.clock.Now()
}

// firstRound confirms a leadership before its candidate hears of it, and returns the moment before
// the questions were sent. It gives up with the reign, or with the candidate.
func (r *reign) firstRound(c *candidate) (sent time.Duration, err error) {
	for {
		sent = r.e.clock.Now()
		if err = r.confirm(); err == nil || r.life.Err() != nil || c.ctx.Err() != nil {
			return sent, err
		}
		r.pause()
	}
}

// trusted is the moment up to which a confirmation that was asked for then can be trusted.
func (e *Elector) trusted(sent time.Duration) time.Duration {
	if e.cfg.trial.trustsReceipt() {
		sent = e.clock.Now()
	}
	return sent + e.cfg.Lease - e.cfg.Margin
}

func (r *reign) hold(c *candidate, rec record, until time.Duration) *holding {
	e := r.e
	h := &holding{r: r, rec: rec}
	h.l, h.tenure = baton.NewLeadership(baton.LeadershipConfig{
		Token:     baton.Token{Group: e.cfg.Group, Term: rec.Term, InstanceID: rec.Instance},
		Clock:     e.clock,
		Until:     until,
		StopGrace: e.cfg.StopGrace,
		Tick:      e.cfg.Margin / 4,
		Release:   h.release,
		Transfer:  h.transfer,
		OnOverrun: e.overrun,
	})
	e.cfg.trial.trusts(rec.Term, until)
	e.mu.Lock()
	e.last = h.l
	if e.candidate == c {
		e.candidate = nil // it has won, and waits no longer
	}
	e.mu.Unlock()
	e.log.Info("elected", "term", rec.Term, "instance", rec.Instance, "raft_term", r.term)
	return h
}

func (h *holding) abandon() {
	h.tenure.End(baton.ErrResigned)
	h.r.e.cfg.trial.over(h.rec.Term)
	h.r.conclude(h.rec, baton.Resigned)
}

// keep confirms the leadership until it is over, or until this node is no longer raft's leader.
func (h *holding) keep(granted time.Duration) {
	e, r := h.r.e, h.r
	failures := 0
	stopped := h.l.Context().Done()
	renewAt, drainUntil := granted+e.cfg.RenewEvery, time.Duration(0)
	draining := false
	for {
		due := make(chan struct{})
		stop := e.clock.AfterFunc(renewAt-e.clock.Now(), func() { close(due) })
		select {
		case <-h.l.Over():
			stop()
			e.log.Info("leadership over", "term", h.rec.Term, "cause", h.l.Cause())
			return
		case <-r.life.Done():
			stop()
			h.lose()
			return
		case <-stopped:
			stop()
			stopped, draining, drainUntil = nil, true, e.clock.Now()+e.cfg.DrainTimeout
			continue
		case <-due:
		}
		sent := e.clock.Now()
		if !h.tenure.Extendable() || draining && sent > drainUntil {
			renewAt = sent + e.cfg.RenewEvery
			continue
		}
		e.cfg.trial.holdUp()
		err := r.confirm()
		e.cfg.trial.holdUp()
		if err != nil {
			failures++
			e.log.Warn("leadership not confirmed", "term", h.rec.Term, "failed", failures, "left", h.l.Remaining(), "err", err)
			if errors.Is(err, errDeposed) {
				e.kick()
			}
			renewAt = e.clock.Now() + e.cfg.RenewEvery/4
			continue
		}
		failures = 0
		until := e.trusted(sent)
		if h.tenure.Extend(until) {
			e.cfg.trial.trusts(h.rec.Term, until)
		}
		renewAt = sent + e.cfg.RenewEvery
	}
}

// lose stops the work. Until its last confirmation runs out, nobody else works.
func (h *holding) lose() {
	cause := errLostRaft
	if h.r.e.closing.Err() != nil {
		cause = baton.ErrClosed
	}
	h.tenure.Stop(cause)
	h.r.e.log.Info("leadership lost", "term", h.rec.Term, "cause", cause)
}

// transfer makes sure that the successor is there to lead.
func (h *holding) transfer(ctx context.Context, node string) error {
	e := h.r.e
	others, err := e.others()
	if err != nil {
		return &baton.UnavailableError{Op: "transfer", Err: err}
	}
	i := slices.IndexFunc(others, func(s raft.Server) bool { return string(s.ID) == node })
	if i < 0 {
		return &baton.ConflictError{Reason: baton.ConflictNotInLine, Message: fmt.Sprintf("node %q is not another peer of group %q", node, e.cfg.Group)}
	}
	s, err := e.ask(ctx, others[i], question{})
	if err != nil {
		return &baton.UnavailableError{Op: "transfer", Err: fmt.Errorf("ask %s: %w", node, err)}
	}
	if !s.Campaigning {
		return &baton.ConflictError{Reason: baton.ConflictNotInLine, Message: fmt.Sprintf("node %q does not campaign for group %q", node, e.cfg.Group)}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	h.successor = node
	e.next = succession{h.rec.Term, node}
	return nil
}

// succession is whom the holder of a term wants to be followed by.
type succession struct {
	term baton.Term
	node string
}

func (e *Elector) successorOf(rec record) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.next.term != rec.Term {
		return ""
	}
	return e.next.node
}

// release records that the work has stopped: here, or at whoever is raft's leader by now.
// If that fails, the successor waits for the lease.
func (h *holding) release(ctx context.Context) error {
	e := h.r.e
	e.cfg.trial.over(h.rec.Term)
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Lease)
	defer cancel()
	e.mu.Lock()
	reason := baton.Resigned
	if h.successor != "" {
		reason = baton.Transferred
	}
	e.mu.Unlock()
	c := command{Op: opEnd, Node: h.rec.Node, Instance: h.rec.Instance, Term: h.rec.Term, Reason: reason, StampMS: stamp()}
	for first := true; ; first = false {
		err := e.endAnywhere(ctx, c)
		switch {
		case err == nil, errors.Is(err, baton.ErrNotLeader) && !first:
			return nil // or an earlier request took effect
		case errors.Is(err, baton.ErrNotLeader):
			return err
		}
		select {
		case <-time.After(e.cfg.ElectionTimeout / 20):
		case <-ctx.Done():
			return &baton.UnavailableError{Op: "release", Err: err}
		case <-e.closing.Done():
			return &baton.UnavailableError{Op: "release", Err: baton.ErrClosed}
		}
	}
}

// endAnywhere commits the end of a leadership of this node's, or has raft's leader do it.
func (e *Elector) endAnywhere(ctx context.Context, c command) error {
	address, id := e.raft.LeaderWithID()
	switch id {
	case "":
		return errNoRaftLeader
	case e.id():
		_, err := e.commit(c)
		return err
	}
	return e.peers.end(ctx, raft.Server{ID: id, Address: address}, c)
}

func (e *Elector) overrun(o baton.Overrun) {
	if e.cfg.OnOverrun != nil {
		e.cfg.OnOverrun(o)
		return
	}
	e.log.Error("the work has not stopped although it can no longer be trusted", "term", o.Token.Term, "late", o.By, "cause", o.Cause)
}

// remember keeps the names under which this process began to lead, lately.
func (e *Elector) remember(instance string) {
	const most = 16
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mine = append(e.mine, instance)
	e.mine = e.mine[max(0, len(e.mine)-most):]
}

func (e *Elector) isMine(instance string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.mine, instance)
}
