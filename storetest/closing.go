package storetest

import "baton"

var closeCases = []Case{
	rule("Close/RefusesWhatComesLater", closeRefuses),
	rule("Close/EndsWatches", closeEndsWatches),
	rule("Close/EndsWaits", closeEndsWaits),
	rule("Close/LeavesLeasesAlone", closeLeavesLeases),
}

func closeRefuses(e *env) {
	s := e.open()
	l := e.grant(s, candidate("node-a"), e.long)
	if err := s.Close(); err != nil {
		e.Fatalf("close: %v", err)
	}
	_, err := s.Acquire(e.Context(), freshGroup(), candidate("node-b"), e.long)
	e.wantKind("acquire after close", err, baton.ErrUnavailable)
	_, err = s.Renew(e.Context(), l.ID(), e.long)
	e.wantKind("renew after close", err, baton.ErrUnavailable)
	e.wantKind("release after close", s.Release(e.Context(), l.ID()), baton.ErrUnavailable)
	_, err = s.Get(e.Context(), e.group)
	e.wantKind("get after close", err, baton.ErrUnavailable)
	err = e.returns("watch after close", func() error { return firstError(s.Watch(e.Context(), e.group, "")) })
	e.wantKind("watch after close", err, baton.ErrUnavailable)
	if line, ok := s.(baton.Line); ok {
		e.wantKind("await after close", e.returns("await after close", func() error {
			return line.Await(e.Context(), e.group, candidate("node-b"))
		}), baton.ErrUnavailable)
	}
}

func closeEndsWatches(e *env) {
	s := e.open()
	w := e.watch(s, "")
	w.next()
	if err := e.returns("close with a watch open", s.Close); err != nil {
		e.Fatalf("close: %v", err)
	}
	e.wantKind("the last yield of a watch on a store that was closed", w.end(), baton.ErrUnavailable)
}

func closeEndsWaits(e *env) {
	s := e.open()
	line, ok := s.(baton.Line)
	if !e.has("Line", ok) {
		return
	}
	e.grant(s, candidate("node-a"), e.long)
	waited := make(chan error, 1)
	go func() { waited <- line.Await(e.Context(), e.group, candidate("node-b")) }()
	e.pause(e.short / 10) // so that it most likely waits by now; both orders must be right
	if err := s.Close(); err != nil {
		e.Fatalf("close: %v", err)
	}
	err := e.returns("a wait on a store that is closed", func() error { return <-waited })
	e.wantKind("a wait on a store that was closed", err, baton.ErrUnavailable)
}

// closeLeavesLeases closes the handle of a holder: its lease stands, as if the process had died.
func closeLeavesLeases(e *env) {
	s := e.open()
	a := candidate("node-a")
	l := e.grant(s, a, e.long)
	if s == e.store {
		e.Logf("the harness has one handle only: what is left after its close cannot be read")
		return
	}
	if err := s.Close(); err != nil {
		e.Fatalf("close: %v", err)
	}
	e.checkHeld(e.store, a, l.Term)
	_, err := e.store.Acquire(e.Context(), e.group, candidate("node-b"), e.long)
	e.wantHeld(err, l)
	e.renew(e.store, l.ID(), e.long)
	e.release(e.store, l.ID())
}
