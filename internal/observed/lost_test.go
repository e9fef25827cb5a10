package observed

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"baton"
	"baton/internal/boottime"
)

// scripted is a register that loses answers as it is told.
type scripted struct {
	*memory
	swaps  int
	script func(n int, swap func() (Snapshot, error)) (Snapshot, error)
}

func (s *scripted) Swap(ctx context.Context, group string, old Snapshot, next Record) (Snapshot, error) {
	s.swaps++
	return s.script(s.swaps, func() (Snapshot, error) { return s.memory.Swap(ctx, group, old, next) })
}

// after tells the fate of writes from the first on; those that come later are well.
func after(fates ...func(swap func() (Snapshot, error)) (Snapshot, error)) func(int, func() (Snapshot, error)) (Snapshot, error) {
	return func(n int, swap func() (Snapshot, error)) (Snapshot, error) {
		if n <= len(fates) {
			return fates[n-1](swap)
		}
		return swap()
	}
}

func well(swap func() (Snapshot, error)) (Snapshot, error) { return swap() }

func requestLost(func() (Snapshot, error)) (Snapshot, error) { return Snapshot{}, errOnTheWay }

func answerLost(swap func() (Snapshot, error)) (Snapshot, error) {
	_, _ = swap()
	return Snapshot{}, errOnTheWay
}

// repeated is written twice, and the answer is that to the copy.
func repeated(swap func() (Snapshot, error)) (Snapshot, error) {
	_, _ = swap()
	return swap()
}

// faster is somebody else.
func faster(func() (Snapshot, error)) (Snapshot, error) { return Snapshot{}, ErrChanged }

func refused(func() (Snapshot, error)) (Snapshot, error) { return Snapshot{}, baton.ErrNotAllowed }

// slow takes this long to write, and its answer is lost.
func slow(d time.Duration) func(func() (Snapshot, error)) (Snapshot, error) {
	return func(swap func() (Snapshot, error)) (Snapshot, error) {
		time.Sleep(d)
		return answerLost(swap)
	}
}

