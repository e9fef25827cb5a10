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
)

// slow lets every script take its time.
type slow struct {
	badLuck
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
	l := lead(t, s, "g", "i-1", time.Minute)
	if err := s.End(t.Context(), "g", l.Term, baton.Ending{Reason: baton.SteppedDown}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Renew(t.Context(), l.ID(), time.Minute); err != nil {
		t.Fatal(err) // Redis knows the scripts from here on
	}
	late := open(t, redisstore.Config{Client: rdb, Prefix: prefix, Timeout: time.Second})
	rdb.AddHook(&slow{each: 700 * time.Millisecond})
	if l, err := late.Renew(t.Context(), l.ID(), time.Minute); !errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("a renewal that took longer than the timeout: %+v, %v", l, err)
	}
}

// What docs/stores/redis.md says to do after a flush leaves no group out of the list.
func TestAGroupWhoseTermsWereRaisedByHandIsListed(t *testing.T) {
	t.Parallel()
	s, rdb, prefix := one(t)
	rdb.HSet(t.Context(), prefix+":{g}:term", "last", 1000000)
	if l := lead(t, s, "g", "i-1", time.Minute); l.Term != 1000001 {
		t.Errorf("term %d", l.Term)
	}
	all, err := s.Groups(t.Context())
	if err != nil || !slices.ContainsFunc(all, func(g baton.Group) bool { return g.ID == "g" }) {
		t.Errorf("groups: %+v, %v: want g", all, err)
	}
}
