package raftstore

import (
	"context"
	"errors"
	"time"

	"baton"
	"baton/internal/leasefsm"
)

// The methods of a reign are the store's, on the server that leads the
// cluster. Each looks at the record under the lock, does what needs doing
// without it, and looks again before it answers.

// under runs f under the lock if the reign still stands.
func (r *reign) under(op string, f func(now time.Duration) error) error {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.s.reign != r || r.outdated {
		return &notServing{unavailable(op, errReignOver)}
	}
	now := r.s.clock.Now()
	r.lapse(now)
	defer r.setAlarm(now)
	return f(now)
}

// confirmed makes what is read afterwards linearizable: a round, and
// everything that was committed when it was asked for has been applied.
func (r *reign) confirmed(ctx context.Context, op string) error {
	committed := r.s.raft.CommitIndex()
	if err := r.rounds.confirm(ctx); err != nil {
		r.s.kick()
		err = unavailable(op, err)
		if ctx.Err() == nil && !r.s.leads(r.term) {
			err = &notServing{err}
		}
		return err
	}
	r.s.cfg.trial.holdUp()
	if err := r.s.awaitApplied(ctx, committed); err != nil {
		return unavailable(op, err)
	}
	return nil
}

// settled waits for the fate of an ending that is under way.
func (r *reign) settled(ctx context.Context, op string, fate <-chan struct{}) error {
	select {
	case <-fate:
		return nil
	case <-ctx.Done():
		return unavailable(op, ctx.Err())
	}
}

// errEnding tells a method to wait for this and to look again.
type errEnding struct{ fate <-chan struct{} }

func (*errEnding) Error() string { return "the leadership is being ended" }

// open tells until when a leadership that the record shows lasts, if it can
// still be acted on: its end has not been proposed. Called under s.mu after lapse.
func (r *reign) open(op, group string, term baton.Term, now time.Duration) (until time.Duration, err error) {
	return r.postpone(op, group, term, 0, now)
}

// postpone lets a leadership last for extend from now at least, and tells
// until when it does. Called under s.mu after lapse.
func (r *reign) postpone(op, group string, term baton.Term, extend, now time.Duration) (until time.Duration, err error) {
	if t := r.s.cfg.trial; t != nil && t.endsOpen && extend > 0 {
		r.deadlines.Drop(group, term)
		r.deadlines.Arm(group, term, extend, now)
		return now + extend, nil
	}
	if fate, ok := r.endings[group]; ok {
		return 0, &errEnding{fate}
	}
	left, err := r.deadlines.Renew(group, term, extend, now)
	if err != nil {
		// Closed, and nobody is ending it: what became of its end is not known,
		// and will not be in this reign.
		return 0, unavailable(op, err)
	}
	return now + left, nil
}

// errAgain tells a method that what it saw first was no longer so when it was
// about to answer.
var errAgain = errors.New("the state changed meanwhile")

// repeat calls try until it has an answer.
func (r *reign) repeat(ctx context.Context, op string, try func() error) error {
	for {
		err := try()
		var ending *errEnding
		switch {
		case errors.As(err, &ending):
			if err := r.settled(ctx, op, ending.fate); err != nil {
				return err
			}
		case !errors.Is(err, errAgain):
			return err
		case ctx.Err() != nil:
			return unavailable(op, ctx.Err())
		}
	}
}

func (r *reign) get(ctx context.Context, group string) (lease baton.Lease, err error) {
	if err := r.confirmed(ctx, "get"); err != nil {
		return baton.Lease{}, err
	}
	err = r.under("get", func(now time.Duration) error {
		// One that is past its deadline and not yet recorded as ended is held, with nothing left.
		lease = r.withRemaining(r.s.record.Get(group), now)
		return nil
	})
	return lease, err
}

func (r *reign) renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (lease baton.Lease, err error) {
	err = r.repeat(ctx, "renew", func() error {
		lease, err = r.renewOnce(ctx, id, extend)
		return err
	})
	return lease, err
}

