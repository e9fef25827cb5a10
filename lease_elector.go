package baton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"
)

// ErrClosed: the elector was closed.
var ErrClosed = errors.New("elector is closed")

// LeaseElector elects by leases of a store.
type LeaseElector struct {
	store Store
	line  Line  // nil if the store has none
	ender Ender // likewise
	cfg   Config
	log   *slog.Logger

	closing context.Context // ends campaigns
	close   context.CancelFunc
	// owned counts campaigns and every goroutine that outlives one. It is
	// added to under mu while the elector is open, or by what it already counts.
	owned sync.WaitGroup

	mu          sync.Mutex
	campaigning bool
	closed      bool
	last        *Leadership // the current one, or the one before
	// mine are the instances this elector campaigned as, lately: a lease of theirs is no stranger's.
	mine []string

	readiness readiness
}

var _ Elector = (*LeaseElector)(nil)

// NewElector returns an elector for one node in one group. It does not own the store.
func NewElector(store Store, cfg Config) (*LeaseElector, error) {
	if v := reflect.ValueOf(store); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, &InvalidArgumentError{Field: "store", Value: nil, Want: "a store"}
	}
	g := store.Guarantees()
	cfg.TTL = g.roundTTL(cmp.Or(cfg.TTL, defaultTTL))
	cfg = cfg.withDefaults()
	if err := cfg.validate(g); err != nil {
		return nil, fmt.Errorf("elector: %w", err)
	}
	cfg.Metadata = maps.Clone(cfg.Metadata)
	e := &LeaseElector{store: store, cfg: cfg, log: cfg.Logger.With("group", cfg.Group, "node", cfg.NodeID)}
	e.line, _ = store.(Line)
	e.ender, _ = store.(Ender)
	e.closing, e.close = context.WithCancel(context.Background())
	return e, nil
}

// Campaign blocks until this node is elected.
func (e *LeaseElector) Campaign(ctx context.Context) (*Leadership, error) {
	if err := e.enter(); err != nil {
		return nil, err
	}
	defer e.leave()
	asked := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.closing, cancel)()

	l, err := e.newCampaign().win(ctx)
	if err != nil {
		switch {
		case asked.Err() != nil:
			err = asked.Err()
		case ctx.Err() != nil:
			err = ErrClosed
		}
		return nil, fmt.Errorf("campaign for %s as %s: %w", e.cfg.Group, e.cfg.NodeID, err)
	}
	return l, nil
}

func (e *LeaseElector) enter() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return ErrClosed
	case e.campaigning, e.last != nil && e.last.busy():
		return &ConflictError{Reason: ConflictBusy, Message: fmt.Sprintf("node %q already campaigns for group %q, leads it or still works for it", e.cfg.NodeID, e.cfg.Group)}
	}
	e.campaigning = true
	e.owned.Add(1)
	return nil
}

func (e *LeaseElector) leave() {
	e.mu.Lock()
	e.campaigning = false
	e.mu.Unlock()
	e.owned.Done()
}

// gaveUp: the last leadership ended for a reason that speaks against taking it right back.
func (e *LeaseElector) gaveUp() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last == nil {
		return false
	}
	cause := e.last.Cause()
	return errors.Is(cause, ErrResigned) || errors.Is(cause, ErrEnding) || errors.Is(cause, ErrUnready)
}

// lastTerm is that of the last leadership there was, 0 if there was none.
func (e *LeaseElector) lastTerm() Term {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.last == nil {
		return 0
	}
	return e.last.Term()
}

// newInstance names a campaign and remembers the name for a while.
func (e *LeaseElector) newInstance() string {
	const most = 16
	id := e.cfg.NewInstanceID()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mine = append(e.mine, id)
	e.mine = e.mine[max(0, len(e.mine)-most):]
	return id
}

func (e *LeaseElector) isMine(instance string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Contains(e.mine, instance)
}

