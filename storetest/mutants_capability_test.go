package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"baton"
	"baton/store/memstore"
)

// unruly is a memory store with other capabilities.
type unruly struct {
	*memstore.Store
	await  func(ctx context.Context, group string, c baton.Candidate) error
	end    func(ctx context.Context, group string, term baton.Term, e baton.Ending) error
	past   func(ps []baton.PastTerm) []baton.PastTerm
	put    func(ctx context.Context, g baton.Group) (baton.Group, error)
	delete func(ctx context.Context, id string) error
	group  func(g baton.Group, err error) (baton.Group, error)
	list   func(gs []baton.Group) []baton.Group
}

func (s *unruly) Await(ctx context.Context, group string, c baton.Candidate) error {
	if s.await != nil {
		return s.await(ctx, group, c)
	}
	return s.Store.Await(ctx, group, c)
}

func (s *unruly) End(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
	if s.end != nil {
		return s.end(ctx, group, term, e)
	}
	return s.Store.End(ctx, group, term, e)
}

func (s *unruly) History(ctx context.Context, group string) ([]baton.PastTerm, error) {
	ps, err := s.Store.History(ctx, group)
	if s.past != nil {
		ps = s.past(ps)
	}
	return ps, err
}

func (s *unruly) PutGroup(ctx context.Context, g baton.Group) (baton.Group, error) {
	if s.put != nil {
		return s.put(ctx, g)
	}
	return s.Store.PutGroup(ctx, g)
}

func (s *unruly) DeleteGroup(ctx context.Context, id string) error {
	if s.delete != nil {
		return s.delete(ctx, id)
	}
	return s.Store.DeleteGroup(ctx, id)
}

func (s *unruly) Group(ctx context.Context, id string) (baton.Group, error) {
	g, err := s.Store.Group(ctx, id)
	if s.group != nil {
		return s.group(g, err)
	}
	return g, err
}

func (s *unruly) Groups(ctx context.Context) ([]baton.Group, error) {
	gs, err := s.Store.Groups(ctx)
	if s.list != nil {
		gs = s.list(gs)
	}
	return gs, err
}

func can(change func(s *unruly, inner *memstore.Store)) func(*memstore.Store) baton.Store {
	return func(inner *memstore.Store) baton.Store {
		s := &unruly{Store: inner}
		change(s, inner)
		return s
	}
}

// opened waits until the group is vacant, without a place in line.
func opened(ctx context.Context, s *memstore.Store, group string, accept func(baton.Event) bool) error {
	for ev, err := range s.Watch(ctx, group, "") {
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
		if ev.Type == baton.LeaderLost && accept(ev) {
			return nil
		}
	}
	return ctx.Err()
}

