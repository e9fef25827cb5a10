package observed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"baton"
)

// Config is what leases are made of.
type Config struct {
	Register Register
	// Guarantees are the store's: the bounds of TTLs and whether a renewal may raise one.
	Guarantees baton.Guarantees
	// Clock judges; baton.SystemClock if nil.
	Clock baton.Clock
	// Timeout bounds every call that does not wait by its nature; 5 seconds if 0.
	Timeout time.Duration
	// Turn, if set, is asked before c is granted a vacant group: for how long it is kept for somebody else.
	Turn func(ctx context.Context, group string, vacant Record, c baton.Candidate) (time.Duration, error)
}

// DefaultTimeout is what bounds a call unless Config says otherwise.
const DefaultTimeout = 5 * time.Second

// Leases is what a store over a register is made of: its methods are the
// store's methods of the same name.
type Leases struct {
	register Register
	g        baton.Guarantees
	clock    baton.Clock
	timeout  time.Duration
	turn     func(ctx context.Context, group string, vacant Record, c baton.Candidate) (time.Duration, error)
	sights   *sights

	life context.Context // ends with Close
	end  context.CancelFunc
}

// New makes leases. It asks the register nothing.
func New(cfg Config) *Leases {
	if cfg.Clock == nil {
		cfg.Clock = baton.SystemClock()
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = DefaultTimeout
	}
	l := &Leases{
		register: cfg.Register, g: cfg.Guarantees, clock: cfg.Clock, timeout: cfg.Timeout, turn: cfg.Turn,
		sights: newSights(cfg.Clock),
	}
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

// Close ends watches and waits, and refuses what comes later. The register is the caller's to close.
func (l *Leases) Close() { l.end() }

// Closed is closed by Close.
func (l *Leases) Closed() <-chan struct{} { return l.life.Done() }

// read reads a group and takes note of when.
func (l *Leases) read(ctx context.Context, group string) (sight, error) {
	asked := l.clock.Now()
	snap, err := l.register.Read(ctx, group)
	if err != nil {
		return sight{}, err
	}
	return l.sights.see(group, snap, asked), nil
}

// load reads a group, after ending a lease that has run out. So the others see
// a leadership that stands, or one that has ended with a reason and a time. If the
// register refuses the ending, that is the error, and what was read is returned with it.
func (l *Leases) load(ctx context.Context, group string) (sight, error) {
	failed := errBusy
	for ctx.Err() == nil {
		now, err := l.read(ctx, group)
		if err != nil || !now.lapsed(l.clock.Now()) {
			return now, err
		}
		asked := l.clock.Now()
		snap, err := l.register.Swap(ctx, group, now.snap, now.snap.Record.over(baton.Expired, nil, newID(), stamp()))
		switch {
		case err == nil:
			return l.sights.see(group, snap, asked), nil
		case baton.IsAnswer(err):
			return now, err
		case !errors.Is(err, ErrChanged):
			failed = err
			pause(ctx, retryPause)
		}
	}
	return sight{}, failed
}

// view is load for those who only look. Who may not write sees a lease that has run out as
// held, with nothing left.
func (l *Leases) view(ctx context.Context, group string) (sight, error) {
	now, err := l.load(ctx, group)
	if baton.IsAnswer(err) && now.snap.Record.Holder != nil {
		err = nil
	}
	return now, err
}

// attempts are the writes of one call that were not seen to be done, by their ids.
type attempts map[string]attempt

type attempt struct {
	sent time.Duration // from before it was
	// changed: the answer was ErrChanged. Of a write that was done, and that something on the way repeated,
	// it may be the answer to the copy, which found the record changed by the first.
	changed bool
}

// lost reports whether there is one that was not answered, and may take effect yet.
func (a attempts) lost() bool {
	for _, made := range a {
		if !made.changed {
			return true
		}
	}
	return false
}

// settle keeps a refusal of one attempt from being the answer while an earlier one may yet take effect.
func (a attempts) settle(err error) error {
	if a.lost() && baton.IsAnswer(err) {
		return fmt.Errorf("%w: a repetition was refused: %v", errLost, err)
	}
	return err
}

// Acquire grants a vacant group.
func (l *Leases) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	if err := baton.ValidateID("group", group); err != nil {
		return baton.Lease{}, err
	}
	if err := c.Validate(); err != nil {
		return baton.Lease{}, err
	}
	if err := l.g.ValidateTTL(ttl); err != nil {
		return baton.Lease{}, err
	}
	bounded, cancel := l.Begin(ctx, true)
	defer cancel()
	lease, err := l.acquire(bounded, group, c, l.roundUp(ttl))
	return lease, l.Fail(ctx, "acquire", err)
}

