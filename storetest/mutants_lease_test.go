package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"baton"
	"baton/store/memstore"
)

// altered is a memory store with some requests replaced.
type altered struct {
	*memstore.Store
	acquire    func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error)
	renew      func(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error)
	release    func(ctx context.Context, id baton.LeaseID) error
	get        func(ctx context.Context, group string) (baton.Lease, error)
	guarantees func(g baton.Guarantees) baton.Guarantees
	close      func() error
}

func (s *altered) Acquire(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
	if s.acquire != nil {
		return s.acquire(ctx, group, c, ttl)
	}
	return s.Store.Acquire(ctx, group, c, ttl)
}

func (s *altered) Renew(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
	if s.renew != nil {
		return s.renew(ctx, id, extend)
	}
	return s.Store.Renew(ctx, id, extend)
}

func (s *altered) Release(ctx context.Context, id baton.LeaseID) error {
	if s.release != nil {
		return s.release(ctx, id)
	}
	return s.Store.Release(ctx, id)
}

func (s *altered) Get(ctx context.Context, group string) (baton.Lease, error) {
	if s.get != nil {
		return s.get(ctx, group)
	}
	return s.Store.Get(ctx, group)
}

func (s *altered) Guarantees() baton.Guarantees {
	g := s.Store.Guarantees()
	if s.guarantees != nil {
		return s.guarantees(g)
	}
	return g
}

func (s *altered) Close() error {
	if s.close != nil {
		return s.close()
	}
	return s.Store.Close()
}

// with makes a mutant's wrap from what it changes.
func with(change func(s *altered, inner *memstore.Store)) func(*memstore.Store) baton.Store {
	return func(inner *memstore.Store) baton.Store {
		s := &altered{Store: inner}
		change(s, inner)
		return s
	}
}

// evict ends whatever leads, so that a mutant can give the group to someone else.
func evict(ctx context.Context, s *memstore.Store, group string) {
	l, err := s.Get(ctx, group)
	if err == nil && l.Held() {
		_ = s.End(ctx, group, l.Term, baton.Ending{Reason: baton.SteppedDown, Immediate: true})
	}
}

// reborn keeps each life of a group under another name, and so forgets its terms from one life to the next.
type reborn struct {
	inner *memstore.Store
	mu    sync.Mutex
	lives map[string]int
}

func forgetful(inner *memstore.Store, change func(s *altered, r *reborn)) baton.Store {
	r := &reborn{inner: inner, lives: map[string]int{}}
	s := &altered{Store: inner}
	s.acquire = func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
		l, err := inner.Acquire(ctx, r.name(group), c, ttl)
		return r.back(group, l), err
	}
	s.renew = func(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
		group := id.Group
		id.Group = r.name(group)
		l, err := inner.Renew(ctx, id, extend)
		return r.back(group, l), err
	}
	s.release = func(ctx context.Context, id baton.LeaseID) error {
		id.Group = r.name(id.Group)
		return inner.Release(ctx, id)
	}
	s.get = func(ctx context.Context, group string) (baton.Lease, error) {
		l, err := inner.Get(ctx, r.name(group))
		return r.back(group, l), err
	}
	change(s, r)
	return s
}

func (r *reborn) name(group string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.lives[group]; n > 0 {
		return fmt.Sprintf("%s.%d", group, n)
	}
	return group
}

func (r *reborn) back(group string, l baton.Lease) baton.Lease {
	l.Group = group
	return l
}

func (r *reborn) forget(group string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lives[group]++
}

