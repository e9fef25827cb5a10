package baton

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"baton/internal/boottime"
)

// The causes for which a leadership's context ends, as context.Cause tells them.
var (
	// ErrLapsed: renewals did not come through in time, and the lease can no longer be trusted.
	ErrLapsed = errors.New("leadership lapsed: the lease was not renewed in time")
	// ErrResigned: this process gave it up.
	ErrResigned = errors.New("leadership resigned")
	// ErrEnding: the store asked for it to end; drain and return.
	ErrEnding = errors.New("leadership is being ended")
	// ErrUnready: the readiness check failed.
	ErrUnready = errors.New("leadership resigned: not ready")
)

// LeadershipConfig is what an elector builds a leadership from.
type LeadershipConfig struct {
	Token Token
	// Clock measures Until. The system's if nil.
	Clock Clock
	// Until is the reading of Clock up to which the grant can be trusted.
	Until time.Duration
	// StopGrace is how long before Until the work's context ends.
	StopGrace time.Duration
	// Tick is how often the clock is looked at, at the least; StopGrace/4 if zero, 250ms if that is zero too.
	Tick time.Duration
	// Release tells the judge that the leadership is over. The work has returned by then. It
	// returns in bounded time, whatever its context.
	Release func(ctx context.Context) error
	// Transfer names a successor before the drain; nil if that is not possible.
	Transfer func(ctx context.Context, node string) error
	// OnOverrun is told of work that is still running when it must not be.
	OnOverrun func(Overrun)
}

// Overrun describes work that did not return in time.
type Overrun struct {
	Token Token
	// By is how long after its deadline the work was seen running.
	By time.Duration
	// Cause is why the leadership ended.
	Cause error
}

func (o Overrun) String() string {
	return fmt.Sprintf("work under %s is still running %v after it had to stop (%v)", o.Token, o.By, o.Cause)
}

// Leadership is what an elected process holds: a context, a term, and a
// deadline that renewals move. All methods may be called at any time, by anyone.
//
// It passes through three states. It leads. Then it stops: the context has ended
// and the work drains under a lease that is still good. Then it is over. It never goes back.
type Leadership struct {
	cfg    LeadershipConfig
	ctx    *boottime.Context
	cancel context.CancelCauseFunc
	over   chan struct{} // closed when nothing of it can be trusted any more

	mu        sync.Mutex
	until     time.Duration
	stopped   bool // the context has ended
	lapsed    bool // and that was because time ran out: no renewal counts from here on
	cause     error
	ended     bool          // over is closed
	endedAt   time.Duration // when, unless until came first
	working   bool          // Run's work is between call and return
	overrun   bool          // reported
	releasing chan struct{} // closed when the release that is under way has been answered; nil if none is
	released  bool          // or known to have been over before
	stopTick  func() bool
}

// Tenure is the elector's side of a leadership. Whoever holds it says how long
// the leadership can be trusted.
type Tenure struct{ l *Leadership }

// NewLeadership makes a leadership that leads from now on, and the handle by
// which its elector extends and ends it. The elector must end it sometime.
func NewLeadership(cfg LeadershipConfig) (*Leadership, *Tenure) {
	if cfg.Clock == nil {
		cfg.Clock = SystemClock()
	}
	if cfg.Tick <= 0 {
		cfg.Tick = cfg.StopGrace / 4
	}
	if cfg.Tick <= 0 {
		cfg.Tick = 250 * time.Millisecond
	}
	l := &Leadership{cfg: cfg, until: cfg.Until, over: make(chan struct{})}
	parent := context.WithValue(context.Background(), leadershipKey{}, l)
	l.ctx, l.cancel = boottime.NewContext(parent, func() { l.Valid() })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look()
	l.armTick()
	return l, &Tenure{l}
}

// Token is what every protected write carries.
func (l *Leadership) Token() Token { return l.cfg.Token }

// Term is the token's term.
func (l *Leadership) Term() Term { return l.cfg.Token.Term }