func TestAnswersThatWereLost(t *testing.T) {
	a := baton.Candidate{NodeID: "a", InstanceID: "1"}
	const ttl = time.Second
	type store struct {
		*Leases
		*scripted
	}
	acquire := func(t *testing.T, s store) (baton.Lease, error) { return s.Acquire(t.Context(), "g", a, ttl) }
	for name, c := range map[string]struct {
		script func(int, func() (Snapshot, error)) (Snapshot, error)
		run    func(t *testing.T, s store)
	}{
		"a grant that came is found, and counts from when it was sent": {after(slow(100 * time.Millisecond)), func(t *testing.T, s store) {
			l, err := acquire(t, s)
			if err != nil || l.Term != 1 || s.swaps != 1 || l.Remaining > ttl-100*time.Millisecond || l.Remaining < ttl/2 {
				t.Errorf("%+v, %v, after %d writes", l, err, s.swaps)
			}
		}},
		"a grant that took most of its time is renewed": {after(slow(800 * time.Millisecond)), func(t *testing.T, s store) {
			l, err := acquire(t, s)
			if err != nil || l.Term != 1 || s.swaps != 2 || l.Remaining < ttl/2 {
				t.Errorf("%+v, %v, after %d writes", l, err, s.swaps)
			}
		}},
		"a grant that did not come is asked for again": {after(requestLost), func(t *testing.T, s store) {
			if l, err := acquire(t, s); err != nil || l.Term != 1 || s.swaps != 2 {
				t.Errorf("%+v, %v, after %d writes", l, err, s.swaps)
			}
		}},
		"a grant whose copy was refused is found": {after(repeated), func(t *testing.T, s store) {
			if l, err := acquire(t, s); err != nil || l.Term != 1 || s.swaps != 1 || l.Remaining != ttl {
				t.Errorf("%+v, %v, after %d writes", l, err, s.swaps)
			}
		}},
		"a renewal whose copy was refused is found": {after(well, repeated), func(t *testing.T, s store) {
			l, _ := acquire(t, s)
			if r, err := s.Renew(t.Context(), l.ID(), ttl); err != nil || r.Term != 1 || s.swaps != 2 || r.Remaining != ttl {
				t.Errorf("%+v, %v, after %d writes", r, err, s.swaps)
			}
		}},
		"a release whose copy was refused is found": {after(well, repeated), func(t *testing.T, s store) {
			l, _ := acquire(t, s)
			if err := s.Release(t.Context(), l.ID()); err != nil || s.swaps != 2 {
				t.Errorf("%v, after %d writes", err, s.swaps)
			}
		}},
		"a gentle ending whose copy was refused is found": {after(well, repeated), func(t *testing.T, s store) {
			l, _ := acquire(t, s)
			if err := s.End(t.Context(), "g", l.Term, baton.Ending{Reason: baton.SteppedDown}, nil); err != nil || s.swaps != 2 {
				t.Errorf("%v, after %d writes", err, s.swaps)
			}
		}},
		"a refusal after somebody else was faster is an answer": {after(faster, refused), func(t *testing.T, s store) {
			if l, err := acquire(t, s); !errors.Is(err, baton.ErrNotAllowed) {
				t.Errorf("%+v, %v", l, err)
			}
		}},
		"a refusal is no answer while the first attempt may come": {after(requestLost, refused), func(t *testing.T, s store) {
			if l, err := acquire(t, s); !errors.Is(err, baton.ErrUnavailable) || baton.IsAnswer(err) {
				t.Errorf("%+v, %v", l, err)
			}
		}},
		"a refusal of the first attempt is one": {after(refused), func(t *testing.T, s store) {
			if l, err := acquire(t, s); !errors.Is(err, baton.ErrNotAllowed) {
				t.Errorf("%+v, %v", l, err)
			}
		}},
		"a renewal that came is found": {after(well, answerLost), func(t *testing.T, s store) {
			l, _ := acquire(t, s)
			if r, err := s.Renew(t.Context(), l.ID(), ttl); err != nil || r.Term != 1 || r.Remaining > ttl-retryPause || s.swaps != 2 {
				t.Errorf("%+v, %v, after %d writes", r, err, s.swaps)
			}
		}},
		"a release that came is found": {after(well, answerLost), func(t *testing.T, s store) {
			l, _ := acquire(t, s)
			if err := s.Release(t.Context(), l.ID()); err != nil || s.swaps != 2 {
				t.Errorf("%v, after %d writes", err, s.swaps)
			}
		}},
		"a release that came is found behind the next grant": {nil, func(t *testing.T, s store) {
			l, _ := acquire(t, s)
			s.script = func(_ int, swap func() (Snapshot, error)) (Snapshot, error) {
				_, _ = answerLost(swap)
				s.script = after()
				if _, err := s.Acquire(t.Context(), "g", baton.Candidate{NodeID: "b", InstanceID: "1"}, ttl); err != nil {
					t.Error(err)
				}
				return Snapshot{}, errOnTheWay
			}
			if err := s.Release(t.Context(), l.ID()); err != nil {
				t.Error(err)
			}
		}},
		"a release of which others have removed all traces is unknown": {nil, func(t *testing.T, s store) {
			l, _ := acquire(t, s)
			s.script = func(_ int, swap func() (Snapshot, error)) (Snapshot, error) {
				_, _ = answerLost(swap)
				s.script = after()
				for _, node := range []string{"b", "c"} {
					l, err := s.Acquire(t.Context(), "g", baton.Candidate{NodeID: node, InstanceID: "1"}, ttl)
					if err != nil {
						t.Error(err)
					}
					if err := s.Release(t.Context(), l.ID()); err != nil {
						t.Error(err)
					}
				}
				return Snapshot{}, errOnTheWay
			}
			if err := s.Release(t.Context(), l.ID()); !errors.Is(err, baton.ErrUnavailable) {
				t.Errorf("%v", err)
			}
		}},
		"a gentle ending that came is found": {after(well, answerLost), func(t *testing.T, s store) {
			l, _ := acquire(t, s)
			err := s.End(t.Context(), "g", l.Term, baton.Ending{Reason: baton.SteppedDown}, nil)
			if now, _ := s.Get(t.Context(), "g"); err != nil || now.Ending == nil || s.swaps != 2 {
				t.Errorf("%v, after %d writes: %+v", err, s.swaps, now)
			}
		}},
		"a gentle ending that came is found behind the release that followed": {nil, func(t *testing.T, s store) {
			l, _ := acquire(t, s)
			s.script = func(_ int, swap func() (Snapshot, error)) (Snapshot, error) {
				_, _ = answerLost(swap)
				s.script = after()
				if err := s.Release(t.Context(), l.ID()); err != nil {
					t.Error(err)
				}
				return Snapshot{}, errOnTheWay
			}
			if err := s.End(t.Context(), "g", l.Term, baton.Ending{Reason: baton.SteppedDown}, nil); err != nil {
				t.Error(err)
			}
		}},
		"a gentle ending that others have replaced, and that was followed, is unknown": {nil, func(t *testing.T, s store) {
			l, _ := acquire(t, s)
			s.script = func(_ int, swap func() (Snapshot, error)) (Snapshot, error) {
				_, _ = answerLost(swap)
				s.script = after()
				if err := s.End(t.Context(), "g", l.Term, baton.Ending{Reason: baton.SteppedDown}, nil); err != nil {
					t.Error(err)
				}
				if err := s.Release(t.Context(), l.ID()); err != nil {
					t.Error(err)
				}
				return Snapshot{}, errOnTheWay
			}
			if err := s.End(t.Context(), "g", l.Term, baton.Ending{Reason: baton.SteppedDown}, nil); !errors.Is(err, baton.ErrUnavailable) {
				t.Error(err)
			}
		}},
		"a refused repetition of a renewal is no answer while the first attempt may come": {after(well, requestLost, refused), func(t *testing.T, s store) {
			l, _ := acquire(t, s)
			if r, err := s.Renew(t.Context(), l.ID(), ttl); !errors.Is(err, baton.ErrUnavailable) || baton.IsAnswer(err) {
				t.Errorf("%+v, %v", r, err)
			}
		}},
		"nor of a grant that came and is renewed": {after(slow(800*time.Millisecond), refused), func(t *testing.T, s store) {
			if l, err := acquire(t, s); !errors.Is(err, baton.ErrUnavailable) || baton.IsAnswer(err) {
				t.Errorf("%+v, %v", l, err)
			}
		}},
		"an expiry that came is found": {after(well, answerLost), func(t *testing.T, s store) {
			_, _ = acquire(t, s)
			time.Sleep(ttl)
			if now, err := s.Get(t.Context(), "g"); err != nil || now.Held() || s.swaps != 2 {
				t.Errorf("%+v, %v, after %d writes", now, err, s.swaps)
			}
		}},
		"who may not write sees a lease that ran out as held, with nothing left": {after(well, refused, refused), func(t *testing.T, s store) {
			_, _ = acquire(t, s)
			time.Sleep(ttl)
			if now, err := s.Get(t.Context(), "g"); err != nil || !now.Held() || now.Remaining != 0 {
				t.Errorf("%+v, %v", now, err)
			}
			if _, err := s.Acquire(t.Context(), "g", baton.Candidate{NodeID: "b", InstanceID: "1"}, ttl); !errors.Is(err, baton.ErrNotAllowed) {
				t.Errorf("acquire: %v", err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				register := &scripted{memory: newMemory(), script: c.script}
				if register.script == nil {
					register.script = after()
				}
				l := New(Config{Register: register, Guarantees: plainGuarantees, Clock: boottime.Monotonic()})
				defer l.Close()
				c.run(t, store{l, register})
			})
		})
	}
}

