package fencetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"baton/fence"
)

// pausedBeforeWrite is the classic: leader A looks at its lease, freezes, B is
// elected, adopts and writes, A wakes and writes.
func pausedBeforeWrite(ctx context.Context, t T, s Subject, _ Options) {
	a, b := token(5, "a"), token(6, "b")
	mustAdopt(ctx, t, s, a)
	mustAppend(ctx, t, s, fence.Ordered(a, 1), "a")

	mustAdopt(ctx, t, s, b)
	mustAppend(ctx, t, s, fence.Ordered(b, 2), "b")

	refused(ctx, t, s, fence.ErrStale, "write of the leader that slept", func() error {
		return s.Append(ctx, resource, fence.Ordered(a, 3), "a woke up", nil)
	})
	refused(ctx, t, s, fence.ErrStale, "unordered write of the leader that slept", func() error {
		return s.Append(ctx, resource, fence.Unordered(a), "a woke up", nil)
	})
	mustAppend(ctx, t, s, fence.Ordered(b, 3), "b goes on")
	checkLog(t, mustLog(ctx, t, s))
}

// pauseTime is how long a write stays between check and effect: long enough for others to get in where they can, and
// shorter than what ledgers wait before they cut a write off. If it were as long, either might come first.
const pauseTime = 300 * time.Millisecond

// pausedBetweenCheckAndEffect freezes A at the worst place. B's Adopt may wait
// for A's write or prevent it; what it may not do is return, and A's write land
// after that.
func pausedBetweenCheckAndEffect(ctx context.Context, t T, s Subject, _ Options) {
	for _, ordered := range []bool{false, true} {
		a, b := token(5, "a"), token(6, "b")
		claimA, claimB := fence.Unordered(a), fence.Unordered(b)
		if ordered {
			a, b = token(7, "a"), token(8, "b")
			claimA, claimB = fence.Ordered(a, 1), fence.Ordered(b, 2)
		}
		mustAdopt(ctx, t, s, a)

		wrote := make(chan struct{})
		var successor sync.WaitGroup
		errA := s.Append(ctx, resource, claimA, "a", func() {
			successor.Go(func() {
				defer close(wrote)
				if _, err := s.Adopt(ctx, resource, b); err != nil {
					t.Errorf("adopt while a write is under way: %v", err)
				}
				if err := s.Append(ctx, resource, claimB, "b", nil); err != nil {
					t.Errorf("write of the successor: %v", err)
				}
			})
			// A right ledger makes B wait here; one that lets B in shows its fault below.
			select {
			case <-wrote:
			case <-time.After(pauseTime):
			}
		})
		successor.Wait()
		if errors.Is(errA, fence.ErrRepeat) {
			t.Errorf("write of the leader that paused: got %v, want success or a failure of another kind", errA)
		}
		refused(ctx, t, s, fence.ErrStale, "write after the pause", func() error {
			return s.Append(ctx, resource, fence.Unordered(a), "a again", nil)
		})
		log := mustLog(ctx, t, s)
		checkLog(t, log)
		landed := false
		for _, e := range log {
			landed = landed || e.Claim == claimA
		}
		if errA == nil && !landed {
			t.Errorf("a write that was acknowledged is not in the log")
		}
	}
}

// oldWriteAfterRead is the subtler one: B reads the last number, A's old write
// lands, and B continues from what it read.
func oldWriteAfterRead(ctx context.Context, t T, s Subject, _ Options) {
	a, b := token(5, "a"), token(6, "b")
	mustAdopt(ctx, t, s, a)
	mustAppend(ctx, t, s, fence.Ordered(a, 1), "a")

	// Without Adopt: what B read is overtaken, and its next number is A's. The
	// ledger cannot know what B read; it can refuse to let B write on that basis.
	read := mustRead(ctx, t, s).LastSeq
	mustAppend(ctx, t, s, fence.Ordered(a, 2), "a's old write lands")
	if next := read + 1; next != 2 {
		t.Errorf("the hazard did not come about: B would write %d", next)
	}
	refused(ctx, t, s, fence.ErrNotAdopted, "B writes without having adopted", func() error {
		return s.Append(ctx, resource, fence.Unordered(b), "b repeats number 2", nil)
	})

	// With Adopt: nothing of A's can land between B's read and its write.
	read = mustAdopt(ctx, t, s, b).LastSeq
	refused(ctx, t, s, fence.ErrStale, "A's old write after B adopted", func() error {
		return s.Append(ctx, resource, fence.Ordered(a, read+1), "a", nil)
	})
	if read != 2 {
		t.Errorf("adopt: got last number %d, want 2", read)
	}
	mustAppend(ctx, t, s, fence.Ordered(b, read+1), "b")
	checkLog(t, mustLog(ctx, t, s))
}

// sameTermTogether: writers under one term do not wait for each other.
func sameTermTogether(ctx context.Context, t T, s Subject, o Options) {
	if o.OneWriter {
		t.Logf("declared: one writer at a time")
		return
	}
	a := token(5, "a")
	mustAdopt(ctx, t, s, a)
	inside := make(chan struct{}, 2)
	both := make(chan struct{})
	var writers sync.WaitGroup
	for range 2 {
		writers.Go(func() {
			err := s.Append(ctx, resource, fence.Unordered(a), "a", func() {
				inside <- struct{}{}
				select {
				case <-both:
				case <-time.After(20 * time.Second):
					t.Errorf("two writers of one term were not let in together")
				}
			})
			if err != nil {
				t.Errorf("append: %v", err)
			}
		})
	}
	for range 2 {
		select {
		case <-inside:
		case <-ctx.Done():
			t.Fatalf("waiting for the writers: %v", ctx.Err())
		}
	}
	close(both)
	writers.Wait()
	if n := len(mustLog(ctx, t, s)); n != 2 {
		t.Errorf("the log has %d entries, want 2", n)
	}
}
