package fencetest_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"baton"
	"baton/fence"
	"baton/fence/fencetest"
	"baton/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// memory is fence.Memory with logs beside it.
type memory struct {
	fence.Memory
	mu   sync.Mutex
	logs map[string][]fencetest.Entry
}

func (m *memory) Append(ctx context.Context, resource string, c fence.Claim, value string, between func()) error {
	return m.Write(ctx, resource, c, func(context.Context) error {
		if between != nil {
			between()
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.logs == nil {
			m.logs = make(map[string][]fencetest.Entry)
		}
		m.logs[resource] = append(m.logs[resource], fencetest.Entry{Claim: c, Value: value})
		return nil
	})
}

func (m *memory) Log(_ context.Context, resource string) ([]fencetest.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.logs[resource]), nil
}

func TestMemory(t *testing.T) {
	fencetest.Run(t, fencetest.Options{}, func(*testing.T) fencetest.Subject { return new(memory) })
}

// faulty is a ledger with a bug of choice. Without one it passes, as
// TestFaultyWithoutFault shows; so what fails it is the bug.
type faulty struct {
	// admit stands for Record.Admit.
	admit func(r fence.Record, resource string, c fence.Claim) (fence.Record, error)
	// adopt stands for Record.Adopt.
	adopt func(r fence.Record, resource string, t baton.Token) (fence.Record, error)
	// torn lets go of the resource between check and effect.
	torn bool
	// silent does not tell the leadership.
	silent bool

	hold    sync.RWMutex // held from check to effect
	mu      sync.Mutex
	records map[string]fence.Record
	logs    map[string][]fencetest.Entry
}

func newFaulty(change func(*faulty)) func(*testing.T) fencetest.Subject {
	return func(*testing.T) fencetest.Subject {
		f := &faulty{
			admit:   fence.Record.Admit,
			adopt:   fence.Record.Adopt,
			records: make(map[string]fence.Record),
			logs:    make(map[string][]fencetest.Entry),
		}
		change(f)
		return f
	}
}

func (f *faulty) report(ctx context.Context, err error) error {
	if f.silent {
		return err
	}
	return fence.Report(ctx, err)
}

func (f *faulty) Adopt(ctx context.Context, resource string, t baton.Token) (fence.Record, error) {
	f.hold.Lock()
	defer f.hold.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	r, err := f.adopt(f.records[resource], resource, t)
	if err != nil {
		return fence.Record{}, f.report(ctx, err)
	}
	f.records[resource] = r
	return r, nil
}

func (f *faulty) check(ctx context.Context, resource string, c fence.Claim) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, err := f.admit(f.records[resource], resource, c)
	if err != nil {
		return f.report(ctx, err)
	}
	f.records[resource] = r
	return nil
}

