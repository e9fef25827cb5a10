package storetest

import (
	"context"
	"errors"

	"baton"
)

var contextCases = []Case{
	rule("Context/EndedBefore", contextEndedBefore),
	rule("Context/EndsAWatch", contextEndsWatch),
	rule("Context/EndsAWait", contextEndsWait),
}

// contextEndedBefore calls everything with a context that has ended. The outcome is unknown then, but the call returns.
func contextEndedBefore(e *env) {
	ctx, cancel := context.WithCancel(e.Context())
	cancel()
	l := e.grant(e.store, candidate("node-a"), e.long)
	calls := map[string]func() error{
		"acquire": func() error { _, err := e.store.Acquire(ctx, freshGroup(), candidate("node-b"), e.short); return err },
		"renew":   func() error { _, err := e.store.Renew(ctx, l.ID(), e.long); return err },
		"get":     func() error { _, err := e.store.Get(ctx, e.group); return err },
		"watch":   func() error { return firstError(e.store.Watch(ctx, e.group, "")) },
		"release": func() error {
			return e.store.Release(ctx, baton.LeaseID{Group: freshGroup(), NodeID: "n", InstanceID: "i", Term: 1})
		},
	}
	if line, ok := e.line(); ok {
		calls["await"] = func() error { return line.Await(ctx, e.group, candidate("node-b")) }
	}
	for name, call := range calls {
		err := e.returns(name+" with an ended context", call)
		if err == nil || baton.IsAnswer(err) {
			e.Errorf("%s with an ended context: got %v, want the context's error", name, err)
		}
		if !errors.Is(err, context.Canceled) && !errors.Is(err, baton.ErrUnavailable) {
			e.Errorf("%s with an ended context: got %v, want the context's error or ErrUnavailable", name, err)
		}
	}
}

// returns waits for call, for as long as the harness is patient.
func (e *env) returns(what string, call func() error) error {
	e.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	ctx, cancel := e.within(e.patience)
	defer cancel()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		e.Fatalf("%s: still not back after %v", what, e.patience)
		return nil
	}
}

func contextEndsWatch(e *env) {
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	err := e.returns("a watch whose context ends", func() error {
		var last error
		for _, err := range e.store.Watch(ctx, e.group, "") {
			if last != nil {
				return errors.New("the watch yields more after an error")
			}
			last = err
			cancel()
		}
		return last
	})
	if !errors.Is(err, context.Canceled) {
		e.Errorf("the last yield of a watch whose context ended: got %v, want the context's error", err)
	}
}

func contextEndsWait(e *env) {
	line, ok := e.line()
	if !ok {
		return
	}
	e.grant(e.store, candidate("node-a"), e.long)
	ctx, cancel := e.within(e.short / 10)
	defer cancel()
	err := e.returns("a wait whose context ends", func() error { return line.Await(ctx, e.group, candidate("node-b")) })
	if !errors.Is(err, context.DeadlineExceeded) {
		e.Errorf("await whose context ended: got %v, want the context's error", err)
	}
}