// Context ends when the work has to stop: StopGrace before the lease can no
// longer be trusted, or when the leadership is resigned, ended or lost.
// context.Cause tells which. It carries the leadership and its token.
//
// Its Err looks at the clock. A context derived from it learns of the end
// within a fraction of the margin; code that resumes after a pause and cannot
// wait for that asks Valid.
func (l *Leadership) Context() context.Context { return l.ctx }

// Valid reports whether the lease is certainly still held. It looks at the
// clock each time. What was valid a moment ago need not be now: only a ledger
// beside the data can make a write safe.
func (l *Leadership) Valid() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look()
	return !l.ended
}

// Remaining is how long Valid will stay true if no renewal comes through.
func (l *Leadership) Remaining() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.look()
	if l.ended {
		return 0
	}
	return l.until - now
}

// Cause says why the leadership stopped; nil while it leads.
func (l *Leadership) Cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look()
	return l.cause
}

// Over is closed when the leadership is over: lapsed, lost or released.
func (l *Leadership) Over() <-chan struct{} { return l.over }

// Lose ends the leadership at once. A ledger that has seen a later term calls
// it. A nil cause counts as context.Canceled.
func (l *Leadership) Lose(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(cause, l.cfg.Clock.Now())
}

// Resign ends the work's context and gives the lease back.
//
// Inside Run it returns at once, and the lease is given back when the work has
// returned. Outside, the caller has stopped its work before it calls, and
// Resign reports whether the lease was given back: *NotLeaderError if it was
// lost or given back before, an unknown outcome as whatever the store said. It
// may be called again after that one. A lease elector asks a store that does not
// answer for ten seconds, or until ctx ends; with a ctx that cannot end, for half a TTL at most.
func (l *Leadership) Resign(ctx context.Context) error {
	return l.resign(ctx, ErrResigned)
}

// ResignTo is Resign in favour of a named node, which goes first if it waits
// in line. If it does not, or the store cannot transfer, that is *ConflictError and the leadership goes on.
func (l *Leadership) ResignTo(ctx context.Context, node string) error {
	if err := ValidateID("successor", node); err != nil {
		return err
	}
	if l.cfg.Transfer == nil {
		return &ConflictError{Reason: ConflictUnsupported, Message: "this store cannot transfer leadership to a named node"}
	}
	if err := l.cfg.Transfer(ctx, node); err != nil {
		return fmt.Errorf("transfer %s to %s: %w", l.cfg.Token, node, err)
	}
	return l.resign(ctx, fmt.Errorf("%w in favour of %s", ErrResigned, node))
}

func (l *Leadership) resign(ctx context.Context, cause error) error {
	l.mu.Lock()
	l.look()
	l.stop(cause, false)
	working := l.working
	l.mu.Unlock()
	if working {
		return nil // whoever called the work releases when it has returned
	}
	if own, ok := LeadershipFrom(ctx); ok && own == l {
		ctx = context.WithoutCancel(ctx) // it has ended just now, and not to stop this
	}
	return l.release(ctx)
}

// release gives the lease back, once: it waits for a release that is under
// way, and repeats one whose outcome is unknown. From before the request
// leaves nothing is trusted any more.
func (l *Leadership) release(ctx context.Context) (err error) {
	l.mu.Lock()
	l.end(ErrResigned, l.cfg.Clock.Now())
	for l.releasing != nil {
		answered := l.releasing
		l.mu.Unlock()
		select {
		case <-answered:
		case <-ctx.Done():
			return ctx.Err()
		}
		l.mu.Lock()
	}
	if l.released {
		l.mu.Unlock()
		return &NotLeaderError{ID: LeaseID{Group: l.cfg.Token.Group, InstanceID: l.cfg.Token.InstanceID, Term: l.cfg.Token.Term}}
	}
	l.releasing = make(chan struct{})
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.released = err == nil || says(err, ErrNotLeader)
		close(l.releasing)
		l.releasing = nil
	}()
	if l.cfg.Release == nil {
		return nil
	}
	return l.cfg.Release(ctx)
}

