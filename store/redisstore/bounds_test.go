package redisstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"baton"
	"baton/store/redisstore"
	"baton/storetest/drill"
)

// slow lets every script take its time.
type slow struct {
	hook
	each time.Duration
}

func (s *slow) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(strings.ToLower(cmd.Name()), "eval") {
			select {
			case <-time.After(s.each):
			case <-ctx.Done():
				cmd.SetErr(ctx.Err())
				return ctx.Err()
			}
		}
		return next(ctx, cmd)
	}
}

// A renewal may take two scripts. They share one timeout: two of these would
// be answered only by a store that has one for each.
func TestTheTimeoutIsThatOfTheWholeCall(t *testing.T) {
	t.Parallel()
	s, rdb, prefix := one(t)
	l := drill.Lead(t, s, "g", "i-1", time.Minute)
	if err := s.End(t.Context(), "g", l.Term, baton.Ending{Reason: baton.SteppedDown}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Renew(t.Context(), l.ID(), time.Minute); err != nil {
		t.Fatal(err) // Redis knows the scripts from here on
	}
	late := insist(t, redisstore.Config{Client: rdb, Prefix: prefix, Timeout: time.Second})
	rdb.AddHook(&slow{each: 700 * time.Millisecond})
	if l, err := late.Renew(t.Context(), l.ID(), time.Minute); !errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("a renewal that took longer than the timeout: %+v, %v", l, err)
	}
}

// overdue is a context that is about to end: its deadline has passed.
type overdue struct{ context.Context }

func (overdue) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

// Whoever gives little time is told that it is over, not that Redis is away.
func TestTheDeadlineOfTheCallerIsNotAnOutage(t *testing.T) {
	t.Parallel()
	s, _, _ := one(t)
	ctx := overdue{t.Context()}
	_, err := s.Get(ctx, "g")
	for what, err := range map[string]error{"get": err, "await": s.Await(ctx, "g", baton.Candidate{NodeID: "n", InstanceID: "i"})} {
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, baton.ErrUnavailable) {
			t.Errorf("%s: %v, want the context's error", what, err)
		}
	}
}

// What docs/stores/redis.md says to do after a flush leaves no group out of the list.
func TestAGroupWhoseTermsWereRaisedByHandIsListed(t *testing.T) {
	t.Parallel()
	s, rdb, prefix := one(t)
	rdb.HSet(t.Context(), prefix+":{g}:term", "last", 1000000)
	if l := drill.Lead(t, s, "g", "i-1", time.Minute); l.Term != 1000001 {
		t.Errorf("term %d", l.Term)
	}
	all, err := s.Groups(t.Context())
	if err != nil || !slices.ContainsFunc(all, func(g baton.Group) bool { return g.ID == "g" }) {
		t.Errorf("groups: %+v, %v: want g", all, err)
	}
}

// Redis keeps milliseconds. What is told to be left is never more than what is
// left until Redis lets somebody else in, not even by a part of one.
func TestNoMoreIsToldThanIsLeft(t *testing.T) {
	t.Parallel()
	s, rdb, prefix := one(t)
	c := baton.Candidate{NodeID: "node", InstanceID: "i-1"}
	l := drill.Lead(t, s, "g", "i-1", time.Minute)
	for n := range 100 {
		ttl := time.Minute + time.Duration(n)*time.Second
		for what, ask := range map[string]func() (baton.Lease, error){
			"get":     func() (baton.Lease, error) { return s.Get(t.Context(), "g") },
			"renew":   func() (baton.Lease, error) { return s.Renew(t.Context(), l.ID(), time.Minute) },
			"extend":  func() (baton.Lease, error) { return s.Renew(t.Context(), l.ID(), ttl) },
			"acquire": func() (baton.Lease, error) { return s.Acquire(t.Context(), "g", c, ttl) },
		} {
			before := rdb.Time(t.Context()).Val()
			now, err := ask()
			if err != nil {
				t.Fatal(err)
			}
			until, err := rdb.HGet(t.Context(), prefix+":{g}:record", "until").Int64()
			if err != nil {
				t.Fatal(err)
			}
			if left := time.UnixMilli(until).Sub(before); now.Remaining > left {
				t.Fatalf("%s: %v is left of the lease, and %v is told", what, left, now.Remaining)
			}
		}
	}
}