func (f *faulty) Append(ctx context.Context, resource string, c fence.Claim, value string, between func()) error {
	if _, ordered := c.Seq(); ordered && !f.torn {
		f.hold.Lock()
		defer f.hold.Unlock()
	} else if !f.torn {
		f.hold.RLock()
		defer f.hold.RUnlock()
	}
	if err := f.check(ctx, resource, c); err != nil {
		return err
	}
	if between != nil {
		between()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logs[resource] = append(f.logs[resource], fencetest.Entry{Claim: c, Value: value})
	return nil
}

func (f *faulty) Advance(ctx context.Context, resource string, c fence.Claim) error {
	if err := fence.RequireOrdered(c); err != nil {
		return err
	}
	f.hold.Lock()
	defer f.hold.Unlock()
	return f.check(ctx, resource, c)
}

func (f *faulty) Read(_ context.Context, resource string) (fence.Record, error) {
	if err := fence.ValidateResource(resource); err != nil {
		return fence.Record{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.records[resource], nil
}

func (f *faulty) Log(_ context.Context, resource string) ([]fencetest.Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.logs[resource]), nil
}

func TestFaultyWithoutFault(t *testing.T) {
	fencetest.Run(t, fencetest.Options{}, newFaulty(func(*faulty) {}))
}

// reclaim returns c as if it had been made under t.
func reclaim(c fence.Claim, t baton.Token) fence.Claim {
	if seq, ordered := c.Seq(); ordered {
		return fence.Ordered(t, seq)
	}
	return fence.Unordered(t)
}

func TestSuiteSeesFaults(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*faulty)
		seenBy []string
	}{
		{"check, then write", func(f *faulty) { f.torn = true },
			[]string{"PausedBetweenCheckAndEffect", "RepeatedInside", "RepeatedInsideThePast"}},
		{"no instance check", func(f *faulty) {
			f.admit = func(r fence.Record, resource string, c fence.Claim) (fence.Record, error) {
				t := c.Token()
				if r.Term == t.Term && c.Validate() == nil {
					t.InstanceID = r.InstanceID
				}
				return r.Admit(resource, reclaim(c, t))
			}
			f.adopt = func(r fence.Record, resource string, t baton.Token) (fence.Record, error) {
				if r.Term == t.Term && t.Validate() == nil {
					r.InstanceID = t.InstanceID
				}
				return r.Adopt(resource, t)
			}
		}, []string{"InstanceOfSameTerm", "AdoptRace"}},
		{"no group check", func(f *faulty) {
			f.admit = func(r fence.Record, resource string, c fence.Claim) (fence.Record, error) {
				t := c.Token()
				if r.Adopted() && c.Validate() == nil {
					t.Group = r.Group
				}
				return r.Admit(resource, reclaim(c, t))
			}
		}, []string{"OtherGroup"}},
		{"a write raises the term, nobody adopts", func(f *faulty) {
			f.admit = func(r fence.Record, resource string, c fence.Claim) (fence.Record, error) {
				if c.Validate() == nil && r.Term < c.Token().Term {
					r.Group, r.Term, r.InstanceID = c.Token().Group, c.Token().Term, c.Token().InstanceID
				}
				return r.Admit(resource, c)
			}
		}, []string{"NotAdopted", "OldWriteAfterRead"}},
		{"numbers are not checked", func(f *faulty) {
			f.admit = func(r fence.Record, resource string, c fence.Claim) (fence.Record, error) {
				if c.Validate() != nil {
					return r.Admit(resource, c)
				}
				after, err := r.Admit(resource, fence.Unordered(c.Token()))
				if seq, _ := c.Seq(); err == nil {
					after.LastSeq = max(after.LastSeq, seq)
				}
				return after, err
			}
		}, []string{"SeqRises", "TwoLeaders", "UnknownOutcome", "DelayedWrite"}},
		{"numbers start over with each term", func(f *faulty) {
			f.adopt = func(r fence.Record, resource string, t baton.Token) (fence.Record, error) {
				after, err := r.Adopt(resource, t)
				if err == nil && after.Term > r.Term {
					after.LastSeq = 0
				}
				return after, err
			}
		}, []string{"AdoptRaises", "SeqRises", "TwoLeaders"}},
		{"adopt takes any term", func(f *faulty) {
			f.adopt = func(_ fence.Record, resource string, t baton.Token) (fence.Record, error) {
				return fence.Record{}.Adopt(resource, t)
			}
		}, []string{"AdoptRaises", "OtherGroup"}},
		{"input is not validated", func(f *faulty) {
			f.admit = func(r fence.Record, resource string, c fence.Claim) (fence.Record, error) {
				if c.Token().Term == 0 {
					c = reclaim(c, r.Token())
				}
				return r.Admit(resource, c)
			}
		}, []string{"BadInput"}},
		{"the leadership is not told", func(f *faulty) { f.silent = true },
			[]string{"StaleEndsLeadership"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fencetest.MustFail(t, fencetest.Options{}, newFaulty(tt.change), tt.seenBy...)
		})
	}
}