// renewOnce acknowledges no more than what stood when the request came,
// because that is what the round, or the commit, confirms. A deadline that another
// request has moved since may rest on nothing.
func (r *reign) renewOnce(ctx context.Context, id baton.LeaseID, extend time.Duration) (lease baton.Lease, err error) {
	const op = "renew"
	longer, over := false, false
	var came, until time.Duration
	err = r.under(op, func(now time.Duration) error {
		came = now
		held, refused := r.s.record.Leadership(id)
		if refused != nil {
			over = true
			return nil
		}
		if held.Ending != nil {
			until, err = r.open(op, id.Group, id.Term, now)
			return err
		}
		longer = extend > held.TTL
		until, err = r.postpone(op, id.Group, id.Term, min(extend, held.TTL), now)
		return err
	})
	switch {
	case err != nil:
		return baton.Lease{}, err
	case over:
		return baton.Lease{}, r.refuse(ctx, op, func() error {
			_, err := r.s.record.Leadership(id)
			return err
		})
	case longer:
		// The commit confirms the reign.
		if result := r.commit(ctx, op, leasefsm.Extend{ID: id, TTL: extend}, nil); result.Err != nil {
			return baton.Lease{}, r.filled(result.Err)
		}
	default:
		if err := r.confirmed(ctx, op); err != nil {
			return baton.Lease{}, err
		}
	}
	// Whatever has ended it since closed it first, and is found here.
	err = r.under(op, func(now time.Duration) error {
		held, err := r.s.record.Leadership(id)
		if err != nil {
			return r.fill(err, now)
		}
		if longer && held.TTL >= extend {
			until = came + extend
		}
		lasts, err := r.postpone(op, id.Group, id.Term, until-now, now)
		if t := r.s.cfg.trial; t != nil {
			switch {
			case t.acknowledgesClosed && longer:
				err = nil
			case t.promisesLatest:
				until = lasts
			}
		}
		if err != nil {
			return err
		}
		lease = held
		lease.Remaining = max(0, until-now)
		return nil
	})
	return lease, err
}

// refuse answers "no" from state that has been confirmed. If the state says
// otherwise by then, the question has to be asked again.
func (r *reign) refuse(ctx context.Context, op string, refusal func() error) error {
	if err := r.confirmed(ctx, op); err != nil {
		return err
	}
	return r.under(op, func(now time.Duration) error {
		if err := refusal(); err != nil {
			return r.fill(err, now)
		}
		return errAgain
	})
}

func (r *reign) acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (lease baton.Lease, err error) {
	err = r.repeat(ctx, "acquire", func() error {
		lease, err = r.acquireOnce(ctx, group, c, ttl)
		return err
	})
	return lease, err
}

func (r *reign) acquireOnce(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	const op = "acquire"
	me := baton.LeaseID{Group: group, NodeID: c.NodeID, InstanceID: c.InstanceID}
	var mine baton.LeaseID
	var before <-chan struct{} // the fate of the end that goes before in the log
	refused := false
	var came time.Duration
	err := r.under(op, func(now time.Duration) error {
		if err := r.s.holding(op, now); err != nil {
			return err
		}
		came = now
		lease := r.s.record.Get(group)
		if fate, ok := r.endings[group]; ok {
			if lease.HeldBy(c) || !r.hasTurn(group, c) {
				return &errEnding{fate}
			}
			before, r.asked[me] = fate, now
			return nil
		}
		if lease.HeldBy(c) {
			mine = lease.ID()
			return nil
		}
		if refused = r.refusal(group, c) != nil; !refused {
			r.asked[me] = now
		}
		return nil
	})
	switch {
	case err != nil:
		return baton.Lease{}, err
	case mine.Term != 0:
		return r.reacquired(ctx, mine, ttl)
	case refused:
		return baton.Lease{}, r.refuse(ctx, op, func() error { return r.refusal(group, c) })
	}
	result := r.commit(ctx, op, leasefsm.Acquire{Group: group, Candidate: c, TTL: ttl, Stamp: stamp()}, func(error) {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		if r.asked[me] == came {
			delete(r.asked, me)
		}
	})
	switch {
	case before != nil && errors.Is(result.Err, baton.ErrHeld):
		// It was faster.
		return baton.Lease{}, &errEnding{before}
	case result.Err != nil:
		return baton.Lease{}, r.filled(result.Err)
	case !result.Granted:
		// Another request of this instance was faster.
		return r.reacquired(ctx, result.Lease.ID(), ttl)
	}
	var lease baton.Lease
	err = r.under(op, func(now time.Duration) error {
		held, err := r.s.record.Leadership(result.Lease.ID())
		if err != nil {
			return r.fill(err, now)
		}
		if _, err := r.open(op, group, held.Term, now); err != nil {
			return err
		}
		lease = held
		lease.Remaining = max(0, came+ttl-now) // as in renewOnce
		return nil
	})
	// Not an answer, nor to be asked again: by then the lease may be over, and an
	// answer would say that nothing was changed.
	var ending *errEnding
	var elsewhere *notServing
	switch {
	case errors.Is(err, baton.ErrNotLeader) || errors.As(err, &ending):
		err = unavailable(op, errors.New("the lease was granted and has ended since"))
	case errors.As(err, &elsewhere):
		err = elsewhere.error
	}
	return lease, err
}

// reacquired renews what the candidate holds. One that has lost it meanwhile
// asked for the group, and is answered about that.
func (r *reign) reacquired(ctx context.Context, id baton.LeaseID, ttl time.Duration) (baton.Lease, error) {
	lease, err := r.renewOnce(ctx, id, ttl)
	if errors.Is(err, baton.ErrNotLeader) {
		err = errAgain
	}
	return lease, err
}

