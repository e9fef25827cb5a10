package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A limited context is one with a deadline, to everybody who looks.
func TestLimited(t *testing.T) {
	limit := func(ctx context.Context) *limited {
		return &limited{Context: ctx, deadline: time.Now().Add(time.Second)}
	}
	synctest.Test(t, func(t *testing.T) {
		l := limit(t.Context())
		if at, ok := l.Deadline(); !ok || time.Until(at) != time.Second || l.Err() != nil {
			t.Errorf("%v, %v, %v", at, ok, l.Err())
		}
		time.Sleep(time.Second)
		if !errors.Is(l.Err(), context.DeadlineExceeded) {
			t.Errorf("nobody waited, and its time is over: %v", l.Err())
		}

		waited := limit(t.Context())
		derived, cancel := context.WithCancel(waited)
		defer cancel()
		<-derived.Done()
		if !errors.Is(waited.Err(), context.DeadlineExceeded) || !errors.Is(derived.Err(), context.DeadlineExceeded) {
			t.Errorf("%v, derived %v", waited.Err(), derived.Err())
		}

		parent, end := context.WithCancel(t.Context())
		ended := limit(parent)
		end()
		<-ended.Done()
		if !errors.Is(ended.Err(), context.Canceled) {
			t.Errorf("with its parent: %v", ended.Err())
		}

		released := limit(t.Context())
		released.end()
		<-released.Done()
		if !errors.Is(released.Err(), context.Canceled) {
			t.Errorf("released: %v", released.Err())
		}
		hurried, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		if at, _ := limit(hurried).Deadline(); time.Until(at) != time.Millisecond {
			t.Errorf("its parent's deadline is earlier: %v", at)
		}
	})
}