// What a holder is told it may count on is never what somebody who only looked
// believes to be left.
func TestAnotherObserverPromisesNothingOfALeaseThatIsEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		register := newMemory()
		open := func() *Leases {
			l := New(Config{Register: register, Guarantees: plainGuarantees, Clock: boottime.Monotonic()})
			t.Cleanup(l.Close)
			return l
		}
		mine, other := open(), open()
		l, err := mine.Acquire(t.Context(), "g", baton.Candidate{NodeID: "a", InstanceID: "1"}, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(900 * time.Millisecond)
		if err := other.End(t.Context(), "g", l.Term, baton.Ending{Reason: baton.SteppedDown}, nil); err != nil {
			t.Fatal(err)
		}
		if r, err := other.Renew(t.Context(), l.ID(), time.Second); err != nil || r.Ending == nil || r.Remaining != 0 {
			t.Errorf("renewal where the lease was only seen: %+v, %v", r, err)
		}
		if r, err := mine.Renew(t.Context(), l.ID(), time.Second); err != nil || r.Ending == nil || r.Remaining != 100*time.Millisecond {
			t.Errorf("renewal where it was granted: %+v, %v", r, err)
		}
		// The ending is a write, and gives no time.
		time.Sleep(100 * time.Millisecond)
		if now, err := mine.Get(t.Context(), "g"); err != nil || now.Held() {
			t.Errorf("get after its end: %+v, %v", now, err)
		}
	})
}
