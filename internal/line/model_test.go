package line

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// model is the line as one would explain it to somebody: a list, walked from
// the front, in steps of a tick.
type model struct {
	now       time.Duration
	vacant    bool
	line      []*standing
	turn      *standing
	turnUntil time.Duration
	foretold  bool // vacant, but not yet
	successor string
	until     time.Duration // of the wait for the successor
	returned  []string      // what Awaits returned in this step: "a called", "a replaced"
}

type standing struct {
	node    string
	waiting bool
	seen    time.Duration
}

const tick = 100 * time.Millisecond

func (m *model) find(node string) *standing {
	for _, s := range m.line {
		if s.node == node {
			return s
		}
	}
	return nil
}

func (m *model) remove(s *standing) {
	m.line = slices.DeleteFunc(m.line, func(o *standing) bool { return o == s })
	if m.turn == s {
		m.turn = nil
	}
}

func (m *model) give(s *standing) {
	m.turn, m.turnUntil, m.successor = s, m.now+TurnKept, ""
	if s.waiting {
		s.waiting, s.seen = false, m.now
		m.returned = append(m.returned, s.node+" called")
	}
}

func (m *model) call() {
	if m.vacant && m.turn == nil && m.successor == "" && len(m.line) > 0 {
		m.give(m.line[0])
	}
}

func (m *model) await(node string, taken map[string]bool) {
	s := m.find(node)
	if s == nil {
		s = &standing{node: node}
		m.line = append(m.line, s)
	}
	if s.waiting {
		m.returned = append(m.returned, node+" replaced")
	}
	s.waiting = true
	switch {
	case m.turn == s:
		s.waiting, s.seen = false, m.now
		m.returned = append(m.returned, node+" called")
		if !taken[node] {
			m.turnUntil = m.now + TurnKept
		}
	case m.vacant && m.turn == nil && m.successor == node:
		m.give(s)
	}
	m.call()
}

func (m *model) cancel(node string) {
	if s := m.find(node); s != nil && s.waiting {
		s.waiting, s.seen = false, m.now
		m.returned = append(m.returned, node+" cancelled")
	}
}

func (m *model) foretell() {
	if !m.vacant && len(m.line) > 0 {
		m.vacant, m.foretold = true, true
		m.call()
	}
}

func (m *model) open(successor string, wait time.Duration) {
	if m.foretold {
		m.foretold, m.turnUntil = false, m.now+TurnKept
	}
	if m.vacant && (m.turn != nil || m.successor != "") {
		return
	}
	m.vacant = true
	if s := m.find(successor); s != nil {
		m.give(s)
	} else if successor != "" && wait > 0 {
		m.successor, m.until = successor, m.now+wait
	}
	m.call()
}

func (m *model) granted(node string) {
	m.shut()
	if s := m.find(node); s != nil {
		if s.waiting {
			m.returned = append(m.returned, node+" called")
		}
		m.remove(s)
	}
}

func (m *model) shut() { m.vacant, m.foretold, m.turn, m.successor = false, false, nil, "" }

func (m *model) tick() {
	m.now += tick
	if m.turn != nil && m.turnUntil <= m.now && !m.foretold {
		m.remove(m.turn)
	}
	if m.until <= m.now {
		m.successor = ""
	}
	for _, s := range slices.Clone(m.line) {
		if !s.waiting && s.seen+PlaceKept <= m.now {
			m.remove(s)
		}
	}
	if m.foretold && len(m.line) == 0 {
		m.shut() // it is forgotten, and the owner says that the group is held
	}
	m.call()
}

func (m *model) String() string {
	var b strings.Builder
	for _, s := range m.line {
		b.WriteString(s.node)
		if s.waiting {
			b.WriteString("+")
		}
		if m.turn == s {
			b.WriteString("!")
		}
		b.WriteString(" ")
	}
	return b.String() + m.successor
}

// step is one thing that happens.
type step struct {
	Do    string
	Node  string
	Ticks int
}

