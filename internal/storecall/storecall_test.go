package storecall_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/internal/leak"
	"baton/internal/storecall"
)

func TestMain(m *testing.M) { leak.Main(m) }

var (
	errLate   = errors.New("the server did not answer in time")
	errServer = errors.New("the server is on fire")
)

func calls() *storecall.Calls {
	return storecall.New(5*time.Second, errLate, func(op string, err error) error {
		return &baton.UnavailableError{Op: op, Err: err}
	})
}

func TestWhatEndsACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := calls()
		caller, cancel := context.WithCancel(t.Context())
		inTime, done := c.Begin(t.Context())
		defer done()
		waiting, left := c.BeginWait(t.Context())
		defer left()
		given, over := c.BeginWait(caller)
		defer over()
		cancel()
		if given.Err() == nil {
			t.Error("a call goes on without its caller")
		}
		start := time.Now()
		<-inTime.Done()
		if took := time.Since(start); took != 5*time.Second || context.Cause(inTime) != errLate {
			t.Errorf("a call ended after %v: %v", took, context.Cause(inTime))
		}
		if err := storecall.Pause(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		if waiting.Err() != nil {
			t.Errorf("a call that waits by its nature ended: %v", waiting.Err())
		}
		c.Close()
		synctest.Wait()
		if waiting.Err() == nil {
			t.Error("a call outlives Close")
		}
		late, done := c.Begin(t.Context())
		defer done()
		if late.Err() == nil {
			t.Error("a call that came after Close has time to ask the server")
		}
	})
}

func TestWhatACallerIsTold(t *testing.T) {
	c := calls()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	answer := &baton.NotLeaderError{}
	if err := c.Fail(gone, "get", answer); err != answer {
		t.Errorf("an answer of the server became %v", err)
	}
	if err := c.Fail(t.Context(), "get", errServer); !errors.Is(err, baton.ErrUnavailable) || !errors.Is(err, errServer) {
		t.Errorf("a failure: %v", err)
	}
	if err := c.Fail(gone, "get", errServer); !errors.Is(err, context.Canceled) || errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("a caller that went away: %v", err)
	}
	c.Close()
	if err := c.Fail(gone, "get", errServer); !errors.Is(err, baton.ErrUnavailable) || errors.Is(err, errServer) {
		t.Errorf("a store that is closed: %v", err)
	}
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := calls()
		defer c.Close()
		n := 0
		err := c.Until(t.Context(), "end", func(context.Context) (bool, error) { n++; return n == 3, nil })
		if err != nil || n != 3 {
			t.Errorf("after %d attempts: %v", n, err)
		}
		err = c.Until(t.Context(), "end", func(context.Context) (bool, error) { return false, errServer })
		if !errors.Is(err, errServer) {
			t.Errorf("an attempt that failed: %v", err)
		}
		err = c.Until(t.Context(), "end", func(ctx context.Context) (bool, error) {
			return false, storecall.Pause(t.Context(), time.Second)
		})
		if !errors.Is(err, storecall.ErrBusy) {
			t.Errorf("when others are faster all the time: %v", err)
		}
	})
}

func TestWatchEndsWithItsReaderOrAnError(t *testing.T) {
	c := calls()
	defer c.Close()
	var left error
	events := c.Watch(t.Context(), "g", func(_ context.Context, tell func(baton.Event) error) error {
		for left == nil {
			left = tell(baton.Event{Group: "g"})
		}
		return left
	})
	for _, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if left == nil {
		t.Error("who tells does not learn that the reader left")
	}
	var last error
	for _, err := range c.Watch(t.Context(), "g", func(context.Context, func(baton.Event) error) error { return errServer }) {
		last = err
	}
	if !errors.Is(last, errServer) {
		t.Errorf("the watch ended with %v", last)
	}
	for _, err := range c.Watch(t.Context(), "", nil) {
		last = err
	}
	if !errors.Is(last, baton.ErrInvalidArgument) {
		t.Errorf("a watch of no group: %v", last)
	}
}

func TestCloseWaitsForChores(t *testing.T) {
	c := calls()
	ended := false
	c.Chore(func(ctx context.Context) { <-ctx.Done(); ended = true })
	if first := c.Close(); !first || !ended {
		t.Errorf("closed: first %v, the chore has ended: %v", first, ended)
	}
	c.Chore(func(context.Context) { t.Error("a chore of a store that is closed") })
	if c.Close() {
		t.Error("the second Close is the first")
	}
}

// The connection that the chore reads from is cut between End and Wait.
func TestEndDoesNotWaitForChores(t *testing.T) {
	c := calls()
	cut, ended := make(chan struct{}), false
	if err := c.Go(func() { <-cut; ended = true }); err != nil {
		t.Fatal(err)
	}
	if !c.End() || c.End() {
		t.Error("the first End is not the first, or the second is")
	}
	if err := c.Go(func() { t.Error("it runs after End") }); err == nil {
		t.Error("what comes after End is not refused")
	}
	close(cut)
	c.Wait()
	if !ended {
		t.Error("Wait returned before the chore")
	}
}