// refusal is why c cannot have the group now. Called under s.mu.
func (r *reign) refusal(group string, c baton.Candidate) error {
	if err := r.s.record.Refusal(group, c); err != nil {
		return err
	}
	lease := r.s.record.Get(group)
	if turn, left, kept := r.line.TurnOf(group); kept && !lease.Held() && !turnFor(turn, c) {
		return &baton.HeldError{Lease: lease, RetryAfter: left}
	}
	return nil
}

// hasTurn reports whether it is c's turn. Called under s.mu.
func (r *reign) hasTurn(group string, c baton.Candidate) bool {
	turn, _, kept := r.line.TurnOf(group)
	return kept && turnFor(turn, c)
}

// turnFor reports whether a turn lets c in: one that is kept for a node that has
// not come yet names no instance.
func turnFor(turn, c baton.Candidate) bool {
	return turn.NodeID == c.NodeID && (turn.InstanceID == c.InstanceID || turn.InstanceID == "")
}

func (r *reign) release(ctx context.Context, id baton.LeaseID) error {
	return r.repeat(ctx, "release", func() error {
		return r.finish(ctx, "release", leasefsm.Release{ID: id, Stamp: stamp()}, func() (baton.Term, error) {
			_, err := r.s.record.Leadership(id)
			return id.Term, err
		}, id.Group)
	})
}

// finish proposes a command that ends the leadership that find finds.
func (r *reign) finish(ctx context.Context, op string, c leasefsm.Command, find func() (baton.Term, error), group string) error {
	var settle func(error)
	refused := false
	err := r.under(op, func(now time.Duration) error {
		term, err := find()
		if err != nil {
			refused = true
			return nil
		}
		if _, err := r.open(op, group, term, now); err != nil {
			return err
		}
		settle = r.closed(group, term)
		if _, ok := c.(leasefsm.Release); ok {
			r.foretell(group)
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case refused:
		return r.refuse(ctx, op, func() error { _, err := find(); return err })
	}
	return r.filled(r.commit(ctx, op, c, settle).Err)
}

func (r *reign) endLeadership(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	command := leasefsm.End{Group: group, Term: term, Ending: e, Stamp: stamp()}
	find := func() (baton.Term, error) {
		lease := r.s.record.Get(group)
		if !lease.Held() || lease.Term != term {
			return 0, &baton.NotLeaderError{ID: baton.LeaseID{Group: group, Term: term}, Current: &lease}
		}
		if e.Successor != "" && !r.line.InLine(group, e.Successor) {
			return 0, &baton.ConflictError{Reason: baton.ConflictNotInLine, Message: "node " + e.Successor + " does not wait for group " + group + ": it cannot succeed"}
		}
		return term, nil
	}
	return r.repeat(ctx, "end", func() error {
		if e.Immediate {
			return r.finish(ctx, "end", command, find, group)
		}
		// A gentle ending ends nothing by itself: renewals that come before its commit count,
		// those after it do not extend.
		refused := false
		err := r.under("end", func(now time.Duration) error {
			_, err := find()
			refused = err != nil
			if refused {
				return nil
			}
			if _, err = r.open("end", group, term, now); err == nil {
				r.marking[group]++
			}
			return err
		})
		switch {
		case err != nil:
			return err
		case refused:
			return r.refuse(ctx, "end", func() error { _, err := find(); return err })
		}
		return r.filled(r.commit(ctx, "end", command, func(error) { r.marked(group) }).Err)
	})
}

// marked: what became of a gentle ending is known, or never will be.
func (r *reign) marked(group string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if r.marking[group]--; r.marking[group] == 0 {
		delete(r.marking, group)
	}
}

func (r *reign) await(ctx context.Context, group string, c baton.Candidate) error {
	mine := false
	err := r.under("await", func(time.Duration) error {
		mine = r.s.record.Get(group).HeldBy(c)
		return nil
	})
	if err != nil || mine {
		return err
	}
	return r.line.Await(ctx, group, c)
}

func (r *reign) withRemaining(l baton.Lease, now time.Duration) baton.Lease {
	if l.Held() {
		l.Remaining = r.deadlines.Remaining(l.Group, l.Term, now)
	}
	return l
}

// fill completes a refusal of the record, which knows no clock. Called under s.mu.
func (r *reign) fill(err error, now time.Duration) error {
	var held *baton.HeldError
	var not *baton.NotLeaderError
	switch {
	case errors.As(err, &held) && held.Lease.Held():
		held.Lease = r.withRemaining(held.Lease, now)
		held.RetryAfter = held.Lease.Remaining
	case errors.As(err, &not) && not.Current != nil:
		*not.Current = r.withRemaining(*not.Current, now)
	}
	return err
}

func (r *reign) filled(err error) error {
	if err == nil {
		return nil
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return r.fill(err, r.s.clock.Now())
}
