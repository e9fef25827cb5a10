package storetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"time"

	"baton"
	"baton/internal/boottime"
)

// env is one check at work: a store, a group of its own, and the times that suit the store.
type env struct {
	T
	start    func(T) Backing
	back     Backing
	store    baton.Store
	g        baton.Guarantees
	group    string
	short    time.Duration // a TTL to wait out
	long     time.Duration // a TTL that no check outlasts
	patience time.Duration
	clock    baton.Clock
	ctx      context.Context
	odd      bool // the last try that said anything saw what is unlikely
}

func rule(name string, check func(e *env)) Case {
	return Case{Name: name, Check: func(t T, h Harness) { check(newEnv(t, h)) }}
}

func newEnv(t T, h Harness) *env {
	t.Helper()
	if h.Start == nil {
		t.Fatalf("the harness has no Start")
	}
	e := &env{T: t, start: h.Start, back: h.Start(t), patience: h.Patience, clock: boottime.Monotonic()}
	if e.patience == 0 {
		e.patience = 30 * time.Second
	}
	e.store = e.open()
	e.g = e.store.Guarantees()
	e.group = freshGroup()
	e.short = e.roundTTL(max(e.g.MinTTL, time.Second))
	e.long = e.roundTTL(min(e.g.MaxTTL, max(2*time.Minute, 4*e.g.MinTTL)))
	var cancel context.CancelFunc
	e.ctx, cancel = context.WithTimeout(t.Context(), 10*e.lapse(e.short))
	t.Cleanup(cancel)
	return e
}

// Context ends when a check has taken longer than any may, so that none waits for good.
func (e *env) Context() context.Context { return e.ctx }

// open returns another handle, which is closed after the check.
func (e *env) open() baton.Store {
	e.Helper()
	s := e.back.Open()
	if s == nil {
		e.Fatalf("Open returned no store")
	}
	e.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, baton.ErrUnavailable) {
			e.Errorf("close the store: %v", err)
		}
	})
	return s
}

func (e *env) roundTTL(d time.Duration) time.Duration {
	if step := e.g.TTLStep; step > 0 {
		up := (d + step - 1) / step * step
		if up > e.g.MaxTTL {
			up -= step
		}
		return up
	}
	return d
}

// lapse bounds how long it takes until a lease of this TTL is over and others may take the group.
func (e *env) lapse(ttl time.Duration) time.Duration {
	return ttl + e.g.ExpiryLag + e.g.TTLStep + e.patience
}

func freshGroup() string { return "storetest-" + randomHex(8) }

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails, by its contract
	return hex.EncodeToString(b)
}

// candidate is a new instance of a node.
func candidate(node string) baton.Candidate {
	return baton.Candidate{NodeID: node, InstanceID: randomHex(16)}
}

// within bounds one wait.
func (e *env) within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.Context(), d)
}

// pause lets d pass.
func (e *env) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.Context().Done():
	}
}

// until polls until ok, and fails the check after limit.
func (e *env) until(limit time.Duration, what string, ok func() bool) {
	e.Helper()
	step := min(max(limit/2000, 5*time.Millisecond), 100*time.Millisecond)
	for start := time.Now(); !ok(); e.pause(step) {
		if time.Since(start) > limit || e.Context().Err() != nil {
			e.Fatalf("after %v still not: %s", limit, what)
		}
	}
}

// undisturbed runs try in a fresh group until it says that its premises held:
// that this process was not kept from running while a turn or a lease ran out.
func (e *env) undisturbed(try func() bool) {
	e.Helper()
	const (
		tries = 5
		limit = 3 * time.Minute
	)
	e.odd = false
	start, tried := time.Now(), 0
	for tried < tries || time.Since(start) < limit {
		e.group = freshGroup()
		if try() {
			return
		}
		if tried++; e.Context().Err() != nil {
			break
		}
		e.Logf("this process may have been held up; once more")
		e.pause(e.short / 10)
	}
	e.Fatalf("held up %d times in a row: nothing can be said", tried)
}

// unlikely is for what a try saw of the order of turns, which a store promises to one that is not held
// up. The clock here shows when this process was, not when the store was: it is an error when the next try sees it, too.
// What must never be, such as two holders, is an error at once and not for here.
func (e *env) unlikely(format string, args ...any) (undisturbed bool) {
	e.Helper()
	if e.odd {
		e.Fatalf("twice in a row: "+format, args...)
	}
	e.odd = true
	e.Logf(format, args...)
	return false
}

// grant acquires the group, which must be vacant.
func (e *env) grant(s baton.Store, c baton.Candidate, ttl time.Duration) baton.Lease {
	e.Helper()
	ctx, cancel := e.within(e.patience)
	defer cancel()
	l, err := s.Acquire(ctx, e.group, c, ttl)
	if err != nil {
		e.Fatalf("acquire the vacant group for %s: %v", c.NodeID, err)
	}
	e.checkHolder("the granted lease", l, c)
	if l.Term == 0 || l.Term > baton.MaxTerm {
		e.Fatalf("granted term %d: want 1 to %d", l.Term, baton.MaxTerm)
	}
	if l.TTL < ttl || l.TTL > ttl+e.g.TTLStep {
		e.Errorf("granted a TTL of %v: want the %v that was asked for, rounded up to %v", l.TTL, ttl, e.g.TTLStep)
	}
	if l.Remaining < 0 || l.Remaining > l.TTL {
		e.Errorf("granted %v remaining: want 0 to the TTL, %v", l.Remaining, l.TTL)
	}
	if l.Ending != nil {
		e.Errorf("the lease is ending as it is granted: %+v", *l.Ending)
	}
	return l
}