var steps = rapid.Custom(func(t *rapid.T) step {
	return step{
		Do:    rapid.SampledFrom([]string{"await", "await", "await", "cancel", "open", "transfer", "transfer or wait", "foretell", "foretell", "shut", "grant", "time", "time"}).Draw(t, "do"),
		Node:  rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "node"),
		Ticks: rapid.SampledFrom([]int{1, 1, 3, 5, 9, 10, 11, 49, 50, 60}).Draw(t, "ticks"),
	}
})

func TestLineBehavesAsItsModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		vacant := rapid.Bool().Draw(rt, "vacant at first")
		script := rapid.SliceOfN(steps, 1, 60).Draw(rt, "script")
		var failure error
		synctest.Test(t, func(t *testing.T) { failure = follow(t, vacant, script) })
		if failure != nil {
			rt.Fatal(failure)
		}
	})
}

// follow takes line and model through a script and compares them after each step.
func follow(t *testing.T, vacant bool, script []step) error {
	holder := "z"
	if vacant {
		holder = ""
	}
	s := newStore(t, holder)
	m := &model{vacant: vacant}
	taken := map[string]bool{} // whose Await returned with the turn that is out

	type result struct{ node, how string }
	results := make(chan result, 1000)
	cancels := map[string]context.CancelFunc{}
	defer func() {
		for _, cancel := range cancels {
			cancel()
		}
	}()

	for i, st := range script {
		m.returned = nil
		before := m.turn
		switch st.Do {
		case "await":
			ctx, cancel := context.WithCancel(context.Background())
			if old := cancels[st.Node]; old != nil {
				defer old()
			}
			cancels[st.Node] = cancel
			go func() {
				switch err := s.Await(ctx, group, candidate(st.Node)); {
				case err == nil:
					results <- result{st.Node, "called"}
				case errors.Is(err, ErrReplaced):
					results <- result{st.Node, "replaced"}
				case errors.Is(err, context.Canceled):
					results <- result{st.Node, "cancelled"}
				default:
					results <- result{st.Node, err.Error()}
				}
			}()
			m.await(st.Node, taken)
		case "cancel":
			if cancel := cancels[st.Node]; cancel != nil {
				cancel()
			}
			m.cancel(st.Node)
		case "open":
			s.vacate("", 0)
			m.open("", 0)
		case "transfer":
			s.vacate(st.Node, 0)
			m.open(st.Node, 0)
		case "transfer or wait":
			s.vacate(st.Node, SuccessorKept)
			m.open(st.Node, SuccessorKept)
		case "foretell":
			s.foretell()
			m.foretell()
		case "shut":
			s.shut()
			m.shut()
		case "grant":
			s.grant(st.Node)
			m.granted(st.Node)
		case "time":
			time.Sleep(time.Duration(st.Ticks) * tick)
			for range st.Ticks {
				m.tick()
			}
		}
		synctest.Wait()

		if m.turn != before {
			clear(taken)
		}
		for _, r := range m.returned {
			if node, ok := strings.CutSuffix(r, " called"); ok && m.turn != nil && m.turn.node == node {
				taken[node] = true
			}
		}
		var got []string
		for len(results) > 0 {
			r := <-results
			got = append(got, r.node+" "+r.how)
		}
		slices.Sort(got)
		slices.Sort(m.returned)
		if !slices.Equal(got, m.returned) {
			return fmt.Errorf("step %d %+v: Awaits returned %q, want %q", i, st, got, m.returned)
		}
		if got, want := show(s.Line), m.String(); got != want {
			return fmt.Errorf("step %d %+v: in line %q, want %q", i, st, got, want)
		}
	}
	return nil
}

func show(l *Line) string {
	var b strings.Builder
	for _, m := range l.Members(group) {
		b.WriteString(m.NodeID)
		if m.Unseen == 0 && awaits(l, m) {
			b.WriteString("+")
		}
		if m.Turn {
			b.WriteString("!")
		}
		b.WriteString(" ")
	}
	if c, _, ok := l.TurnOf(group); ok && c.InstanceID == "" {
		b.WriteString(c.NodeID)
	}
	return b.String()
}

func awaits(l *Line, m Member) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.groups[group].places[keyOf(m.Candidate)].waiter != nil
}
