package storetest

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"baton"
	"baton/internal/boottime"
	"baton/internal/leak"
	"baton/store/memstore"
)

func TestMain(m *testing.M) { leak.Main(m) }

// probe is a T that a check may fail without failing the test around it.
type probe struct {
	ctx context.Context

	mu       sync.Mutex
	failed   bool
	lines    []string
	cleanups []func()
}

func (p *probe) Helper()                  {}
func (p *probe) Context() context.Context { return p.ctx }

func (p *probe) Logf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, fmt.Sprintf(format, args...))
}

func (p *probe) Errorf(format string, args ...any) {
	p.Logf(format, args...)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = true
}

func (p *probe) Fatalf(format string, args ...any) {
	p.Errorf(format, args...)
	runtime.Goexit()
}

func (p *probe) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

// verdict runs one check on fake time and reports whether the store failed it, and what was said.
func verdict(t *testing.T, check func(T)) (failed bool, said string) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := &probe{ctx: ctx}
		apart := func(f func()) {
			done := make(chan struct{})
			go func() { defer close(done); f() }()
			<-done
		}
		apart(func() { check(p) })
		cancel()
		for len(p.cleanups) > 0 {
			last := p.cleanups[len(p.cleanups)-1]
			p.cleanups = p.cleanups[:len(p.cleanups)-1]
			apart(last)
		}
		failed, said = p.failed, strings.Join(p.lines, "\n")
	})
	return failed, said
}

// onMemory is a harness for a store that is made from a memory store.
func onMemory(wrap func(*memstore.Store) baton.Store) Harness {
	return Harness{Start: func(t T) Backing {
		inner := newMemory(t)
		s := wrap(inner)
		t.Cleanup(func() { _ = inner.Close() })
		return Backing{Open: func() baton.Store { return s }}
	}}
}

func newMemory(t T) *memstore.Store {
	s, err := memstore.New(memstore.Config{Clock: boottime.Monotonic()})
	if err != nil {
		t.Fatalf("new memory store: %v", err)
	}
	return s
}

// mutant is a store that breaks one rule.
type mutant struct {
	name  string
	wrap  func(*memstore.Store) baton.Store
	kills []string // checks that must notice, at least
}

// TestEveryRuleCanFail runs the whole suite on stores that each break one rule. Each must fail the
// checks of that rule, and every check must be failed by some store: one that cannot fail checks nothing.
func TestEveryRuleCanFail(t *testing.T) {
	unproven := map[string]bool{}
	for _, c := range Cases() {
		unproven[c.Name] = true
		if failed, said := verdict(t, func(t T) { c.Check(t, onMemory(bare)) }); failed {
			t.Errorf("the reference store fails %s:\n%s", c.Name, said)
		}
	}
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			killed := map[string]bool{}
			for _, c := range Cases() {
				if failed, _ := verdict(t, func(t T) { c.Check(t, onMemory(m.wrap)) }); failed {
					killed[c.Name] = true
					delete(unproven, c.Name)
				}
			}
			for _, name := range m.kills {
				if !killed[name] {
					t.Errorf("%s did not notice; these did: %v", name, killed)
				}
			}
		})
	}
	for name := range unproven {
		if _, ok := clientCases[name]; ok {
			continue // TestRulesOfHandlesCanFail
		}
		t.Errorf("no mutant fails %s", name)
	}
}

func bare(s *memstore.Store) baton.Store { return s }

func mutants() []mutant {
	var all []mutant
	for _, concern := range [][]mutant{leaseMutants, readingMutants, capabilityMutants} {
		all = append(all, concern...)
	}
	return all
}