func (e *env) checkHolder(what string, l baton.Lease, c baton.Candidate) {
	e.Helper()
	if l.Group != e.group || !l.HeldBy(c) {
		e.Fatalf("%s is %s, held by %s (%s): want %s, held by %s (%s)",
			what, l.Group, l.NodeID, l.InstanceID, e.group, c.NodeID, c.InstanceID)
	}
	if !maps.Equal(l.Metadata, c.Metadata) {
		e.Fatalf("%s has metadata %v: want %v", what, l.Metadata, c.Metadata)
	}
}

func (e *env) get(s baton.Store) baton.Lease {
	e.Helper()
	ctx, cancel := e.within(e.patience)
	defer cancel()
	l, err := s.Get(ctx, e.group)
	if err != nil {
		e.Fatalf("get: %v", err)
	}
	if l.Group != e.group {
		e.Fatalf("get answered for group %q: want %q", l.Group, e.group)
	}
	return l
}

// checkHeld reads the group and wants this leadership to stand.
func (e *env) checkHeld(s baton.Store, c baton.Candidate, term baton.Term) baton.Lease {
	e.Helper()
	l := e.get(s)
	e.checkHolder("what get reads", l, c)
	if l.Term != term {
		e.Fatalf("get reads term %d: want %d", l.Term, term)
	}
	return l
}

// checkVacant reads the group and wants nobody to lead, after this last term.
func (e *env) checkVacant(s baton.Store, last baton.Term) {
	e.Helper()
	l := e.get(s)
	if l.Held() {
		e.Fatalf("get reads a holder, %s in term %d: want a vacant group", l.NodeID, l.Term)
	}
	if l.Term != last {
		e.Errorf("the vacant group reports term %d: want its last, %d", l.Term, last)
	}
	if l.InstanceID != "" || l.Remaining != 0 || l.Ending != nil {
		e.Errorf("the vacant group has traces of a holder: %+v", l)
	}
}

func (e *env) release(s baton.Store, id baton.LeaseID) {
	e.Helper()
	ctx, cancel := e.within(e.patience)
	defer cancel()
	if err := s.Release(ctx, id); err != nil {
		e.Fatalf("release %s: %v", id, err)
	}
}

func (e *env) renew(s baton.Store, id baton.LeaseID, extend time.Duration) baton.Lease {
	e.Helper()
	ctx, cancel := e.within(e.patience)
	defer cancel()
	l, err := s.Renew(ctx, id, extend)
	if err != nil {
		e.Fatalf("renew %s: %v", id, err)
	}
	if l.ID() != id {
		e.Fatalf("the renewal answers for %s: want %s", l.ID(), id)
	}
	return l
}

// waitOver waits until the lease of this term is past its deadline: recorded as ended, or
// held with nothing left for longer than the store may lag.
func (e *env) waitOver(s baton.Store, l baton.Lease) {
	e.Helper()
	var empty time.Time
	e.until(e.lapse(l.TTL), "the lease to run out", func() bool {
		asked := time.Now()
		now := e.get(s)
		if !now.Held() || now.Term != l.Term {
			return true
		}
		if now.Remaining > 0 {
			empty = time.Time{}
			return false
		}
		if empty.IsZero() {
			empty = time.Now()
		}
		return asked.Sub(empty) > e.g.ExpiryLag+e.g.TTLStep
	})
}

// wantHeld checks the answer to a candidate that lost to this lease.
func (e *env) wantHeld(err error, by baton.Lease) {
	e.Helper()
	var held *baton.HeldError
	if !errors.Is(err, baton.ErrHeld) || !errors.As(err, &held) {
		e.Fatalf("acquire of a held group: got %v, want *HeldError", err)
	}
	if held.Lease.ID() != by.ID() {
		e.Errorf("the loser is told of %s: want %s", held.Lease.ID(), by.ID())
	}
	if held.RetryAfter < 0 {
		e.Errorf("the loser is told to retry after %v", held.RetryAfter)
	}
}

// wantNotLeader checks the answer to a holder whose leadership is over.
// current is who leads now, nil if nobody does.
func (e *env) wantNotLeader(what string, err error, current *baton.Lease) {
	e.Helper()
	var not *baton.NotLeaderError
	if !errors.Is(err, baton.ErrNotLeader) || !errors.As(err, &not) {
		e.Fatalf("%s: got %v, want *NotLeaderError", what, err)
	}
	switch {
	case current == nil:
		if not.Current != nil && not.Current.Held() {
			e.Errorf("%s: is told that %s leads: want nobody", what, not.Current.ID())
		}
	case not.Current == nil:
		e.Errorf("%s: is not told who leads: want %s", what, current.ID())
	case not.Current.NodeID != current.NodeID || not.Current.Term != current.Term:
		e.Errorf("%s: is told that %s leads: want %s", what, not.Current.ID(), current.ID())
	}
}

func (e *env) wantConflict(what string, err error, reason string) {
	e.Helper()
	var conflict *baton.ConflictError
	if !errors.Is(err, baton.ErrConflict) || !errors.As(err, &conflict) {
		e.Fatalf("%s: got %v, want *ConflictError (%s)", what, err, reason)
	}
	if conflict.Reason != reason {
		e.Errorf("%s: conflict %q: want %q", what, conflict.Reason, reason)
	}
}

func (e *env) wantKind(what string, err, kind error) {
	e.Helper()
	if !errors.Is(err, kind) {
		e.Errorf("%s: got %v, want %v", what, err, kind)
	}
}