func (l *Leases) acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	failed, tried := errBusy, attempts{}
	guess, guessed := l.guessVacant(ctx, group, c)
	for ctx.Err() == nil {
		now := guess
		if !guessed {
			var err error
			if now, err = l.load(ctx, group); err != nil {
				return baton.Lease{}, tried.settle(err)
			}
			if now.snap.Record.heldBy(c) {
				lease, err := l.renew(ctx, now, tried, now.snap.Record.lease(group).ID(), func(Record) (time.Duration, error) { return ttl, nil })
				if errors.Is(err, baton.ErrNotLeader) {
					continue // it ended just now, which is another answer
				}
				return lease, err
			}
			if err := l.refusal(group, now, c); err != nil {
				return baton.Lease{}, err // it is of another version than an attempt that was lost, which fails now
			}
			if err := l.outOfTurn(ctx, group, now, c); err != nil {
				return baton.Lease{}, tried.settle(err)
			}
		}
		guessed = false
		id, sent := newID(), l.clock.Now()
		snap, err := l.register.Swap(ctx, group, now.snap, now.snap.Record.grant(c, ttl, id, stamp()))
		switch {
		case err == nil:
			return l.granted(l.sights.wrote(group, snap, sent), group), nil
		case baton.IsAnswer(err):
			return baton.Lease{}, tried.settle(err)
		case errors.Is(err, ErrChanged):
			tried[id] = attempt{sent, true}
		default:
			// It may come yet. Whatever is written next names the same version, so one of the two fails.
			failed, tried[id] = err, attempt{sent, false}
			pause(ctx, retryPause)
		}
	}
	return baton.Lease{}, failed
}

// guessVacant is a state of the group in which c would be granted it, if that
// is to be had cheaply. It may be old, which a write on it finds out; nobody is refused for it.
func (l *Leases) guessVacant(ctx context.Context, group string, c baton.Candidate) (sight, bool) {
	cheap, ok := l.register.(Peeker)
	if !ok {
		return sight{}, false
	}
	asked := l.clock.Now()
	snap, err := cheap.Peek(ctx, group)
	if err != nil {
		return sight{}, false
	}
	now := l.sights.see(group, snap, asked)
	return now, l.refusal(group, now, c) == nil && l.outOfTurn(ctx, group, now, c) == nil
}

// granted is the answer to a holder.
func (l *Leases) granted(s sight, group string) baton.Lease {
	lease := s.snap.Record.lease(group)
	lease.Remaining = s.promise(l.clock.Now())
	return lease
}

// refusal is why the group, as it is, is not for c.
func (l *Leases) refusal(group string, now sight, c baton.Candidate) error {
	switch r := now.snap.Record; {
	case r.endedLast(c):
		return &baton.ConflictError{
			Reason:  baton.ConflictInstanceEnded,
			Message: fmt.Sprintf("instance %s of node %q has led group %q and its leadership ended: campaign with a new instance", c.InstanceID, c.NodeID, group),
		}
	case r.Holder != nil:
		lease := now.lease(group, l.clock.Now())
		return &baton.HeldError{Lease: lease, RetryAfter: lease.Remaining}
	case r.Term >= baton.MaxTerm:
		return &baton.ConflictError{
			Reason:  baton.ConflictTermsExhausted,
			Message: fmt.Sprintf("group %q has used up its terms: the last one is %d", group, r.Term),
		}
	}
	return nil
}

