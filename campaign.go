package baton

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// campaign is one attempt of this node to be elected, from the call of
// Campaign until it wins or gives up. Its requests carry one instance id, so
// that an answer that was lost can be asked for again.
type campaign struct {
	e     *LeaseElector
	c     Candidate
	pause *backoff
	// unsure: a request was sent whose outcome is not known; the group may be ours.
	unsure bool
	// pending is the request that was under way when the campaign was called off.
	pending *request
	twin    twin
	state   *groupState // without a line: what a watch tells
}

func (e *LeaseElector) newCampaign() *campaign {
	k := &campaign{e: e, pause: e.newBackoff(), twin: twin{e: e}}
	k.newInstance()
	return k
}

func (k *campaign) newInstance() {
	k.c = Candidate{NodeID: k.e.cfg.NodeID, InstanceID: k.e.newInstance(), Metadata: k.e.cfg.Metadata}
}

// win waits, asks and repeats until the group is ours, or ctx ends, or the
// store gives an answer that no repetition will change.
func (k *campaign) win(ctx context.Context) (*Leadership, error) {
	defer k.giveUp()
	if err := k.letOthers(ctx); err != nil {
		return nil, err
	}
	for {
		if err := k.awaitReady(ctx); err != nil {
			return nil, err
		}
		switch err := k.awaitTurn(ctx); {
		case errors.Is(err, ErrUnready):
			continue
		case err != nil:
			return nil, err
		}
		l, err := k.ask(ctx)
		if l != nil || err != nil {
			return l, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// ask sends one Acquire. Neither leadership nor error means: go on.
func (k *campaign) ask(ctx context.Context) (*Leadership, error) {
	e := k.e
	unsureBefore := k.unsure
	k.unsure = true
	r := k.send(ctx)
	select {
	case <-r.answered:
	case <-ctx.Done():
		k.pending = r
		return nil, ctx.Err()
	}
	lease, sent, err := r.lease, r.sent, r.err

	var held *HeldError
	var conflict *ConflictError
	switch {
	case err == nil && (!lease.HeldBy(k.c) || lease.Group != e.cfg.Group || lease.Term == 0):
		return nil, fmt.Errorf("the store granted %v, which is not what %s asked for", lease.ID(), k.c.InstanceID)
	case err == nil && lease.Ending != nil:
		// Won, but somebody wants it over before it began.
		k.abandon(lease.ID())
		return nil, k.pause.wait(ctx)
	case err == nil:
		until := e.trusted(lease, sent)
		if e.cfg.Clock.Now() >= until-e.cfg.StopGrace {
			// The answer took so long that there is nothing left to lead
			// with. The same question again gets the lease renewed.
			e.log.Warn("elected too late to act on it; asking again", "term", lease.Term)
			return nil, k.pause.wait(ctx)
		}
		if before := e.lastTerm(); lease.Term <= before {
			k.abandon(lease.ID())
			return nil, fmt.Errorf("the store granted term %d after this node has led in term %d: its terms have fallen, and ledgers would refuse the work", lease.Term, before)
		}
		k.unsure = false
		return e.hold(lease, until, sent)
	case says(err, ErrHeld) && errors.As(err, &held):
		k.unsure = false
		if err := k.twin.seen(held.Lease, k.c, sent, e.cfg.Clock.Now()); err != nil {
			return nil, err
		}
		return nil, k.lost(ctx, held)
	case says(err, ErrConflict) && errors.As(err, &conflict) && conflict.Reason == ConflictInstanceEnded:
		// A leadership of this campaign came and went while its answers were lost.
		k.unsure = false
		k.newInstance()
		return nil, k.pause.wait(ctx)
	case isFinal(err):
		k.unsure = unsureBefore // it says nothing about requests before it
		return nil, err
	case ctx.Err() != nil:
		return nil, ctx.Err()
	default:
		e.log.Warn("campaign: the store did not answer; asking again", "err", err)
		return nil, k.pauseFor(ctx, err)
	}
}

// request is one Acquire. It goes on when the campaign is called off: cutting it short
// would not take it back, and nobody would hear what became of it.
type request struct {
	cancel   context.CancelFunc
	answered chan struct{} // closed when the rest is filled in
	sent     time.Duration
	lease    Lease
	err      error
}

func (k *campaign) send(ctx context.Context) *request {
	e, c := k.e, k.c
	ctx, cancel := withTimeout(context.WithoutCancel(ctx), e.cfg.Clock, e.cfg.TTL-e.cfg.Margin-e.cfg.StopGrace)
	r := &request{cancel: cancel, answered: make(chan struct{})}
	e.owned.Go(func() {
		defer close(r.answered)
		defer cancel()
		r.sent = e.cfg.Clock.Now()
		r.lease, r.err = e.store.Acquire(ctx, e.cfg.Group, c, e.cfg.TTL)
	})
	return r
}

// pauseFor backs off, and at least for as long as the store asked for.
func (k *campaign) pauseFor(ctx context.Context, err error) error {
	var unavailable *UnavailableError
	if errors.As(err, &unavailable) && unavailable.RetryAfter > 0 {
		if err := sleep(ctx, k.e.cfg.Clock, min(unavailable.RetryAfter, k.e.cfg.RetryMax)); err != nil {
			return err
		}
	}
	return k.pause.wait(ctx)
}

// lost waits after an answer that somebody else is ahead.
func (k *campaign) lost(ctx context.Context, held *HeldError) error {
	if k.e.line != nil {
		// The line says when. It was wrong just now, so let it settle.
		return k.pause.wait(ctx)
	}
	if held.Lease.Held() {
		k.pause.reset() // this round is decided; the next vacancy is a new one
	}
	if k.state == nil {
		k.state = k.e.watchState(held.Lease)
	}
	return k.state.awaitVacancy(ctx, held, k.pause)
}

// awaitTurn waits in line. If the group may already be ours it does not: the
// line would make us wait for our own lease to run out.
func (k *campaign) awaitTurn(ctx context.Context) error {
	e := k.e
	if e.line == nil || k.unsure {
		return nil
	}
	for {
		began := e.cfg.Clock.Now()
		err := k.await(ctx)
		if e.cfg.Clock.Now()-began > k.pause.bound {
			k.pause.reset() // it has let us wait, so it is not one that is always wrong
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrUnready), isFinal(err) && !isDisplaced(err):
			return err
		}
		e.log.Warn("campaign: the line did not answer; asking again", "err", err)
		if err := k.pauseFor(ctx, err); err != nil {
			return err
		}
	}
}

// isDisplaced: an earlier wait of this very campaign, late on its way, has
// taken the place of the later one.
func isDisplaced(err error) bool {
	var conflict *ConflictError
	return errors.As(err, &conflict) && conflict.Reason == ConflictBusy
}

// await is Line.Await with an eye on what would make waiting pointless: a
// holder with our own name that keeps renewing, or that we are no longer ready.
func (k *campaign) await(ctx context.Context) error {
	e := k.e
	ctx, cancel := context.WithCancelCause(ctx)
	var watches sync.WaitGroup
	for _, watch := range []func(context.Context) error{k.watchTwin, k.watchReady} {
		watches.Go(func() {
			if err := watch(ctx); err != nil {
				cancel(err)
			}
		})
	}
	err := e.line.Await(ctx, e.cfg.Group, k.c)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	cancel(nil)
	watches.Wait()
	return err
}

// watchTwin reads the group now and then until ctx ends, often if our name leads it.
func (k *campaign) watchTwin(ctx context.Context) error {
	e := k.e
	for {
		sent := e.cfg.Clock.Now()
		reqCtx, cancel := withTimeout(ctx, e.cfg.Clock, e.cfg.TTL)
		lease, err := e.store.Get(reqCtx, e.cfg.Group)
		cancel()
		every := 3 * e.cfg.TTL
		if err == nil {
			if err := k.twin.seen(lease, k.c, sent, e.cfg.Clock.Now()); err != nil {
				return err
			}
			if k.twin.suspected {
				every = e.cfg.RenewEvery
			}
		}
		if sleep(ctx, e.cfg.Clock, every) != nil {
			return nil
		}
	}
}

// watchReady asks for readiness until ctx ends.
func (k *campaign) watchReady(ctx context.Context) error {
	e := k.e
	for e.cfg.Ready != nil && sleep(ctx, e.cfg.Clock, e.cfg.ReadyEvery) == nil {
		if err := e.ready(ctx); err != nil && ctx.Err() == nil {
			e.log.Info("not ready: leaving the line", "err", err)
			return ErrUnready
		}
	}
	return nil
}

// letOthers keeps a node that has just given up its leadership from taking it
// right back, at a store where nobody keeps a line: until another leads, or nobody wants to.
func (k *campaign) letOthers(ctx context.Context) error {
	e := k.e
	if e.line != nil || !e.gaveUp() {
		return nil
	}
	k.state = e.watchState(Lease{})
	return k.state.awaitLeader(ctx, e.cfg.RetryMax)
}

func (k *campaign) awaitReady(ctx context.Context) error {
	e := k.e
	for said := false; ; said = true {
		err := e.ready(ctx)
		if err == nil {
			if said {
				e.log.Info("ready again: campaigning")
			}
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !said {
			e.log.Info("not ready: not campaigning", "err", err)
		}
		if err := sleep(ctx, e.cfg.Clock, e.cfg.ReadyEvery); err != nil {
			return err
		}
	}
}

// giveUp leaves nothing behind: if a request may have been granted, the group
// is looked at and released.
func (k *campaign) giveUp() {
	if k.state != nil {
		k.state.close()
	}
	if !k.unsure {
		return
	}
	e, c, pending := k.e, k.c, k.pending
	e.owned.Go(func() {
		ctx, cancel := withTimeout(context.Background(), e.cfg.Clock, e.cleanUpTime())
		defer cancel()
		if pending != nil {
			select {
			case <-pending.answered:
			case <-ctx.Done():
				pending.cancel()
			}
		}
		pause := e.newBackoff()
		for {
			lease, err := e.store.Get(ctx, e.cfg.Group)
			switch {
			case err == nil && lease.HeldBy(c):
				_ = e.release(ctx, lease.ID())
				return
			case err == nil, isFinal(err), pause.wait(ctx) != nil:
				return
			}
		}
	})
}

// abandon gives back a lease that was won and is not going to be led on.
func (k *campaign) abandon(id LeaseID) {
	k.unsure = false
	k.newInstance()
	k.e.owned.Go(func() { _ = k.e.release(context.Background(), id) })
}

// twin notices another live process with our node id. A lease of ours from
// before a crash looks the same at first, and renewals that were on their way
// then may still land; but two TTLs later somebody must be alive to send them.
type twin struct {
	e         *LeaseElector
	suspected bool
	id        LeaseID
	since     time.Duration // when it was seen first
	latest    time.Duration // the latest moment at which it ends, if it is not renewed
}

func (w *twin) seen(lease Lease, c Candidate, sent, received time.Duration) error {
	// What rounding on the wire and a clock's drift may add to a lease that nobody renewed.
	const slack = 20 * time.Millisecond
	if lease.NodeID != c.NodeID || w.e.isMine(lease.InstanceID) {
		*w = twin{e: w.e}
		return nil
	}
	latest := received + lease.Remaining
	switch {
	case w.id != lease.ID():
		*w = twin{e: w.e, suspected: true, id: lease.ID(), since: received, latest: latest}
	case lease.Remaining <= 0, sent+lease.Remaining <= w.latest+slack:
		// A store may take its time to record that a lease has run out.
		w.latest = min(w.latest, latest)
	case sent < w.since+2*w.e.cfg.TTL:
		w.latest = latest
	default:
		return &DuplicateNodeError{Held: lease, InstanceID: c.InstanceID}
	}
	return nil
}