// awaitRelease waits for a release that is under way.
func (l *Leadership) awaitRelease() {
	l.mu.Lock()
	answered := l.releasing
	l.mu.Unlock()
	if answered != nil {
		<-answered
	}
}

// begin and finish stand around the work that Run calls. Once the leadership
// has stopped, no work begins under it.
func (l *Leadership) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.look(); l.stopped {
		return false
	}
	l.working = true
	l.armTick()
	return true
}

func (l *Leadership) finish() {
	l.mu.Lock()
	report := l.overran(l.look())
	l.working = false
	l.mu.Unlock()
	report()
}

// busy: it is valid, or work that Run called under it has not returned.
func (l *Leadership) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look()
	return !l.ended || l.working
}

// look brings the state up to the clock and returns its reading. Every method
// that reports state goes through it, so that no answer depends on a timer having fired.
func (l *Leadership) look() time.Duration {
	now := l.cfg.Clock.Now()
	if !l.stopped && now >= l.until-l.cfg.StopGrace {
		l.stop(ErrLapsed, true)
	}
	if !l.ended && now >= l.until {
		l.end(ErrLapsed, l.until)
	}
	return now
}

func (l *Leadership) stop(cause error, lapsed bool) {
	if l.stopped {
		return
	}
	if cause == nil {
		cause = context.Canceled
	}
	l.stopped, l.lapsed, l.cause = true, lapsed, cause
	l.cancel(cause)
}

func (l *Leadership) end(cause error, at time.Duration) {
	if l.ended {
		return
	}
	l.stop(cause, true)
	l.ended, l.endedAt = true, at
	close(l.over)
}

func (l *Leadership) armTick() {
	if l.stopTick != nil {
		l.stopTick()
	}
	now := l.cfg.Clock.Now()
	if l.ended && (!l.working || l.overrun) {
		return
	}
	d := l.cfg.Tick
	for _, at := range []time.Duration{l.until - l.cfg.StopGrace, l.until, l.overrunAt()} {
		if left := at - now; left > 0 {
			d = min(d, left)
		}
	}
	l.stopTick = l.cfg.Clock.AfterFunc(d, l.tick)
}

func (l *Leadership) tick() {
	l.mu.Lock()
	report := l.overran(l.look())
	l.armTick()
	l.mu.Unlock()
	report()
}

// overrunAt is when work that is still running has overrun: at the end of the
// lease, or a StopGrace after the leadership was lost, whichever is first.
func (l *Leadership) overrunAt() time.Duration {
	if l.ended {
		return min(l.until, l.endedAt+l.cfg.StopGrace)
	}
	return l.until
}

// overran returns what is to be called, without the lock, if the work has
// overrun and nobody was told yet.
func (l *Leadership) overran(now time.Duration) (report func()) {
	if !l.working || l.overrun || !l.ended || now < l.overrunAt() {
		return func() {}
	}
	l.overrun = true
	o := Overrun{Token: l.cfg.Token, By: now - l.overrunAt(), Cause: l.cause}
	return func() {
		if l.cfg.OnOverrun != nil {
			l.cfg.OnOverrun(o)
		}
	}
}

// Extend lets the leadership be trusted until this reading of its clock, if
// that is later than before, and reports whether it still counts for anything: after the
// leadership has lapsed, or is over, no answer revives it.
func (t *Tenure) Extend(until time.Duration) bool {
	l := t.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.extendable() {
		return false
	}
	l.until = max(l.until, until)
	return true
}

// Extendable reports whether Extend would still count.
func (t *Tenure) Extendable() bool {
	t.l.mu.Lock()
	defer t.l.mu.Unlock()
	return t.l.extendable()
}

func (l *Leadership) extendable() bool {
	l.look()
	return !l.lapsed && !l.ended
}

// Stop ends the work's context; the lease stays good for the drain.
func (t *Tenure) Stop(cause error) {
	l := t.l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.look()
	l.stop(cause, false)
}

// End ends the leadership at once.
func (t *Tenure) End(cause error) { t.l.Lose(cause) }
