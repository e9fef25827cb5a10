package history

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"baton"
)

// state is a group in the model. It is a value: porcupine compares states.
type state struct {
	term   baton.Term // the holder's, or the last
	holder string     // instance; empty when vacant
	ended  string     // the instance whose leadership ended last
	led    bool       // somebody ever led
	// until is the end of the promise to the holder. Before it, only the holder or an ending opens the group.
	until time.Duration
	// now is a moment that has passed: an expiry that the model let happen
	// could not have happened before it, and so neither could what follows.
	now time.Duration
}

// never is before every reading of a clock, some of which are negative.
const never time.Duration = math.MinInt64

func (s state) String() string {
	if s.holder == "" {
		return fmt.Sprintf("vacant after %d", s.term)
	}
	return fmt.Sprintf("%s in %d until %v", s.holder, s.term, s.until)
}

type model struct {
	ghosts bool
	slack  time.Duration
}

func (m model) porcupine() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{until: never, now: never} },
		Step: func(s, in, _ any) (bool, any) {
			next, ok := m.step(s.(state), in.(fact))
			return ok, next
		},
		DescribeOperation: func(in, _ any) string { return in.(fact).String() },
		DescribeState:     func(s any) string { return s.(state).String() },
	}
}

// step is the lease. Whether an expiry came before f follows from f itself, so
// there is one next state or none.
func (m model) step(s state, f fact) (state, bool) {
	if f.ret+m.slack < s.now {
		return s, false
	}
	switch f.what {
	case granted, landed:
		if s.isHeld(f.instance, f.term) {
			return s.promise(f), true
		}
		return m.grant(s, f)
	case renewed:
		return s.promise(f), s.isHeld(f.instance, f.term)
	case stands:
		return s, s.isHeld(f.instance, f.term)
	case released, cut:
		return s.vacate(), s.isHeld(f.instance, f.term)
	case lateEnd:
		if s.holder != "" && s.term == f.term {
			s = s.vacate()
		}
		return s, true
	case over:
		if s.contradicts(f) {
			return m.expire(s, f)
		}
		return s, true
	case vacant:
		return m.seeVacant(s, f)
	}
	return s, false
}

// contradicts reports whether the standing holder is the very one that f says is over. Under the
// holder's term another instance may have been named, or under an instance no term.
func (s state) contradicts(f fact) bool {
	return s.holder != "" && (f.term == s.term || f.term == 0) && (f.instance == s.holder || f.instance == "")
}

func (m model) grant(s state, f fact) (state, bool) {
	ok := true
	if s.holder != "" {
		s, ok = m.expire(s, f)
	}
	if !ok || f.term <= s.term || s.ended == f.instance && !m.ghosts {
		return s, false
	}
	s.holder, s.term, s.led, s.until = f.instance, f.term, true, never
	return s.promise(f), true
}

// expire ends the lease if its promise can have ended by the time f was answered.
func (m model) expire(s state, f fact) (state, bool) {
	if f.ret+m.slack < s.until {
		return s, false
	}
	s.now = max(s.now, s.until)
	return s.vacate(), true
}

func (m model) seeVacant(s state, f fact) (state, bool) {
	if s.holder != "" {
		var ok bool
		if s, ok = m.expire(s, f); !ok {
			return s, false
		}
	}
	// A group that nobody led reports a floor, which may rise; and grants may have passed unseen.
	jump := f.term > s.term && (!s.led || m.ghosts)
	if f.term != s.term && !jump {
		return s, false
	}
	s.term = f.term
	return s, true
}

func (s state) isHeld(instance string, term baton.Term) bool {
	return s.holder != "" && s.term == term && (instance == "" || s.holder == instance)
}

// promise counts from before the request was sent, as its holder does.
func (s state) promise(f fact) state {
	s.until = max(s.until, f.call+f.remaining)
	return s
}

func (s state) vacate() state {
	s.ended, s.holder, s.until = s.holder, "", never
	return s
}
