package fence

import (
	"context"
	"errors"
	"time"

	"baton"
)

// Sequence writes to one resource in order, under one leadership. It allots the
// numbers, keeps one write in flight, and never uses a number twice: not even
// after a write of which nobody knows whether it landed.
//
// A resource has at most one Sequence per leadership. It is safe for
// concurrent use; writes wait for each other.
type Sequence struct {
	ledger   Ledger
	resource string
	token    baton.Token

	turn      chan struct{} // holds one value while nobody writes; guards what follows
	highest   int64         // no number up to here may be sent again
	unsettled bool          // a write up to highest may still land
}

// Adopt adopts the resource and returns the sequence that continues it.
func Adopt(ctx context.Context, ledger Ledger, resource string, t baton.Token) (*Sequence, error) {
	r, err := ledger.Adopt(ctx, resource, t)
	if err != nil {
		return nil, err
	}
	s := &Sequence{ledger: ledger, resource: resource, token: t, turn: make(chan struct{}, 1), highest: r.LastSeq}
	s.turn <- struct{}{}
	return s, nil
}

// Write is one ordered write.
type Write struct {
	// Send writes the content under the claim it is given, through the ledger.
	// It is called again, with a higher number, when an earlier call is known
	// not to have landed.
	Send func(ctx context.Context, c Claim) error
	// Landed reads whether the write that Send made under c is there. By then
	// nothing can change the answer, unless a ledger has forgotten. It is also
	// asked when Send was refused, after which a later leadership may have
	// written: where that could hide the write, it returns an error.
	// Resend, for content that may be there twice.
	Landed func(ctx context.Context, c Claim) (bool, error)
	// Count is how many numbers the write takes, 1 if zero. The claim carries the
	// last of them, and they are consecutive.
	Count int64
}

// Resend is a Write.Landed that does not look: the content is sent again, and a
// refusal is taken to be about the only copy.
func Resend(context.Context, Claim) (bool, error) { return false, nil }

const (
	firstBackoff = 2 * time.Millisecond
	maxBackoff   = time.Second
	// lookTime bounds the look whether a write that was refused has landed.
	lookTime = 5 * time.Second
)

// Do makes the write land exactly once, and returns the number under which it
// did. While the outcome is unknown it tries to find out, until ctx ends. Its errors:
//
//   - A refusal, or an *AbortedError: the write did not land. What was refused
//     may be a copy that a proxy sent, so Do looks before it says so, for up to
//     five seconds even if ctx has ended, as it does when the leadership is lost.
//   - *UnknownError: it may have. The next Do first makes sure that it will
//     not land any more if it has not.
func (s *Sequence) Do(ctx context.Context, w Write) (int64, error) {
	count := max(w.Count, 1)
	if w.Count < 0 || count > MaxSeq {
		return 0, &baton.InvalidArgumentError{Field: "count", Value: w.Count, Want: "a positive number"}
	}
	select {
	case <-s.turn:
	case <-ctx.Done():
		return 0, &AbortedError{Err: context.Cause(ctx)}
	}
	defer func() { s.turn <- struct{}{} }()

	if s.unsettled {
		if err := s.settle(ctx); err != nil {
			return 0, &AbortedError{Err: err}
		}
	}
	for backoff := firstBackoff; ; backoff = min(2*backoff, maxBackoff) {
		c, err := s.claim(count)
		if err != nil {
			return 0, err
		}
		s.unsettled = true // also if Send panics
		err = w.Send(ctx, c)
		var (
			repeat  *RepeatError
			aborted *AbortedError
		)
		switch {
		case err == nil:
			s.unsettled = false
			return c.seq, nil
		case errors.As(err, &repeat):
			// An earlier copy of the same request may have been let in. Up to
			// the ledger's number nothing lands any more.
			s.unsettled = false
			s.highest = max(s.highest, repeat.Held.LastSeq)
		case errors.As(err, &aborted), Refused(err) && errors.Is(err, baton.ErrInvalidArgument):
			s.unsettled = false
			return 0, err
		case Refused(err):
			return s.refused(ctx, w, c, err)
		default:
			if e := s.settle(ctx); e != nil {
				// A later leadership has the resource: that settles it, too.
				return 0, &UnknownError{Resource: s.resource, Offered: c, Settled: errors.Is(e, ErrStale), Err: errors.Join(err, e)}
			}
		}
		landed, e := w.Landed(ctx, c)
		if e != nil {
			return 0, &UnknownError{Resource: s.resource, Offered: c, Settled: true, Err: errors.Join(err, unmarked(e))}
		}
		if landed {
			return c.seq, nil
		}
		if e := pause(ctx, backoff); e != nil {
			return 0, &AbortedError{Err: errors.Join(err, e)}
		}
	}
}

// refused finds out whether the write landed of which a copy was refused.
func (s *Sequence) refused(ctx context.Context, w Write, c Claim, refusal error) (int64, error) {
	// After other refusals a copy may still be let in, if the resource is adopted again.
	stale := errors.Is(refusal, ErrStale)
	s.unsettled = !stale
	// The refusal may have ended the leadership, and ctx with it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
	defer cancel()
	landed, err := w.Landed(ctx, c)
	switch {
	case err != nil:
		return 0, &UnknownError{Resource: s.resource, Offered: c, Settled: stale, Err: errors.Join(refusal, unmarked(err))}
	case landed:
		return c.seq, nil
	}
	return 0, refusal
}

// settle admits an empty write above everything that was sent. Once that is in,
// nothing below it lands.
func (s *Sequence) settle(ctx context.Context) error {
	for backoff := firstBackoff; ; backoff = min(2*backoff, maxBackoff) {
		c, err := s.claim(1)
		if err != nil {
			return err
		}
		err = s.ledger.Advance(ctx, s.resource, c)
		var repeat *RepeatError
		switch {
		case err == nil:
		case errors.As(err, &repeat):
			s.highest = max(s.highest, repeat.Held.LastSeq)
		case Refused(err):
			return err
		default:
			if e := pause(ctx, backoff); e != nil {
				return errors.Join(unmarked(err), e)
			}
			continue
		}
		s.unsettled = false
		return nil
	}
}

// unmarked takes from err that it was aborted: what is true of another call
// must not be read as said of the write.
func unmarked(err error) error {
	var aborted *AbortedError
	if errors.As(err, &aborted) {
		return aborted.Err
	}
	return err
}

// claim takes the next numbers for good.
func (s *Sequence) claim(count int64) (Claim, error) {
	if s.highest > MaxSeq-count {
		return Claim{}, &baton.InvalidArgumentError{Field: "seq", Value: s.highest, Want: "numbers left below the last one"}
	}
	s.highest += count
	return Ordered(s.token, s.highest), nil
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
