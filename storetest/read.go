package storetest

import (
	"fmt"
	"time"

	"baton"
)

var readCases = []Case{
	rule("Read/UnknownGroup", readUnknown),
	rule("Read/SeesWhatWasAcknowledged", readIsLinearizable),
	rule("Read/RemainingFalls", readRemainingFalls),
	rule("Read/ChangesNothing", readChangesNothing),
}

func readUnknown(e *env) {
	l := e.get(e.store)
	if l.Held() || l.InstanceID != "" || l.Remaining != 0 || l.Ending != nil {
		e.Fatalf("a group that nobody used reads %+v: want it vacant", l)
	}
	if first := e.grant(e.store, candidate("node-a"), e.long); first.Term <= l.Term {
		e.Errorf("the first term is %d: want above %d, which the unused group reported", first.Term, l.Term)
	}
}

// readIsLinearizable reads through one handle what was just acknowledged through another.
func readIsLinearizable(e *env) {
	handles := []baton.Store{e.store, e.open(), e.open()}
	for i := range 20 {
		writer, reader := handles[i%3], handles[(i+1+i/3)%3]
		c := candidate(fmt.Sprintf("node-%d", i))
		l := e.grant(writer, c, e.long)
		e.checkHeld(reader, c, l.Term)
		e.release(writer, l.ID())
		e.checkVacant(reader, l.Term)
	}
}

func readRemainingFalls(e *env) {
	a := candidate("node-a")
	l := e.grant(e.store, a, e.long)
	last := l.Remaining
	for range 5 {
		now := e.checkHeld(e.store, a, l.Term)
		// A store that counts in steps rounds what is left.
		if now.Remaining > last+e.g.TTLStep {
			e.Errorf("%v left, and before that %v, without a renewal", now.Remaining, last)
		}
		last = now.Remaining
	}
	e.until(e.patience, "the remaining time falling", func() bool {
		return e.checkHeld(e.store, a, l.Term).Remaining < l.Remaining
	})
}

// readChangesNothing reads a lease until it is over: nobody lives longer because somebody looks.
func readChangesNothing(e *env) {
	start := time.Now()
	l := e.grant(e.store, candidate("node-a"), e.short)
	e.waitOver(e.store, l)
	e.Logf("a lease of %v was over %v after it was asked for", l.TTL, time.Since(start))
	e.takeOver(e.open(), candidate("node-b"), e.long, e.lapse(l.TTL))
}