var leaseMutants = []mutant{
	{"promises what it cannot be", with(func(s *altered, _ *memstore.Store) {
		s.guarantees = func(g baton.Guarantees) baton.Guarantees { g.Transfers, g.Waiting = false, baton.WaitWatch; return g }
	}), []string{"Declared/CapabilitiesMatch"}},
	{"has bounds that exclude everything", with(func(s *altered, _ *memstore.Store) {
		s.guarantees = func(g baton.Guarantees) baton.Guarantees { g.MinTTL = 2 * g.MaxTTL; return g }
	}), []string{"Declared/GuaranteesAreSound"}},
	{"lets a node's new instance take over", with(func(s *altered, inner *memstore.Store) {
		s.acquire = func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
			if l, err := inner.Get(ctx, group); err == nil && l.NodeID == c.NodeID && l.InstanceID != c.InstanceID {
				evict(ctx, inner, group)
			}
			return inner.Acquire(ctx, group, c, ttl)
		}
	}), []string{"Acquire/HeldByAnotherInstanceOfTheNode"}},
	{"grants a held group", with(func(s *altered, inner *memstore.Store) {
		s.acquire = func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
			l, err := inner.Acquire(ctx, group, c, ttl)
			if errors.Is(err, baton.ErrHeld) {
				evict(ctx, inner, group)
				return inner.Acquire(ctx, group, c, ttl)
			}
			return l, err
		}
	}), []string{
		"Acquire/HeldByAnother", "Renew/KeepsTheLeaseAlive", "Expiry/NotBeforeThePromiseEnds",
		"Concurrency/OneWinner", "Concurrency/HistoryIsLinearizable",
	}},
	{"lets the last quarter of a lease be taken", with(func(s *altered, inner *memstore.Store) {
		s.acquire = func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
			if l, err := inner.Get(ctx, group); err == nil && l.Held() && l.Remaining < l.TTL/4 {
				evict(ctx, inner, group)
			}
			return inner.Acquire(ctx, group, c, ttl)
		}
	}), []string{"Expiry/NotBeforeThePromiseEnds"}},
	{"drops metadata", with(func(s *altered, inner *memstore.Store) {
		s.acquire = func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
			err := c.Validate()
			c.Metadata = nil
			if err != nil {
				return baton.Lease{}, err
			}
			return inner.Acquire(ctx, group, c, ttl)
		}
	}), []string{"Acquire/VacantGroup", "Validation/Metadata"}},
	{"keeps the caller's map", aliasing, []string{"Acquire/KeepsNothingOfTheCallers"}},
	{"confuses groups that begin alike", with(func(s *altered, inner *memstore.Store) {
		stem := func(group string) string {
			if len(group) > len("storetest-")+16 && len(group) < 128 {
				return group[:len("storetest-")+16]
			}
			return group
		}
		s.acquire = func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
			return inner.Acquire(ctx, stem(group), c, ttl)
		}
	}), []string{"Acquire/GroupsAreIndependent"}},
	{"renews without extending", with(func(s *altered, inner *memstore.Store) {
		s.renew = func(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
			return inner.Renew(ctx, id, min(extend, time.Millisecond))
		}
	}), []string{"Renew/Extends", "Renew/KeepsTheLeaseAlive", "Renew/MoreThanTheTTL"}},
	{"takes a shorter renewal at its word", with(func(s *altered, inner *memstore.Store) {
		s.renew = func(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
			l, err := inner.Renew(ctx, id, extend)
			l.Remaining = min(l.Remaining, extend)
			return l, err
		}
	}), []string{"Renew/LessNeverMovesTheDeadlineEarlier"}},
	{"refuses more and claims to extend", with(func(s *altered, inner *memstore.Store) {
		s.renew = func(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
			if l, err := inner.Get(ctx, id.Group); err == nil && l.Held() && extend > l.TTL {
				return baton.Lease{}, &baton.InvalidTTLError{Field: "extend", TTL: extend, Max: l.TTL}
			}
			return inner.Renew(ctx, id, extend)
		}
	}), []string{"Renew/MoreThanTheTTL"}},
	{"extends and says it does not", with(func(s *altered, _ *memstore.Store) {
		s.guarantees = func(g baton.Guarantees) baton.Guarantees { g.Extends = false; return g }
	}), []string{"Renew/MoreThanTheTTL"}},
	{"acknowledges every renewal", with(func(s *altered, inner *memstore.Store) {
		s.renew = func(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
			l, err := inner.Renew(ctx, id, extend)
			if errors.Is(err, baton.ErrNotLeader) {
				return baton.Lease{Group: id.Group, NodeID: id.NodeID, InstanceID: id.InstanceID, Term: id.Term, TTL: extend, Remaining: extend}, nil
			}
			return l, err
		}
	}), []string{
		"Renew/RefusedOnceOver", "Renew/UnknownLeadership", "ExactTerm/StaleRequestsAfterATakeover", "ExactTerm/NearMisses",
		"Release/EndsTheLeadership", "Expiry/StaleRequestsAfterATakeover", "Concurrency/HistoryIsLinearizable",
	}},
	{"matches the node alone", with(func(s *altered, inner *memstore.Store) {
		current := func(ctx context.Context, id baton.LeaseID) baton.LeaseID {
			if l, err := inner.Get(ctx, id.Group); err == nil && id.Validate() == nil && l.NodeID == id.NodeID {
				return l.ID()
			}
			return id
		}
		s.renew = func(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
			return inner.Renew(ctx, current(ctx, id), extend)
		}
		s.release = func(ctx context.Context, id baton.LeaseID) error { return inner.Release(ctx, current(ctx, id)) }
	}), []string{"ExactTerm/NearMisses", "ExactTerm/OldTermOfTheSameNode"}},
	{"loses releases", with(func(s *altered, inner *memstore.Store) {
		s.release = func(ctx context.Context, id baton.LeaseID) error {
			_, err := inner.Renew(ctx, id, time.Millisecond)
			return err
		}
	}), []string{"Release/OpensTheGroup", "Release/EndsTheLeadership", "Concurrency/HistoryIsLinearizable"}},
	{"accepts every release", with(func(s *altered, inner *memstore.Store) {
		s.release = func(ctx context.Context, id baton.LeaseID) error {
			err := inner.Release(ctx, id)
			if errors.Is(err, baton.ErrNotLeader) {
				return nil
			}
			return err
		}
	}), []string{"Release/UnknownLeadership", "Release/EndsTheLeadership"}},
	{"forgets which instance ended", with(func(s *altered, inner *memstore.Store) {
		s.acquire = func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
			l, err := inner.Acquire(ctx, group, c, ttl)
			var conflict *baton.ConflictError
			if errors.As(err, &conflict) && conflict.Reason == baton.ConflictInstanceEnded {
				scribe := candidate("node-scribe")
				if tmp, err := inner.Acquire(ctx, group, scribe, ttl); err == nil {
					_ = inner.Release(ctx, tmp.ID())
				}
				return inner.Acquire(ctx, group, c, ttl)
			}
			return l, err
		}
	}), []string{"Release/InstanceEnded", "RepeatAcquire/AfterExpiryIsRefused"}},
	{"grants a repeated acquire anew", with(func(s *altered, inner *memstore.Store) {
		s.acquire = func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
			l, err := inner.Get(ctx, group)
			if err != nil || !l.HeldBy(c) || ttl > l.TTL {
				return inner.Acquire(ctx, group, c, ttl)
			}
			evict(ctx, inner, group)
			scribe, err := inner.Acquire(ctx, group, candidate("node-scribe"), ttl)
			if err == nil {
				_ = inner.Release(ctx, scribe.ID())
			}
			return inner.Acquire(ctx, group, c, ttl)
		}
	}), []string{"RepeatAcquire/ReturnsTheSameLeadership", "RepeatAcquire/NeverShortens", "RepeatAcquire/ConcurrentRepeatsAgree"}},
	{"starts terms anew after a release", func(inner *memstore.Store) baton.Store {
		return forgetful(inner, func(s *altered, r *reborn) {
			release := s.release
			s.release = func(ctx context.Context, id baton.LeaseID) error {
				err := release(ctx, id)
				if err == nil {
					r.forget(id.Group)
				}
				return err
			}
		})
	}, []string{"Terms/RiseThroughRelease", "ExactTerm/OldTermOfTheSameNode", "Concurrency/OneWinner"}},
	{"starts terms anew after an expiry", func(inner *memstore.Store) baton.Store {
		return forgetful(inner, func(s *altered, r *reborn) {
			acquire := s.acquire
			s.acquire = func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
				past, err := inner.History(ctx, r.name(group))
				if err == nil && len(past) > 0 && past[len(past)-1].Reason == baton.Expired {
					r.forget(group)
				}
				return acquire(ctx, group, c, ttl)
			}
		})
	}, []string{"Terms/RiseThroughExpiry", "Expiry/OpensTheGroup"}},
	{"never lets a lease run out", with(func(s *altered, inner *memstore.Store) {
		s.get = func(ctx context.Context, group string) (baton.Lease, error) {
			l, err := inner.Get(ctx, group)
			if err == nil && l.Held() {
				_, _ = inner.Renew(ctx, l.ID(), l.TTL)
			}
			return l, err
		}
		s.acquire = func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
			_, _ = s.get(ctx, group)
			return inner.Acquire(ctx, group, c, ttl)
		}
	}), []string{"Expiry/OpensTheGroup", "Read/ChangesNothing"}},
	{"clips TTLs", with(func(s *altered, inner *memstore.Store) {
		clip := func(d time.Duration) time.Duration { return min(max(d, 10*time.Millisecond), baton.MaxTTL) }
		s.acquire = func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
			return inner.Acquire(ctx, group, c, clip(ttl))
		}
		s.renew = func(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
			return inner.Renew(ctx, id, clip(extend))
		}
	}), []string{"Validation/TTLs"}},
	{"answers nonsense with not leader", with(func(s *altered, inner *memstore.Store) {
		s.renew = func(ctx context.Context, id baton.LeaseID, extend time.Duration) (baton.Lease, error) {
			if id.Validate() != nil {
				return baton.Lease{}, &baton.NotLeaderError{ID: id}
			}
			return inner.Renew(ctx, id, extend)
		}
	}), []string{"Validation/IDs", "Validation/Terms"}},
	{"refuses long names", with(func(s *altered, inner *memstore.Store) {
		s.acquire = func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
			if len(group) > 100 {
				return baton.Lease{}, &baton.InvalidArgumentError{Field: "group", Value: group, Want: "at most 100"}
			}
			return inner.Acquire(ctx, group, c, ttl)
		}
	}), []string{"Validation/LongestIDs"}},
	{"ignores contexts", with(func(s *altered, inner *memstore.Store) {
		s.acquire = func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
			return inner.Acquire(context.WithoutCancel(ctx), group, c, ttl)
		}
	}), []string{"Context/EndedBefore"}},
	{"cannot be closed", with(func(s *altered, _ *memstore.Store) {
		s.close = func() error { return nil }
	}), []string{"Close/RefusesWhatComesLater", "Close/EndsWatches", "Close/EndsWaits"}},
	{"decides in two steps", with(func(s *altered, inner *memstore.Store) {
		s.acquire = func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
			l, err := inner.Get(ctx, group)
			if err != nil || l.Held() {
				return inner.Acquire(ctx, group, c, ttl)
			}
			timer := time.NewTimer(time.Millisecond)
			<-timer.C
			if l, err := inner.Get(ctx, group); err == nil && !l.HeldBy(c) {
				evict(ctx, inner, group)
			}
			return inner.Acquire(ctx, group, c, ttl)
		}
	}), []string{"Concurrency/OneWinner", "Concurrency/HistoryIsLinearizable"}},
}

// aliasing hands out and keeps one and the same metadata map.
func aliasing(inner *memstore.Store) baton.Store {
	var mu sync.Mutex
	maps := map[string]map[string]string{}
	swap := func(l baton.Lease) baton.Lease {
		mu.Lock()
		defer mu.Unlock()
		if m, ok := maps[l.InstanceID]; ok {
			l.Metadata = m
		}
		return l
	}
	s := &altered{Store: inner}
	s.acquire = func(ctx context.Context, group string, c baton.Candidate, ttl time.Duration) (baton.Lease, error) {
		l, err := inner.Acquire(ctx, group, c, ttl)
		if err == nil && c.Metadata != nil {
			mu.Lock()
			maps[c.InstanceID] = c.Metadata
			mu.Unlock()
		}
		return swap(l), err
	}
	s.get = func(ctx context.Context, group string) (baton.Lease, error) {
		l, err := inner.Get(ctx, group)
		return swap(l), err
	}
	return s
}
