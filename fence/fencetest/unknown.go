package fencetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"baton"
	"baton/fence"
)

var errLost = errors.New("connection lost")

// flaky loses answers of Advance, after or before it took effect.
type flaky struct {
	Subject
	rnd *rand.Rand
}

func (f *flaky) Advance(ctx context.Context, resource string, c fence.Claim) error {
	switch f.rnd.IntN(5) {
	case 0:
		return errLost
	case 1:
		if err := f.Subject.Advance(ctx, resource, c); err != nil {
			return err
		}
		return errLost
	default:
		return f.Subject.Advance(ctx, resource, c)
	}
}

// landed looks for the claim in the log.
func landed(s Subject) func(ctx context.Context, c fence.Claim) (bool, error) {
	return func(ctx context.Context, c fence.Claim) (bool, error) {
		log, err := s.Log(ctx, resource)
		return slices.ContainsFunc(log, func(e Entry) bool { return e.Claim == c }), err
	}
}

// unknownOutcome loses requests, answers, or both, at random: every content
// lands once, no number twice, and the leadership goes on.
func unknownOutcome(ctx context.Context, t T, s Subject, _ Options) {
	l, end := lead(token(5, "a"))
	defer end()
	leaderCtx, cancel := join(ctx, l)
	defer cancel()
	rnd := rand.New(rand.NewPCG(1, 2))
	seq, err := fence.Adopt(leaderCtx, &flaky{Subject: s, rnd: rnd}, resource, l.Token())
	if err != nil {
		t.Fatalf("adopt: %v", err)
	}
	const writes = 40
	numbers := make(map[int64]string)
	sent := make(map[int64]bool)
	for i := range writes {
		value := fmt.Sprintf("content %d", i)
		n, err := seq.Do(leaderCtx, fence.Write{
			Landed: landed(s),
			Send: func(ctx context.Context, c fence.Claim) error {
				number, _ := c.Seq()
				if sent[number] {
					t.Errorf("number %d was sent twice", number)
				}
				sent[number] = true
				switch rnd.IntN(4) {
				case 0: // the request is lost
					return errLost
				case 1: // the answer is lost
					if err := s.Append(ctx, resource, c, value, nil); err != nil {
						return err
					}
					return errLost
				case 2: // the answer is lost, and a proxy sends the request again
					if err := s.Append(ctx, resource, c, value, nil); err != nil {
						return err
					}
					return s.Append(ctx, resource, c, value, nil)
				default:
					return s.Append(ctx, resource, c, value, nil)
				}
			},
		})
		if err != nil {
			t.Fatalf("%s: %v", value, err)
		}
		if other, used := numbers[n]; used {
			t.Errorf("%s got number %d, which %s has", value, n, other)
		}
		numbers[n] = value
	}
	if !l.Valid() {
		t.Errorf("the leadership ended over its own repeats: %v", l.Cause())
	}
	log := mustLog(ctx, t, s)
	checkLog(t, log)
	if len(log) != writes {
		t.Errorf("the log has %d entries, want each of %d contents once", len(log), writes)
	}
	for i, e := range log {
		if want := fmt.Sprintf("content %d", i); e.Value != want {
			t.Errorf("entry %d is %q, want %q", i, e.Value, want)
			break
		}
		if number, _ := e.Claim.Seq(); numbers[number] != e.Value {
			t.Errorf("%s has number %d in the log, but was told another", e.Value, number)
		}
	}
}

// delayedWrite lets a write arrive after its sender gave up on it and sent the
// content again.
func delayedWrite(ctx context.Context, t T, s Subject, _ Options) {
	l, end := lead(token(5, "a"))
	defer end()
	leaderCtx, cancel := join(ctx, l)
	defer cancel()
	seq, err := fence.Adopt(leaderCtx, s, resource, l.Token())
	if err != nil {
		t.Fatalf("adopt: %v", err)
	}
	var (
		network sync.WaitGroup
		deliver = make(chan struct{})
		first   = true
		late    error
	)
	n, err := seq.Do(leaderCtx, fence.Write{
		Landed: landed(s),
		Send: func(ctx context.Context, c fence.Claim) error {
			if first {
				first = false
				network.Go(func() {
					<-deliver
					late = s.Append(leaderCtx, resource, c, "content", nil)
				})
				return errLost
			}
			return s.Append(ctx, resource, c, "content", nil)
		},
	})
	close(deliver)
	network.Wait()
	if err != nil {
		t.Fatalf("write: %v", err)
	}
	if !errors.Is(late, fence.ErrRepeat) {
		t.Errorf("the delayed copy: got %v, want it refused as a repeat", late)
	}
	if !l.Valid() {
		t.Errorf("the leadership ended over its own delayed write: %v", l.Cause())
	}
	log := mustLog(ctx, t, s)
	if len(log) != 1 || log[0].Claim != fence.Ordered(l.Token(), n) {
		t.Errorf("the log is %v, want the content once, under number %d", log, n)
	}
}

// join returns the leadership's context, bounded by ctx.
func join(ctx context.Context, l *baton.Leadership) (context.Context, context.CancelFunc) {
	joined, cancel := context.WithCancelCause(l.Context())
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return joined, func() { stop(); cancel(nil) }
}