var capabilityMutants = []mutant{
	{"wakes the herd", can(func(s *unruly, inner *memstore.Store) {
		s.await = func(ctx context.Context, group string, c baton.Candidate) error {
			return opened(ctx, inner, group, func(baton.Event) bool { return true })
		}
	}), []string{"Line/OneTurnPerVacancy"}},
	{"does not wait", can(func(s *unruly, _ *memstore.Store) {
		s.await = func(context.Context, string, baton.Candidate) error { return nil }
	}), []string{"Line/FirstComeFirstServed", "Context/EndsAWait", "Context/EndedBefore", "Close/EndsWaits"}},
	{"breaks every wait off", can(func(s *unruly, _ *memstore.Store) {
		s.await = func(context.Context, string, baton.Candidate) error { return unavailable("await", errLostReply) }
	}), []string{"Line/VacantGroupAtOnce", "Line/FirstComeFirstServed", "Line/ExpiryCallsTheNext"}},
	{"waits at a vacant group", can(func(s *unruly, inner *memstore.Store) {
		s.await = func(ctx context.Context, group string, c baton.Candidate) error {
			return opened(ctx, inner, group, func(ev baton.Event) bool { return ev.Term > 0 })
		}
	}), []string{"Line/VacantGroupAtOnce"}},
	{"serves the last first", can(func(s *unruly, inner *memstore.Store) {
		var mu sync.Mutex
		var line []string
		s.await = func(ctx context.Context, group string, c baton.Candidate) error {
			mu.Lock()
			if !slices.Contains(line, c.InstanceID) {
				line = append(line, c.InstanceID)
			}
			mu.Unlock()
			for {
				if err := opened(ctx, inner, group, func(baton.Event) bool { return true }); err != nil {
					return err
				}
				mu.Lock()
				last := line[len(line)-1] == c.InstanceID
				if last {
					line = line[:len(line)-1]
				}
				mu.Unlock()
				if last {
					return nil
				}
				if err := pauseFor(ctx); err != nil {
					return err
				}
			}
		}
	}), []string{"Line/FirstComeFirstServed"}},
	{"gives up a place between polls", can(func(s *unruly, inner *memstore.Store) {
		s.await = func(ctx context.Context, group string, c baton.Candidate) error {
			c.InstanceID = randomHex(16)
			return inner.Await(ctx, group, c)
		}
	}), []string{"Line/PlaceSurvivesPolls"}},
	{"waits for the dead", can(func(s *unruly, inner *memstore.Store) {
		var mu sync.Mutex
		called := map[string]bool{}
		s.await = func(ctx context.Context, group string, c baton.Candidate) error {
			if err := inner.Await(ctx, group, c); err != nil {
				return err
			}
			mu.Lock()
			dead := called[group]
			called[group] = true
			mu.Unlock()
			if dead {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
	}), []string{"Line/DeadFirstIsPassedOver"}},
	{"calls nobody after an expiry", can(func(s *unruly, inner *memstore.Store) {
		s.await = func(ctx context.Context, group string, c baton.Candidate) error {
			return opened(ctx, inner, group, func(ev baton.Event) bool { return ev.Reason != baton.Expired })
		}
	}), []string{"Line/ExpiryCallsTheNext"}},
	{"forgets successors", can(func(s *unruly, inner *memstore.Store) {
		s.end = func(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
			if err := e.Validate(); err != nil {
				return err
			}
			e.Reason, e.Successor = baton.SteppedDown, ""
			return inner.End(ctx, group, term, e)
		}
	}), []string{"Line/SuccessorGoesFirst", "Ending/Transfer", "Ending/SuccessorNotInLine"}},
	{"sends the impatient away without a word", func(inner *memstore.Store) baton.Store {
		return with(func(s *altered, inner *memstore.Store) {
			acquire := inner.Acquire
			s.acquire = func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
				l, err := acquire(ctx, group, c, ttl)
				var held *baton.HeldError
				if errors.As(err, &held) && !held.Lease.Held() {
					return l, &baton.HeldError{Lease: held.Lease}
				}
				return l, err
			}
		})(inner)
	}, []string{"Line/OutOfTurn"}},

	{"ends nothing", can(func(s *unruly, inner *memstore.Store) {
		s.end = func(context.Context, string, baton.Term, baton.Ending) error { return nil }
	}), []string{"Ending/Gentle", "Ending/GentleRunsOut", "Ending/Immediate", "Ending/ExactTerm", "Ending/Validation", "Ending/Replaced", "Concurrency/HistoryIsLinearizable"}},
	{"ends everything gently", can(func(s *unruly, inner *memstore.Store) {
		s.end = func(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
			e.Immediate = false
			return inner.End(ctx, group, term, e)
		}
	}), []string{"Ending/Immediate"}},
	{"ends everything at once", can(func(s *unruly, inner *memstore.Store) {
		s.end = func(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
			e.Immediate = true
			return inner.End(ctx, group, term, e)
		}
	}), []string{"Ending/Gentle"}},
	{"ends whoever leads", can(func(s *unruly, inner *memstore.Store) {
		s.end = func(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
			if l, err := inner.Get(ctx, group); err == nil && l.Held() {
				term = l.Term
			}
			return inner.End(ctx, group, term, e)
		}
	}), []string{"Ending/ExactTerm"}},
	{"keeps the first ending", can(func(s *unruly, inner *memstore.Store) {
		s.end = func(ctx context.Context, group string, term baton.Term, e baton.Ending) error {
			if l, err := inner.Get(ctx, group); err == nil && l.Ending != nil {
				return nil
			}
			return inner.End(ctx, group, term, e)
		}
	}), []string{"Ending/Replaced"}},

	{"remembers no reasons", can(func(s *unruly, _ *memstore.Store) {
		s.past = func(ps []baton.PastTerm) []baton.PastTerm {
			for i := range ps {
				ps[i].Reason = ""
			}
			return ps
		}
	}), []string{"History/TermsAndReasons", "Ending/Gentle"}},
	{"remembers no gaps", can(func(s *unruly, _ *memstore.Store) {
		s.past = func(ps []baton.PastTerm) []baton.PastTerm {
			for i := range ps {
				ps[i].Gap = 0
			}
			return ps
		}
	}), []string{"History/LeaderlessGap"}},
	{"remembers what never was", can(func(s *unruly, _ *memstore.Store) {
		s.past = func(ps []baton.PastTerm) []baton.PastTerm { return append([]baton.PastTerm{{Term: 1}}, ps...) }
	}), []string{"History/Empty"}},

	{"puts whatever the version", can(func(s *unruly, inner *memstore.Store) {
		s.put = func(ctx context.Context, g baton.Group) (baton.Group, error) {
			if now, err := inner.Group(ctx, g.ID); err == nil {
				g.Version = now.Version
			} else if errors.Is(err, baton.ErrNotFound) {
				g.Version = 0
			}
			return inner.PutGroup(ctx, g)
		}
	}), []string{"Registry/PutIfVersion", "Registry/Delete"}},
	{"loses allowed nodes", can(func(s *unruly, inner *memstore.Store) {
		s.group = func(g baton.Group, err error) (baton.Group, error) { g.AllowedNodes = nil; return g, err }
	}), []string{"Registry/PutAndGet"}},
	{"lists registered groups only", can(func(s *unruly, _ *memstore.Store) {
		s.list = func(gs []baton.Group) []baton.Group {
			return slices.DeleteFunc(gs, func(g baton.Group) bool { return g.Version == 0 })
		}
	}), []string{"Registry/List"}},
	{"deletes nothing", can(func(s *unruly, _ *memstore.Store) {
		s.delete = func(context.Context, string) error { return nil }
	}), []string{"Registry/Delete", "Registry/DeleteHeld"}},
	{"deletes a held group", can(func(s *unruly, inner *memstore.Store) {
		s.delete = func(ctx context.Context, id string) error {
			evict(ctx, inner, id)
			return inner.DeleteGroup(ctx, id)
		}
	}), []string{"Registry/DeleteHeld"}},
	{"puts nonsense aside", can(func(s *unruly, inner *memstore.Store) {
		s.put = func(ctx context.Context, g baton.Group) (baton.Group, error) {
			if g.Validate() != nil {
				return g, nil
			}
			return inner.PutGroup(ctx, g)
		}
	}), []string{"Registry/Validation"}},
}

func pauseFor(ctx context.Context) error {
	timer := time.NewTimer(time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