// cleanUpTime is how long giving back a lease may take, when the store does not answer
// and nobody waits for what it says.
func (e *LeaseElector) cleanUpTime() time.Duration { return min(e.cfg.TTL/2, resignTimeout/2) }

// resignTimeout is the same for somebody who waits.
const resignTimeout = 10 * time.Second

// Close resigns what is led and ends what waits. Work that Run called is asked
// to stop, and waited for as long as its lease is good, so it does not call Close itself.
func (e *LeaseElector) Close() error {
	e.mu.Lock()
	e.closed = true
	l := e.last
	e.mu.Unlock()

	var err error
	if l != nil && l.Valid() {
		err = l.Resign(context.Background())
		if errors.Is(err, ErrNotLeader) {
			err = nil // somebody was faster
		}
		<-l.Over()
	}
	e.close()
	e.owned.Wait()
	return err
}

// Observe yields who leads, and then every change. While the store cannot be
// asked it yields LeaderUnknown once, and the state, marked as a gap, when it can be again.
func (e *LeaseElector) Observe(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		asked := ctx
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(e.closing, cancel)()
		ended := func() error {
			if asked.Err() != nil {
				return asked.Err()
			}
			return ErrClosed
		}

		pause := e.newBackoff()
		unknown := false
		for {
			for ev, err := range e.store.Watch(ctx, e.cfg.Group, "") {
				if err == nil {
					ev.Gap = ev.Gap || unknown
					unknown = false
					pause.reset()
					if !yield(ev, nil) {
						return
					}
					continue
				}
				if ctx.Err() != nil {
					yield(Event{}, ended())
					return
				}
				if isFinal(err) {
					yield(Event{}, fmt.Errorf("observe %s: %w", e.cfg.Group, err))
					return
				}
				if !unknown {
					unknown = true
					if !yield(Event{Type: LeaderUnknown, Group: e.cfg.Group, Time: time.Now(), Err: err}, nil) {
						return
					}
				}
			}
			if pause.wait(ctx) != nil {
				yield(Event{}, ended())
				return
			}
		}
	}
}

// isFinal: asking the same again will get the same answer.
func isFinal(err error) bool { return IsAnswer(err) && !errors.Is(err, ErrRateLimited) }

// says reports whether err is a store's answer of this kind. One that it could not get, and
// only tells about, is none.
func says(err, kind error) bool { return IsAnswer(err) && errors.Is(err, kind) }

// trusted is the moment up to which an answer to a request that was sent then can
// be trusted. No lease lasts for more than MaxTTL, whatever a store says.
func (e *LeaseElector) trusted(lease Lease, sent time.Duration) time.Duration {
	return sent + min(lease.Remaining, MaxTTL) - e.cfg.Margin
}

// backoff draws pauses with full jitter from a bound that doubles.
type backoff struct {
	e     *LeaseElector
	bound time.Duration
}

func (e *LeaseElector) newBackoff() *backoff { return &backoff{e: e, bound: e.cfg.RetryMin} }

func (b *backoff) reset() { b.bound = b.e.cfg.RetryMin }

func (b *backoff) next() time.Duration {
	d := time.Duration(b.e.cfg.Jitter() * float64(b.bound))
	b.bound = min(2*b.bound, b.e.cfg.RetryMax)
	return d
}

func (b *backoff) wait(ctx context.Context) error {
	return sleep(ctx, b.e.cfg.Clock, b.next())
}

// sleep returns nil when d has passed on the clock, or else the context's error.
func sleep(ctx context.Context, clock Clock, d time.Duration) error {
	due, stop := after(clock, d)
	defer stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-due:
		return nil
	}
}

// after is time.After on a clock; whoever asked for it stops it.
func after(clock Clock, d time.Duration) (due <-chan struct{}, stop func() bool) {
	fired := make(chan struct{})
	return fired, clock.AfterFunc(d, func() { close(fired) })
}

// withTimeout is context.WithTimeout on a clock.
func withTimeout(ctx context.Context, clock Clock, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := clock.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() { stop(); cancel(context.Canceled) }
}
