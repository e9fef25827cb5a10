package storetest

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"baton"
	"baton/store/memstore"
)

// stall is when a machine stands still for once: at its nth request.
type stall struct {
	at    int
	after bool // the request has taken effect, and before it has otherwise
	lasts time.Duration

	mu    sync.Mutex
	calls int
}

func (s *stall) around(call func()) {
	s.mu.Lock()
	s.calls++
	now := s.calls == s.at
	s.mu.Unlock()
	if now && !s.after {
		time.Sleep(s.lasts)
	}
	call()
	if now && s.after {
		time.Sleep(s.lasts)
	}
}

// stalling is a memory store on such a machine.
type stalling struct {
	*memstore.Store
	*stall
}

func (s stalling) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (l baton.Lease, err error) {
	s.around(func() { l, err = s.Store.Acquire(ctx, group, c, ttl) })
	return l, err
}

func (s stalling) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (l baton.Lease, err error) {
	s.around(func() { l, err = s.Store.Renew(ctx, id, extend) })
	return l, err
}

func (s stalling) Release(ctx context.Context, id baton.LeaseID) (err error) {
	s.around(func() { err = s.Store.Release(ctx, id) })
	return err
}

func (s stalling) Get(ctx context.Context, group string) (l baton.Lease, err error) {
	s.around(func() { l, err = s.Store.Get(ctx, group) })
	return l, err
}

func (s stalling) Await(ctx context.Context, group string, c baton.Candidate) (err error) {
	s.around(func() { err = s.Store.Await(ctx, group, c) })
	return err
}

func (s stalling) End(ctx context.Context, group string, term baton.Term, e baton.Ending) (err error) {
	s.around(func() { err = s.Store.End(ctx, group, term, e) })
	return err
}

// A store is not blamed for a machine that stands still once, for longer than leases,
// turns or places last, whenever that is.
func TestStallsAreNoFaults(t *testing.T) {
	last := 40
	if testing.Short() {
		last = 10
	}
	for _, lasts := range []time.Duration{700 * time.Millisecond, 1500 * time.Millisecond, 6 * time.Second} {
		for at := 1; at <= last; at++ {
			for _, after := range []bool{false, true} {
				for _, c := range Cases() {
					h := onMemory(func(inner *memstore.Store) baton.Store {
						return stalling{inner, &stall{at: at, after: after, lasts: lasts}}
					})
					if failed, said := verdict(t, func(t T) { c.Check(t, h) }); failed {
						t.Errorf("%s, with a stall of %v at request %d (after it: %t):\n%s", c.Name, lasts, at, after, said)
					}
				}
			}
		}
	}
}

// A wait that breaks off goes on, and has lost nothing.
func TestBrokenWaitGoesOn(t *testing.T) {
	for broken := 1; broken <= 10; broken++ {
		for _, c := range lineCases {
			h := onMemory(can(func(s *unruly, inner *memstore.Store) {
				var waits atomic.Int64
				s.await = func(ctx context.Context, group string, c baton.Candidate) error {
					if waits.Add(1) == int64(broken) {
						return unavailable("await", errLostReply)
					}
					return inner.Await(ctx, group, c)
				}
			}))
			failed, said := verdict(t, func(t T) { c.Check(t, h) })
			if failed && c.Name != "Line/VacantGroupAtOnce" { // which looks at what one wait says
				t.Errorf("%s, with wait %d broken off:\n%s", c.Name, broken, said)
			}
		}
	}
}

// sluggish is a memory store whose every request to acquire takes a while.
type sluggish struct{ *memstore.Store }

func (s sluggish) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
		return baton.Lease{}, ctx.Err()
	}
	return s.Store.Acquire(ctx, group, c, ttl)
}

// A load that is not through by its limit ends, and nobody takes that for an outage.
func TestSlownessIsNoOutage(t *testing.T) {
	h := onMemory(func(inner *memstore.Store) baton.Store { return sluggish{inner} })
	failed, said := verdict(t, func(t T) { concurrentHistory(newEnv(t, h)) })
	if failed {
		t.Error(said)
	}
}

// Of what is unlikely, the second sight in a row counts. Tries that say nothing are not
// repeated for ever.
func TestUndisturbed(t *testing.T) {
	for _, tt := range []struct {
		name   string
		sees   string // by each try, and the last by all that follow: o is odd, h held up, . as it should be
		failed bool
		says   string
	}{
		{"as it should be", ".", false, ""},
		{"held up for a while", "hhhhhhh.", false, ""},
		{"odd once", "o.", false, ""},
		{"odd once, and held up", "ohh.", false, ""},
		{"odd twice", "oo.", true, "twice in a row: odd"},
		{"odd twice, held up between", "oho.", true, "twice in a row: odd"},
		{"held up for ever", "h", true, "nothing can be said"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tries := 0
			failed, said := verdict(t, func(t T) {
				e := newEnv(t, onMemory(bare))
				e.undisturbed(func() bool {
					sees := tt.sees[min(tries, len(tt.sees)-1)]
					tries++
					switch sees {
					case 'o':
						return e.unlikely("odd")
					case 'h':
						return false
					}
					return true
				})
			})
			if failed != tt.failed || !strings.Contains(said, tt.says) {
				t.Errorf("failed: %t, after %d tries:\n%s", failed, tries, said)
			}
		})
	}
}
