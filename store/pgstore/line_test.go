package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"baton"
	"baton/internal/storecall"
	"baton/storetest/drill"
)

// A holder that died before it could hand over does not keep the successor that
// it was told of from going first.
func TestSuccessorIsCalledFirstWhenTheEndingLeaseRunsOut(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	const ttl = 2 * time.Second
	for group := range drill.Tries(t) {
		begun := time.Now()
		l := o.lead(group, "a", ttl)
		called := o.queue(group, "first", "heir")
		err := o.End(t.Context(), group, l.Term, baton.Ending{Reason: baton.Transferred, Successor: "node-heir"})
		if errors.Is(err, baton.ErrNotLeader) {
			continue // held up: it has run out before
		}
		if err != nil {
			t.Fatal(err)
		}
		who := within(t, "somebody called", called)
		if who == "heir" {
			return
		}
		if time.Since(begun) < ttl+700*time.Millisecond { // else the turn of the successor may have passed
			t.Fatalf("%s is called first: want the successor", who)
		}
	}
}

// Nobody was there to write down that the lease ran out, and the first in line
// is dead. The second is called a second later, and then the group is open to it.
func TestADeadWaiterCostsOneTurnAfterAnExpiry(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	o.lead("g", "a", 2*time.Second)
	ctx, die := context.WithCancel(t.Context())
	dead := make(chan error)
	go func() { dead <- o.Await(ctx, "g", candidate("dead")) }()
	drill.Eventually(t, "the first in line", func() bool { return ask[int](o, `SELECT count(*) FROM baton.place`) == 1 })
	called := o.queue("g", "second")
	die()
	<-dead
	within(t, "the second called", called)
	if _, err := o.Acquire(t.Context(), "g", candidate("second"), time.Minute); err != nil {
		t.Errorf("acquire by the one that was called: %v", err)
	}
}

// Hints are nothing but hints: a group that opened without one, and one that
// opened while nobody could hear, are found all the same.
func TestWithoutHints(t *testing.T) {
	t.Parallel()
	t.Run("none was given", func(t *testing.T) {
		t.Parallel()
		o := newOne(t)
		o.lead("g", "a", baton.MaxTTL)
		called := o.queue("g", "next")
		o.exec(`UPDATE baton.lease SET ends = clock_timestamp() WHERE grp = 'g'`)
		within(t, "the next one called", called)
	})
	t.Run("nobody heard", func(t *testing.T) {
		t.Parallel()
		o := newOne(t)
		l := o.lead("g", "a", baton.MaxTTL)
		called := o.queue("g", "next")
		drill.Eventually(t, "the listener cut off", func() bool {
			return ask[int](o, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' || $1 || '%'`, o.schema) > 0
		})
		o.release(l)
		within(t, "the next one called", called)
		drill.Eventually(t, "another listener", func() bool {
			return ask[int](o, `SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' || $1 || '%'`, o.schema) == 1
		})
	})
}

// One vacancy calls one of many, in as many processes: the others do not even
// ask, unless the one that was called does not come.
func TestOneVacancyCallsOne(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	var others [10]*one
	for i := range others {
		others[i] = &one{Store: open(t, o.config()), t: t, raw: o.raw, url: o.url, schema: o.schema}
	}
	for group := range drill.Tries(t) {
		l := o.lead(group, "a", baton.MaxTTL)
		var called []<-chan string
		for i, other := range others {
			called = append(called, other.queue(group, fmt.Sprint("w-", i)))
		}
		vacant := time.Now()
		o.release(l)
		within(t, "the first called", called[0])
		if _, err := o.Acquire(t.Context(), group, candidate("w-0"), baton.MaxTTL); err != nil {
			t.Fatal(err)
		}
		if time.Since(vacant) > 700*time.Millisecond {
			continue // the turn of the first may have passed
		}
		_ = storecall.Pause(t.Context(), 1500*time.Millisecond)
		for i, c := range called[1:] {
			if len(c) > 0 {
				t.Errorf("number %d was called as well", i+1)
			}
		}
		return
	}
}

// A leader that stays for months does not let the places of all who came and
// went meanwhile pile up.
func TestWhoComesIntoLineClearsAwayTheDead(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	o.lead("g", "a", baton.MaxTTL)
	o.queue("g", "alive")
	o.exec(`INSERT INTO baton.place SELECT grp, 'gone', n::text, nextval('baton.place_number'), at, at
		FROM generate_series(1, 5) n, (VALUES ('g'), ('h')) g (grp), (VALUES (clock_timestamp() - interval '1 minute')) past (at)`)
	o.queue("g", "new")
	for group, want := range map[string]int{"g": 2, "h": 5} {
		if n := ask[int](o, `SELECT count(*) FROM baton.place WHERE grp = $1`, group); n != want {
			t.Errorf("%d places of group %s: want %d", n, group, want)
		}
	}
}
