package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"baton"
	"baton/internal/testserver"
	"baton/storetest/drill"
)

// A master that was made a replica while stores were connected to it is no
// judge any more: what it has may be old. It acknowledges nothing and refuses
// nobody, and goes on when it is the master again.
func TestAReplicaIsNoJudge(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	old, master := testserver.Start(t, testserver.Redis), impatient(t)
	s, at := open(t, configOf(t, old.Direct)), open(t, configOf(t, master.Direct))
	lost := drill.Lead(t, s, "lost", "i-1", time.Minute) // the new master never heard of it
	kept := drill.Lead(t, at, "kept", "i-1", time.Minute)
	demoted := follow(t, old, master)
	drill.Eventually(t, "the replica to know of the new master's lease", func() bool {
		return demoted.HGet(ctx, "baton:{kept}:record", "instance").Val() == "i-1"
	})
	c := baton.Candidate{NodeID: "node", InstanceID: "i-1"}
	for what, ask := range map[string]func() error{
		"renew a lease that it does not have":        func() error { _, err := s.Renew(ctx, lost.ID(), time.Minute); return err },
		"release a lease that it does not have":      func() error { return s.Release(ctx, lost.ID()) },
		"end a lease that it does not have":          func() error { return s.End(ctx, "lost", 1, baton.Ending{Reason: baton.SteppedDown}) },
		"a renewal that does not move the deadline":  func() error { _, err := s.Renew(ctx, kept.ID(), time.Second); return err },
		"an acquire that does not move the deadline": func() error { _, err := s.Acquire(ctx, "kept", c, time.Second); return err },
		"acquire what another holds": func() error {
			_, err := s.Acquire(ctx, "kept", baton.Candidate{NodeID: "other", InstanceID: "i-2"}, time.Minute)
			return err
		},
		"group":   func() error { _, err := s.Group(ctx, "lost"); return err },
		"groups":  func() error { _, err := s.Groups(ctx); return err },
		"get":     func() error { _, err := s.Get(ctx, "kept"); return err },
		"history": func() error { _, err := s.History(ctx, "kept"); return err },
		"await":   func() error { return s.Await(ctx, "lost", c) },
		"delete":  func() error { return s.DeleteGroup(ctx, "lost") },
		"watch": func() error {
			for _, err := range s.Watch(ctx, "kept", "") {
				return err
			}
			return nil
		},
	} {
		if err := ask(); !errors.Is(err, baton.ErrUnavailable) {
			t.Errorf("%s: a replica answered %v", what, err)
		}
	}
	if err := demoted.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Renew(ctx, kept.ID(), time.Second); err != nil {
		t.Errorf("renew at the master again: %v", err)
	}
}

// A master that misses its replicas may have been replaced by one of them. One
// that a script keeps busy answers nothing. Neither is "no".
func TestAMasterThatCannotAnswerNow(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := testserver.Start(t, testserver.Redis, testserver.Setting("busy-reply-threshold", "100"))
	s, rdb := open(t, configOf(t, server.Direct)), connect(t, server.Direct)
	l := drill.Lead(t, s, "g", "i-1", time.Minute)
	silent := func(why string) {
		t.Helper()
		_, renewed := s.Renew(ctx, l.ID(), time.Second)
		_, got := s.Get(ctx, "g")
		for what, err := range map[string]error{"renew": renewed, "get": got} {
			if !errors.Is(err, baton.ErrUnavailable) {
				t.Errorf("%s, %s: %v, want ErrUnavailable", why, what, err)
			}
		}
	}
	set := func(value string) {
		t.Helper()
		if err := rdb.ConfigSet(ctx, "min-replicas-to-write", value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("1")
	silent("without replicas")
	set("0")
	endless := make(chan error, 1)
	go func() { endless <- connect(t, server.Direct).Eval(ctx, "while true do end", nil).Err() }()
	drill.Eventually(t, "Redis to be busy", func() bool { return rdb.Ping(ctx).Err() != nil })
	silent("busy")
	if err := rdb.ScriptKill(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	<-endless
	if _, err := s.Renew(ctx, l.ID(), time.Minute); err != nil {
		t.Errorf("renew after all that: %v", err)
	}
}

// A clock that was set back leaves a deadline further away than the lease was
// ever granted for. The holder is not told so: set forward again, the clock would end what it then believes in.
func TestAClockThatIsSetBackPromisesNoMoreThanTheTTL(t *testing.T) {
	t.Parallel()
	s, rdb, prefix := one(t)
	l := drill.Lead(t, s, "g", "i-1", time.Minute)
	c := baton.Candidate{NodeID: "node", InstanceID: "i-1"}
	for what, ask := range map[string]func(context.Context) (baton.Lease, error){
		"get":     func(ctx context.Context) (baton.Lease, error) { return s.Get(ctx, "g") },
		"renew":   func(ctx context.Context) (baton.Lease, error) { return s.Renew(ctx, l.ID(), time.Minute) },
		"acquire": func(ctx context.Context) (baton.Lease, error) { return s.Acquire(ctx, "g", c, time.Minute) },
	} {
		rdb.HSet(t.Context(), prefix+":{g}:record", "until", time.Now().Add(time.Hour).UnixMilli())
		if now, err := ask(t.Context()); err != nil || now.Remaining > l.TTL || now.Remaining <= 0 {
			t.Errorf("%s: %v is left, %v: want at most the ttl, %v", what, now.Remaining, err, l.TTL)
		}
	}
}
