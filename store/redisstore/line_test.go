package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"baton"
	"baton/store/redisstore"
	"baton/storetest/drill"
)

// counting counts the scripts that are sent.
type counting struct {
	hook
	scripts atomic.Int64
}

func (c *counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(strings.ToLower(cmd.Name()), "eval") {
			c.scripts.Add(1)
		}
		return next(ctx, cmd)
	}
}

// A vacancy wakes the first in line, and nobody else asks Redis anything.
func TestAVacancyWakesOne(t *testing.T) {
	t.Parallel()
	_, rdb, _ := one(t)
	count := &counting{}
	rdb.AddHook(count)
	prefix := freshPrefix()
	s := open(t, redisstore.Config{Client: rdb, Prefix: prefix})
	const waiting = 50
	for group := range drill.Tries(t) {
		held := drill.Lead(t, s, group, "i-0", time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		called := make(chan baton.Candidate, waiting)
		var waiters sync.WaitGroup
		for n := range waiting {
			c := baton.Candidate{NodeID: fmt.Sprint("node-", n), InstanceID: "i"}
			waiters.Go(func() {
				if s.Await(ctx, group, c) == nil {
					called <- c
				}
			})
		}
		drill.Eventually(t, "all of them to wait", func() bool {
			return rdb.ZCard(t.Context(), prefix+":{"+group+"}:line").Val() == waiting
		})
		// Who has just begun to wait looks twice, for what it did not hear.
		drill.Eventually(t, "a moment in which nobody asks", func() bool {
			before := count.scripts.Load()
			<-time.After(100 * time.Millisecond)
			return count.scripts.Load() == before
		})
		before, vacant := count.scripts.Load(), time.Now()
		drill.Release(t, s, held)
		first := <-called
		if _, err := s.Acquire(t.Context(), group, first, time.Minute); err != nil {
			t.Fatal(err)
		}
		asked, took := count.scripts.Load()-before, time.Since(vacant)
		cancel()
		waiters.Wait()
		if took > 100*time.Millisecond {
			continue // signs of life are among what was counted
		}
		if asked > 10 {
			t.Errorf("%d requests for one handover, with %d in line", asked, waiting)
		}
		return
	}
}

// When the clock of Redis is set back, what was dated before lies in the future.
// Whoever waits does not wait until then.
func TestTheLineSurvivesAClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	s, rdb, prefix := one(t)
	drill.Release(t, s, drill.Lead(t, s, "g", "i-0", time.Minute))
	hourAhead := time.Now().Add(time.Hour)
	rdb.HSet(t.Context(), prefix+":{g}:record", "ended", hourAhead.UnixMilli())
	rdb.ZAdd(t.Context(), prefix+":{g}:line", redis.Z{Score: 1, Member: "node-dead/i"})
	rdb.ZAdd(t.Context(), prefix+":{g}:signs", redis.Z{Score: float64(hourAhead.UnixMilli()), Member: "node-dead/i"})
	c := baton.Candidate{NodeID: "node-1", InstanceID: "i-1"}
	ctx, cancel := context.WithTimeout(t.Context(), drill.Patience)
	defer cancel()
	if err := s.Await(ctx, "g", c); err != nil {
		t.Fatalf("await: %v", err)
	}
	drill.Eventually(t, "the dead one to be forgotten", func() bool {
		_ = s.Await(ctx, "g", c) // prunes
		return rdb.ZScore(ctx, prefix+":{g}:line", "node-dead/i").Err() == redis.Nil
	})
}

// Nobody has led the group, or not for long. All who come at that moment are
// not called at once: the first is, and the second only when that one does not come.
func TestAnOpenGroupCallsOneAtATime(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(s *redisstore.Store, rdb *redis.Client, prefix string){
		"never led": func(*redisstore.Store, *redis.Client, string) {},
		"led long ago": func(s *redisstore.Store, rdb *redis.Client, prefix string) {
			drill.Release(t, s, drill.Lead(t, s, "g", "i-0", time.Minute))
			rdb.HSet(t.Context(), prefix+":{g}:record", "ended", time.Now().Add(-time.Minute).UnixMilli())
		},
	} {
		for range 10 {
			s, rdb, prefix := one(t)
			before(s, rdb, prefix)
			first, second := baton.Candidate{NodeID: "node-1", InstanceID: "i"}, baton.Candidate{NodeID: "node-2", InstanceID: "i"}
			begun := time.Now()
			if err := s.Await(t.Context(), "g", first); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			err := s.Await(ctx, "g", second)
			cancel()
			if time.Since(begun) > 700*time.Millisecond {
				continue // the turn of the first may have passed
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: the second was answered %v in the turn of the first", name, err)
			}
			if err := s.Await(t.Context(), "g", second); err != nil { // the first does not come
				t.Error(err)
			}
			break
		}
	}
}

// Eviction may take the signs of life alone. A place that nobody gives a sign
// for does not stay for as long as others wait.
func TestAPlaceWithoutASignOfLifeIsForgotten(t *testing.T) {
	t.Parallel()
	s, rdb, prefix := one(t)
	rdb.ZAdd(t.Context(), prefix+":{g}:line", redis.Z{Score: 1, Member: "node-dead/i"})
	if err := s.Await(t.Context(), "g", baton.Candidate{NodeID: "node-1", InstanceID: "i"}); err != nil {
		t.Fatal(err)
	}
	if err := rdb.ZScore(t.Context(), prefix+":{g}:line", "node-dead/i").Err(); err != redis.Nil {
		t.Errorf("the dead one is in line: %v", err)
	}
}

// The successor was restarted and has two places in line, one of them dead. It
// costs a second, and not the succession.
func TestASuccessorThatWasRestartedGoesFirst(t *testing.T) {
	t.Parallel()
	for range drill.Tries(t) {
		s, _, _ := one(t)
		l := drill.Lead(t, s, "g", "i-0", time.Minute)
		other, dead, heir := baton.Candidate{NodeID: "other", InstanceID: "i"},
			baton.Candidate{NodeID: "heir", InstanceID: "before"}, baton.Candidate{NodeID: "heir", InstanceID: "now"}
		begun := time.Now()
		for _, c := range []baton.Candidate{other, dead, heir} {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if err := s.Await(ctx, "g", c); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
		}
		called := make(chan string, 2)
		ctx, cancel := context.WithCancel(t.Context())
		var waiting sync.WaitGroup
		for _, c := range []baton.Candidate{other, heir} {
			waiting.Go(func() {
				if s.Await(ctx, "g", c) == nil {
					called <- c.NodeID
				}
			})
		}
		err := s.End(t.Context(), "g", l.Term, baton.Ending{Reason: baton.Transferred, Successor: "heir", Immediate: true})
		var conflict *baton.ConflictError
		if errors.As(err, &conflict) && conflict.Reason == baton.ConflictNotInLine {
			cancel()
			waiting.Wait()
			continue // the places of the heir have gone, and it is not back yet
		}
		if err != nil {
			t.Fatal(err)
		}
		first, took := <-called, time.Since(begun)
		cancel()
		waiting.Wait()
		if took > 1700*time.Millisecond {
			continue // more turns than one may have passed
		}
		if first != "heir" {
			t.Errorf("%s is called first: want the successor", first)
		}
		return
	}
}
