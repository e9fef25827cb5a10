package boottime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSystemClockMovesForward(t *testing.T) {
	last := System().Now()
	for range 1000 {
		now := System().Now()
		if now < last {
			t.Fatalf("the clock went back from %v to %v", last, now)
		}
		last = now
	}
}

// On a machine that was not suspended meanwhile both clocks count the same.
func TestClocksAgreeWhileAwake(t *testing.T) {
	fired := make(chan struct{})
	System().AfterFunc(20*time.Millisecond, func() { close(fired) })
	<-fired
	if d := Slept().Abs(); d > time.Minute {
		t.Fatalf("the clocks differ by %v", d)
	}
}

func TestAfterFuncStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := Monotonic()
		start := clock.Now()
		stop := clock.AfterFunc(time.Second, func() { t.Error("stopped, and called all the same") })
		if !stop() {
			t.Error("stop reports that it came too late")
		}
		time.Sleep(2 * time.Second)
		if d := clock.Now() - start; d != 2*time.Second {
			t.Errorf("%v passed, want 2s", d)
		}
	})
}

// Err tells the truth before anything has closed Done.
func TestContextErrLooksAtTheClock(t *testing.T) {
	over := errors.New("over")
	expired := false
	var cancel context.CancelCauseFunc
	ctx, cancel := NewContext(context.Background(), func() {
		if expired {
			cancel(over)
		}
	})
	defer cancel(nil)
	child, stop := context.WithCancel(ctx)
	defer stop()
	if err := ctx.Err(); err != nil {
		t.Fatal(err)
	}
	expired = true
	select {
	case <-ctx.Done():
		t.Fatal("done before anybody looked")
	default:
	}
	if err := ctx.Err(); !errors.Is(err, context.Canceled) {
		t.Fatalf("Err is %v", err)
	}
	<-child.Done()
	if cause := context.Cause(child); !errors.Is(cause, over) {
		t.Fatalf("the child's cause is %v", cause)
	}
}
