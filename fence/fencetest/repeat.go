package fencetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"baton"
	"baton/fence"
)

// repeatedInside: a proxy sends a write again while the first copy is between
// check and effect. It is not let in twice, and what the second copy is told is final.
func repeatedInside(ctx context.Context, t T, s Subject, _ Options) {
	a := token(5, "a")
	mustAdopt(ctx, t, s, a)
	c := fence.Ordered(a, 1)
	answerInside(ctx, t, s, c, func() error { return s.Append(ctx, resource, c, "content", nil) })
	if log := mustLog(ctx, t, s); len(log) > 1 {
		t.Errorf("the log is %v, want the content once", log)
	}
}

// repeatedInsideThePast is the same for a leadership whose successor waits, and
// for the empty write by which a leader settles what became of the first.
func repeatedInsideThePast(ctx context.Context, t T, s Subject, _ Options) {
	for i, again := range []func(c fence.Claim) error{
		func(c fence.Claim) error { return s.Append(ctx, resource, c, "content", nil) },
		func(c fence.Claim) error {
			seq, _ := c.Seq()
			return s.Advance(ctx, resource, fence.Ordered(c.Token(), seq+1))
		},
	} {
		a, b := token(baton.Term(2*i+1), "a"), token(baton.Term(2*i+2), "b")
		c := fence.Ordered(a, mustAdopt(ctx, t, s, a).LastSeq+1)
		var successor sync.WaitGroup
		answerInside(ctx, t, s, c, func() error {
			successor.Go(func() {
				if _, err := s.Adopt(ctx, resource, b); err != nil {
					t.Errorf("adopt while a write is under way: %v", err)
				}
			})
			awaitSight(ctx, s, b)
			return again(c)
		})
		successor.Wait()
	}
}

// awaitSight waits until the ledger shows tok, for a moment: not all show a
// leadership that still has to wait.
func awaitSight(ctx context.Context, s Subject, tok baton.Token) {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	for {
		if r, err := s.Read(ctx, resource); err == nil && r.Token() == tok {
			return
		}
		if pause(ctx) != nil {
			return
		}
	}
}

// answerInside asks while a write under c is between check and effect. Whoever
// was answered and then looks whether that write landed must not be overtaken by it.
func answerInside(ctx context.Context, t T, s Subject, c fence.Claim, ask func() error) {
	isThere := landed(s)
	var (
		asking   sync.WaitGroup
		answered = make(chan struct{})
		answer   error
		seen     bool
	)
	first := s.Append(ctx, resource, c, "content", func() {
		asking.Go(func() {
			defer close(answered)
			answer = ask()
			var err error
			for seen, err = isThere(ctx, c); err != nil; seen, err = isThere(ctx, c) {
				t.Logf("read the log: %v", err) // a successor may have cut the connection
				if pause(ctx) != nil {
					t.Errorf("read the log: %v", err)
					return
				}
			}
		})
		// A right ledger lets nobody be answered here; one that does shows its fault below.
		select {
		case <-answered:
		case <-time.After(pauseTime):
		}
	})
	asking.Wait()
	log := mustLog(ctx, t, s)
	checkLog(t, log)
	is := slices.ContainsFunc(log, func(e Entry) bool { return e.Claim == c })
	if told := answer == nil || fence.Refused(answer); told && seen != is {
		t.Errorf("answered %v: the write %v was there then: %v, is there now: %v", answer, c, seen, is)
	}
	if first == nil && !is {
		t.Errorf("a write that was acknowledged is not in the log")
	}
}