// outOfTurn is why a vacant group is not for c now.
func (l *Leases) outOfTurn(ctx context.Context, group string, now sight, c baton.Candidate) error {
	if l.turn == nil {
		return nil
	}
	left, err := l.turn(ctx, group, now.snap.Record, c)
	if err != nil || left <= 0 {
		return err
	}
	return &baton.HeldError{Lease: now.snap.Record.lease(group), RetryAfter: left}
}

// Renew lets exactly this leadership last for its whole TTL from now, whatever
// less was asked for, unless it is being ended. It is one write where this
// observer wrote or saw the group last.
func (l *Leases) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	if err := id.Validate(); err != nil {
		return baton.Lease{}, err
	}
	if err := l.g.ValidateExtend(extend); err != nil {
		return baton.Lease{}, err
	}
	bounded, cancel := l.Begin(ctx, true)
	defer cancel()
	now, ok := l.sights.last(id.Group)
	if !ok || !now.snap.Record.leads(id) || now.snap.Record.Holder.Ending != nil || now.lapsed(l.clock.Now()) {
		var err error
		if now, err = l.load(bounded, id.Group); err != nil {
			return baton.Lease{}, l.Fail(ctx, "renew", err)
		}
	}
	lease, err := l.renew(bounded, now, attempts{}, id, func(r Record) (time.Duration, error) {
		if ttl := r.Holder.TTL; extend > ttl && !l.g.Extends {
			return 0, &baton.InvalidTTLError{Field: "extend", TTL: extend, Min: time.Millisecond, Max: ttl}
		}
		return l.roundUp(extend), nil
	})
	return lease, l.Fail(ctx, "renew", err)
}

// renew gives the leadership id, which was seen like this, another beat. Of
// writes that were tried before, one may turn up as the beat that is there.
func (l *Leases) renew(ctx context.Context, now sight, tried attempts, id baton.LeaseID, ttl func(Record) (time.Duration, error)) (baton.Lease, error) {
	failed := errBusy
	for ctx.Err() == nil {
		r := now.snap.Record
		if !r.leads(id) {
			return baton.Lease{}, l.notLeader(now, id)
		}
		if made, ok := tried[r.Holder.Beat]; ok {
			now = l.sights.wrote(id.Group, now.snap, made.sent)
			if now.promise(l.clock.Now()) > r.Holder.TTL/2 { // else most of it passed before the answer was found
				return l.granted(now, id.Group), nil
			}
		}
		if r.Holder.Ending != nil {
			return l.granted(now, id.Group), nil
		}
		least, err := ttl(r)
		if err != nil {
			return baton.Lease{}, err
		}
		if !l.g.Extends {
			least = 0
		}
		beat, sent := newID(), l.clock.Now()
		snap, err := l.register.Swap(ctx, id.Group, now.snap, r.renew(least, beat))
		switch {
		case err == nil:
			return l.granted(l.sights.wrote(id.Group, snap, sent), id.Group), nil
		case baton.IsAnswer(err):
			return baton.Lease{}, tried.settle(err)
		case errors.Is(err, ErrChanged):
			tried[beat] = attempt{sent, true}
		default:
			failed, tried[beat] = err, attempt{sent, false}
			pause(ctx, retryPause)
		}
		if now, err = l.load(ctx, id.Group); err != nil {
			return baton.Lease{}, tried.settle(err)
		}
	}
	return baton.Lease{}, failed
}

// notLeader is the answer to one that does not lead.
func (l *Leases) notLeader(now sight, id baton.LeaseID) error {
	current := now.lease(id.Group, l.clock.Now())
	return &baton.NotLeaderError{ID: id, Current: &current}
}

func (l *Leases) roundUp(ttl time.Duration) time.Duration {
	if step := l.g.TTLStep; step > 0 {
		return (ttl + step - 1) / step * step
	}
	return ttl
}

// newID tells one write from all others.
func newID() string { return rand.Text() }
