package leasefsm

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"baton"
)

// TestDeadlinesProperties compares the deadlines with the plainest model there
// is, while the clock runs forward.
func TestDeadlinesProperties(t *testing.T) {
	type entry struct {
		term   baton.Term
		at     time.Duration
		closed bool
	}
	rapid.Check(t, func(t *rapid.T) {
		d := NewDeadlines()
		model := map[string]*entry{}
		now := time.Duration(rapid.Int64Range(-50, 50).Draw(t, "start"))
		// what was told to holders, by leadership: it must stay true.
		promised := map[Lapsed]time.Duration{}

		tick := func(t *rapid.T) { now += time.Duration(rapid.Int64Range(0, 10).Draw(t, "tick")) }
		draw := func(t *rapid.T) (string, baton.Term, *entry) {
			g := drawGroup(t)
			term := baton.Term(rapid.Uint64Range(1, 4).Draw(t, "term"))
			e := model[g]
			if e != nil && rapid.Bool().Draw(t, "this term") {
				term = e.term
			}
			if e != nil && e.term != term {
				e = nil
			}
			return g, term, e
		}

		t.Repeat(map[string]func(*rapid.T){
			"arm": func(t *rapid.T) {
				tick(t)
				g, term, e := draw(t)
				ttl := time.Duration(rapid.Int64Range(1, 30).Draw(t, "ttl"))
				d.Arm(g, term, ttl, now)
				switch old := model[g]; {
				case e != nil:
					e.at = max(e.at, now+ttl)
				case old == nil || old.term < term:
					model[g] = &entry{term: term, at: now + ttl}
				}
			},
			"renew": func(t *rapid.T) {
				tick(t)
				g, term, e := draw(t)
				extend := time.Duration(rapid.Int64Range(1, 30).Draw(t, "extend"))
				left, err := d.Renew(g, term, extend, now)
				if ok := e != nil && !e.closed && e.at > now; ok != (err == nil) {
					t.Fatalf("renew %s %d at %v: %v, and the model has %+v", g, term, now, err, e)
				}
				if err != nil {
					return
				}
				e.at = max(e.at, now+extend)
				if before, ok := promised[Lapsed{g, term}]; ok && now+left < before || left < extend {
					t.Fatalf("renewed until %v after %v was promised", now+left, before)
				}
				promised[Lapsed{g, term}] = now + left
			},
			"close": func(t *rapid.T) {
				g, term, e := draw(t)
				if got, want := d.Close(g, term), e != nil && !e.closed; got != want {
					t.Fatalf("close: %v", got)
				}
				if e != nil {
					e.closed = true
				}
			},
			"reopen": func(t *rapid.T) {
				g, term, e := draw(t)
				d.Reopen(g, term)
				if e != nil {
					e.closed = false
				}
			},
			"drop": func(t *rapid.T) {
				g, term, e := draw(t)
				d.Drop(g, term)
				if e != nil {
					delete(model, g)
					delete(promised, Lapsed{g, term})
				}
			},
			"due": func(t *rapid.T) {
				tick(t)
				want := 0
				for _, e := range model {
					if !e.closed && e.at <= now {
						want++
					}
				}
				due := d.Due(now)
				if len(due) != want {
					t.Fatalf("due at %v: %v, want %d", now, due, want)
				}
				if !slices.IsSortedFunc(due, func(a, b Lapsed) int { return int(model[a.Group].at - model[b.Group].at) }) {
					t.Fatalf("due at %v: %v is not by deadline", now, due)
				}
				for _, l := range due {
					if until, ok := promised[l]; model[l.Group].term != l.Term || ok && until > now {
						t.Fatalf("%+v is due at %v, and %v was promised", l, now, until)
					}
					model[l.Group].closed = true
				}
			},
			"": func(t *rapid.T) {
				if d.Len() != len(model) {
					t.Fatalf("%d deadlines, want %d", d.Len(), len(model))
				}
				next, ok := time.Duration(0), false
				for g, e := range model {
					if left := d.Remaining(g, e.term, now); left != max(0, e.at-now) {
						t.Fatalf("%s: %v left at %v of %+v", g, left, now, e)
					}
					if !e.closed && (!ok || e.at < next) {
						next, ok = e.at, true
					}
				}
				if at, some := d.Next(); some != ok || at != next {
					t.Fatalf("next is %v (%v), want %v (%v)", at, some, next, ok)
				}
			},
		})
	})
}
