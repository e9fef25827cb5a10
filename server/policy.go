package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"baton"
)

// rules are a group's policy with every gap filled.
type rules struct {
	min, max     time.Duration
	retryAfter   time.Duration // 0: by what is left of the lease
	allowedNodes []string
	registered   bool
}

func (r rules) allows(node string) bool {
	return len(r.allowedNodes) == 0 || slices.Contains(r.allowedNodes, node)
}

func (r rules) checkTTL(ttl time.Duration) error {
	if ttl < r.min || ttl > r.max {
		return &baton.InvalidTTLError{Field: "lease_ttl_ms", TTL: ttl, Min: r.min, Max: r.max}
	}
	return nil
}

// retry is how long a loser is told to wait. The jitter keeps those who lost
// together from coming back together.
func (r rules) retry(left time.Duration) time.Duration {
	const least, most = 100 * time.Millisecond, 5 * time.Second
	if r.retryAfter > 0 {
		return r.retryAfter + rand.N(r.retryAfter/10+1)
	}
	left = min(max(left, least), most)
	from, to := max(left*8/10, least), min(left*12/10, most)
	return from + rand.N(to-from+1)
}

// clipDefault makes the default policy one that the store can keep.
func clipDefault(p baton.Policy, g baton.Guarantees) (rules, error) {
	if err := (baton.Group{ID: "default", Policy: p}).Validate(); err != nil {
		return rules{}, fmt.Errorf("default policy: %w", err)
	}
	r := rules{min: max(p.MinTTL, g.MinTTL), max: min(p.MaxTTL, g.MaxTTL), retryAfter: p.RetryAfter}
	r.max -= overStep(r.max, g)
	if r.min > r.max {
		return rules{}, fmt.Errorf("default policy allows %v to %v, the %s store %v to %v: nothing is left", p.MinTTL, p.MaxTTL, g.Store, g.MinTTL, g.MaxTTL)
	}
	return r, nil
}

// checkPolicy refuses bounds that the store cannot keep.
func checkPolicy(p baton.Policy, g baton.Guarantees) error {
	if p.MinTTL > 0 && (p.MinTTL < g.MinTTL || p.MinTTL > g.MaxTTL) {
		return &baton.InvalidArgumentError{Field: "policy.min_ttl", Value: p.MinTTL, Want: fmt.Sprintf("%v to %v, which is what the %s store can keep", g.MinTTL, g.MaxTTL, g.Store)}
	}
	if p.MaxTTL > 0 && (p.MaxTTL < g.MinTTL || p.MaxTTL > g.MaxTTL) {
		return &baton.InvalidArgumentError{Field: "policy.max_ttl", Value: p.MaxTTL, Want: fmt.Sprintf("%v to %v, which is what the %s store can keep", g.MinTTL, g.MaxTTL, g.Store)}
	}
	if over := overStep(p.MaxTTL, g); over != 0 {
		return &baton.InvalidArgumentError{Field: "policy.max_ttl", Value: p.MaxTTL, Want: fmt.Sprintf("a multiple of %v, to which the %s store rounds up", g.TTLStep, g.Store)}
	}
	return nil
}

// overStep is how far d lies above the last step of the store. A bound between
// two steps could not be kept, since the store rounds a TTL up.
func overStep(d time.Duration, g baton.Guarantees) time.Duration {
	return d % max(g.TTLStep, 1)
}

// policies remembers registrations for a moment, so that a campaign or a
// renewal does not cost the store a second question each time.
type policies struct {
	defaults rules
	age      time.Duration
	clock    baton.Clock

	mu     sync.Mutex
	known  map[string]known
	writes uint64 // by forget: an answer that was asked for before one is not kept
}

type known struct {
	group baton.Group
	at    time.Duration
}

const maxKnown = 10_000

func newPolicies(defaults rules, age time.Duration, clock baton.Clock) *policies {
	return &policies{defaults: defaults, age: age, clock: clock, known: map[string]known{}}
}

// recall returns what is known of the group; fresh tells whether it is young enough to judge by.
func (p *policies) recall(group string) (g baton.Group, exists, fresh bool, writes uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, exists := p.known[group]
	return k.group, exists, exists && p.clock.Now()-k.at < p.age, p.writes
}

func (p *policies) remember(g baton.Group, asked time.Duration, writes uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.writes != writes || p.age < 0 {
		return
	}
	if len(p.known) >= maxKnown {
		clear(p.known)
	}
	p.known[g.ID] = known{group: g, at: asked}
}

func (p *policies) forget(group string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes++
	delete(p.known, group)
}

// fill puts the defaults where g says nothing. Where g sets one bound beyond
// the other's default, the default gives way.
func (p *policies) fill(g baton.Group) rules {
	r := p.defaults
	r.allowedNodes, r.registered = g.AllowedNodes, g.Version != 0
	if g.Policy.RetryAfter > 0 {
		r.retryAfter = g.Policy.RetryAfter
	}
	lo, hi := g.Policy.MinTTL, g.Policy.MaxTTL
	if lo > 0 {
		r.min, r.max = lo, max(r.max, lo)
	}
	if hi > 0 {
		r.min, r.max = min(r.min, hi), hi
	}
	return r
}

// staleness says what to do when the store does not tell a group's policy.
type staleness bool

const (
	freshRules staleness = false
	// staleRules judges by what was last known: a renewal must not fail because a policy could not be read.
	staleRules staleness = true
)

// rules returns what holds for the group. Where groups are explicit, one that
// is not registered is baton.ErrNotFound.
func (s *Service) rules(ctx context.Context, group string, st staleness) (rules, error) {
	if s.registry == nil {
		return s.policies.defaults, nil
	}
	if s.recent != nil && s.policies.age > 0 {
		if g, known := s.recent.RecentGroup(group, s.policies.age); known {
			return s.checked(g)
		}
	}
	g, exists, fresh, writes := s.policies.recall(group)
	if !fresh {
		asked := s.cfg.Clock.Now()
		now, err := ask(ctx, s, "read the policy of group "+group, func(ctx context.Context) (baton.Group, error) {
			return s.registry.Group(ctx, group)
		})
		switch {
		case err == nil:
			g = now
		case errors.Is(err, baton.ErrNotFound):
			g = baton.Group{ID: group}
		case st == staleRules && exists:
			return s.policies.fill(g), nil
		default:
			return rules{}, err
		}
		s.policies.remember(g, asked, writes)
	}
	return s.checked(g)
}

// checked are the rules of a group that may be used at all.
func (s *Service) checked(g baton.Group) (rules, error) {
	r := s.policies.fill(g)
	if s.cfg.ExplicitGroups && !r.registered {
		return rules{}, fmt.Errorf("group %q is not registered: %w", g.ID, baton.ErrNotFound)
	}
	return r, nil
}

// recently is a registry that has a copy at hand. RecentGroup returns a
// registration, of version 0 if there is none, as it was no longer than age ago;
// known is false if the copy may be older.
type recently interface {
	RecentGroup(id string, age time.Duration) (g baton.Group, known bool)
}
