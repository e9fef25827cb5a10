package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"baton"
	"baton/internal/testserver"
	"baton/store/pgstore"
	"baton/storetest/drill"
)

func TestTermsSurviveTheLossOfTheRow(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	for n := range 3 {
		o.release(o.lead("g", fmt.Sprint("i-", n), time.Minute))
	}
	o.exec(`DELETE FROM baton.lease`)
	if l, err := o.Get(t.Context(), "g"); err != nil || l.Term != 3 || l.Held() {
		t.Errorf("without its row the group reads %+v, %v: want it vacant after term 3", l, err)
	}
	o.release(o.lead("g", "deleted", time.Minute))
	o.release(o.lead("h", "another", time.Minute))
	o.exec(`TRUNCATE baton.lease`)
	if l := o.lead("h", "truncated", time.Minute); l.Term != 5 {
		t.Errorf("term %d after 4", l.Term)
	}
}

// A group that is led is not opened by whoever removes rows.
func TestARowThatIsLedCannotBeRemoved(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	l := o.lead("g", "a", time.Minute)
	for _, sql := range []string{`DELETE FROM baton.lease`, `TRUNCATE baton.lease`} {
		if _, err := o.raw.Exec(t.Context(), o.in(sql)); err == nil || !strings.Contains(err.Error(), "led by node") {
			t.Errorf("%s: got %v, want it refused", sql, err)
		}
	}
	if _, err := o.Renew(t.Context(), l.ID(), time.Minute); err != nil {
		t.Errorf("renew: %v", err)
	}
}

// A group that is created, led and deleted while another acquires it for the
// first time: terms rise all the same.
func TestTermsRiseWhenAGroupComesAndGoes(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	var mu sync.Mutex
	granted := map[baton.Term]int{}
	var nodes sync.WaitGroup
	for n := range 6 {
		nodes.Go(func() {
			for i := range 40 {
				l, err := o.Acquire(t.Context(), "g", candidate(fmt.Sprint(n, "-", i)), time.Minute)
				if err != nil {
					if !errors.Is(err, baton.ErrHeld) {
						t.Errorf("acquire: %v", err)
					}
					continue
				}
				mu.Lock()
				granted[l.Term]++
				mu.Unlock()
				if err := o.Release(t.Context(), l.ID()); err != nil {
					t.Errorf("release: %v", err)
				}
				if err := o.DeleteGroup(t.Context(), "g"); err != nil && !errors.Is(err, baton.ErrNotFound) && !errors.Is(err, baton.ErrConflict) {
					t.Errorf("delete: %v", err)
				}
			}
		})
	}
	nodes.Wait()
	for term, times := range granted {
		if times > 1 {
			t.Errorf("term %d was granted %d times", term, times)
		}
	}
	t.Logf("%d terms", len(granted))
}

// Whatever a session or the database says, what is acknowledged is on disk, and
// a transaction that would read an old snapshot is refused.
func TestSettingsOfTheSessionDoNotCount(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	tx := o.begin()
	for sql, want := range map[string]string{"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply"} {
		if _, err := tx.Exec(t.Context(), "SET LOCAL synchronous_commit = "+sql); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), o.in(`SELECT baton.renew('none', 'n', 'i', 1, 1)`)); err != nil {
			t.Fatal(err)
		}
		var got string
		if err := tx.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&got); err != nil || got != want {
			t.Errorf("synchronous_commit %s: the transaction commits with %q, %v, want %q", sql, got, err, want)
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{"repeatable read", "serializable"} {
		_, err := o.raw.Exec(t.Context(), o.in(`BEGIN ISOLATION LEVEL `+level+`; SELECT baton.renew('none', 'n', 'i', 1, 1); COMMIT`))
		if err == nil || !strings.Contains(err.Error(), "want read committed") {
			t.Errorf("%s: got %v, want it refused", level, err)
		}
	}

	server := testserver.Start(t, testserver.Postgres,
		testserver.Setting("default_transaction_isolation", "serializable"), testserver.Setting("synchronous_commit", "off"))
	strict := newOneAt(t, server.Direct)
	l := strict.lead("g", "a", time.Minute)
	if _, err := strict.Renew(t.Context(), l.ID(), time.Minute); err != nil {
		t.Errorf("renew where transactions are serializable by default: %v", err)
	}
	strict.release(l)
}

// What Postgres rolled back is sent again.
func TestARequestThatWasRolledBackIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"40001", "40P01"} {
		o := newOne(t)
		o.exec(`CREATE SEQUENCE baton.attempts;
			CREATE FUNCTION baton.fail() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN
				IF nextval('baton.attempts') % 3 <> 0 THEN RAISE EXCEPTION 'as if' USING ERRCODE = '` + code + `'; END IF;
				RETURN NEW;
			END $$;
			CREATE TRIGGER fail BEFORE UPDATE ON baton.lease FOR EACH ROW EXECUTE FUNCTION baton.fail()`)
		l := o.lead("g", "a", time.Minute)
		if l.Term != 1 {
			t.Errorf("%s: granted term %d, want 1", code, l.Term)
		}
		o.release(l)
	}
}

// The answer to a commit is lost. The outcome is unknown, and never "no".
func TestCommitWithoutAnswer(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Postgres)
	o := newOneAt(t, server.Direct)
	const timeout = time.Second
	s := insist(t, pgstore.Config{URL: server.URL, Schema: o.schema, Timeout: timeout, MaxConns: 1})
	ctx, a := t.Context(), candidate("a")
	unknown := baton.LeaseID{Group: "other", NodeID: "n", InstanceID: "i", Term: 1}
	lost := func(what string, call func() error, effect func(now baton.Lease) bool) {
		t.Helper()
		for range drill.Tries(t) {
			// The connection is made and the statements are prepared: what is lost is the answer to the request.
			var begun time.Time
			drill.Eventually(t, "a connection", func() bool {
				begun = time.Now()
				_, first := s.Acquire(ctx, "other", a, time.Minute)
				_, second := s.Renew(ctx, unknown, time.Minute)
				return first == nil && errors.Is(second, baton.ErrNotLeader) && errors.Is(s.Release(ctx, unknown), baton.ErrNotLeader)
			})
			server.Cut(t, testserver.ToClient)
			wantKind(t, what+" without an answer", call(), baton.ErrUnavailable)
			took := time.Since(begun)
			// Postgres may be held up, too.
			var now baton.Lease
			var err error
			for until := time.Now().Add(10 * time.Second); time.Now().Before(until); <-time.After(20 * time.Millisecond) {
				if now, err = o.Get(ctx, "g"); err != nil || effect(now) {
					break
				}
			}
			server.Heal(t)
			if err == nil && effect(now) {
				return
			}
			if took < timeout+timeout/4 {
				t.Errorf("%s without an answer leaves %+v, %v: want it done", what, now, err)
				return
			}
			// Held up: what was given to a connection that had been idle is a ping, and not the request.
		}
	}
	lost("acquire", func() error { _, err := s.Acquire(ctx, "g", a, time.Minute); return err },
		func(now baton.Lease) bool { return now.HeldBy(a) })
	var l baton.Lease
	drill.Eventually(t, "an answer", func() bool {
		var err error
		l, err = s.Acquire(ctx, "g", a, time.Minute)
		return err == nil
	})
	if l.Term != 1 {
		t.Errorf("asked again, it has term %d: want the 1 that it had won", l.Term)
	}
	lost("renew", func() error { _, err := s.Renew(ctx, l.ID(), 2*time.Minute); return err },
		func(now baton.Lease) bool { return now.TTL == 2*time.Minute })
	lost("release", func() error { return s.Release(ctx, l.ID()) },
		func(now baton.Lease) bool { return !now.Held() })
}

// With a synchronous standby that is away, nothing is acknowledged, not even
// where the session would not wait for it; and what happened meanwhile is found when it is back.
// Nobody is refused either: whoever is asked may be an old primary that knows of nothing.
func TestNothingIsAcknowledgedWithoutTheSynchronousStandby(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Postgres)
	o := newOneAt(t, server.Direct)
	l := o.lead("held", "a", baton.MaxTTL)
	s := insist(t, pgstore.Config{URL: server.Direct + "&synchronous_commit=local", Schema: o.schema, Timeout: time.Second})
	standby := func(name string) {
		t.Helper()
		o.exec(`ALTER SYSTEM SET synchronous_standby_names = '` + name + `'`)
		o.exec(`SELECT pg_reload_conf()`)
		drill.Eventually(t, "the setting", func() bool { return ask[string](o, `SHOW synchronous_standby_names`) == name })
	}
	o.exec(`CREATE TABLE probe ()`)
	standby("ghost")
	// Commits begin to wait when another process of the server's has read the setting, too.
	writing, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	writer.Go(func() {
		for writing.Err() == nil {
			_, _ = o.raw.Exec(writing, `INSERT INTO probe DEFAULT VALUES`)
		}
	})
	drill.Eventually(t, "a commit that waits", func() bool {
		return ask[int](o, `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`) > 0
	})
	stop()
	writer.Wait()
	_, err := s.Acquire(t.Context(), "g", candidate("a"), baton.MaxTTL)
	wantKind(t, "acquire", err, baton.ErrUnavailable)
	_, err = s.Renew(t.Context(), l.ID(), time.Minute)
	wantKind(t, "renew", err, baton.ErrUnavailable)
	unknown := baton.LeaseID{Group: "unknown", NodeID: "n", InstanceID: "i", Term: 1}
	var refusals sync.WaitGroup
	for what, refused := range map[string]func() error{
		"acquire what is held": func() error { _, err := s.Acquire(t.Context(), "held", candidate("b"), time.Minute); return err },
		"register with a version that is not there": func() error {
			_, err := s.PutGroup(t.Context(), baton.Group{ID: "held", Version: 7})
			return err
		},
		"renew a group that is not known":   func() error { _, err := s.Renew(t.Context(), unknown, time.Minute); return err },
		"release a group that is not known": func() error { return s.Release(t.Context(), unknown) },
		"end in a group that is not known":  func() error { return s.End(t.Context(), "unknown", 1, baton.Ending{Reason: baton.SteppedDown}) },
	} {
		refusals.Go(func() { wantKind(t, what, refused(), baton.ErrUnavailable) })
	}
	refusals.Wait()
	standby("")
	drill.Eventually(t, "an answer", func() bool {
		l, err = s.Acquire(t.Context(), "g", candidate("a"), baton.MaxTTL)
		return !errors.Is(err, baton.ErrUnavailable)
	})
	if err != nil || l.Term != 1 {
		t.Errorf("asked again: %+v, %v, want term 1", l, err)
	}
}

func TestTermsAreUsedUp(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	o.release(o.lead("old", "a", time.Minute))
	o.exec(`UPDATE baton.store SET floor = $1`, int64(baton.MaxTerm))
	for _, group := range []string{"old", "new"} {
		_, err := o.Acquire(t.Context(), group, candidate("b"), time.Minute)
		var conflict *baton.ConflictError
		if !errors.As(err, &conflict) || conflict.Reason != baton.ConflictTermsExhausted {
			t.Errorf("group %s: got %v, want its terms to be used up", group, err)
		}
	}
	if _, err := o.Group(t.Context(), "new"); !errors.Is(err, baton.ErrNotFound) {
		t.Errorf("a group whose only candidate was refused: got %v, want it unknown", err)
	}
}

// Those who wait and watch, as many as there are, keep no renewal from a connection.
func TestWaitsDoNotUseUpTheConnections(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	cfg := o.config()
	cfg.MaxConns = 1
	s := open(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	var crowd sync.WaitGroup
	defer crowd.Wait()
	defer cancel()
	l := o.lead("g", "a", time.Minute)
	const many = 60
	for i := range many {
		crowd.Go(func() { _ = s.Await(ctx, "g", candidate(fmt.Sprint("w-", i))) })
		crowd.Go(func() {
			for range s.Watch(ctx, fmt.Sprint("g-", i), "") {
				continue
			}
		})
	}
	for range 50 {
		if _, err := s.Renew(t.Context(), l.ID(), time.Minute); err != nil {
			t.Fatalf("renew: %v", err)
		}
	}
	drill.Eventually(t, "all in line", func() bool { return ask[int](o, `SELECT count(*) FROM baton.place`) == many })
	if n := ask[int](o, `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'baton' AND query LIKE '%' || $1 || '%'`, o.schema); n > 20 {
		t.Errorf("%d connections", n)
	}
}

func TestHistoryKeepsAHundredAndOlderCursorsAreAGap(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	state := func(group string, after baton.Cursor) baton.Event {
		t.Helper()
		for ev, err := range o.Watch(t.Context(), group, after) {
			if err != nil {
				t.Fatal(err)
			}
			return ev
		}
		return baton.Event{}
	}
	first := state("g", "")
	const terms = 120
	var kept baton.Event
	for n := range terms - 1 {
		l := o.lead("g", fmt.Sprint("i-", n), time.Minute)
		if n == 30 {
			kept = state("g", "")
		}
		o.release(l)
	}
	o.lead("g", "present", time.Minute)
	past, err := o.History(t.Context(), "g")
	if err != nil || len(past) != 100 {
		t.Fatalf("%d terms are remembered, %v: want 100", len(past), err)
	}
	for i, p := range past {
		if want := baton.Term(terms - 99 + i); p.Term != want || (p.Reason == "") != (p.Term == terms) {
			t.Fatalf("line %d of the history is %+v: want term %d", i, p, want)
		}
	}
	if ev := state("g", first.Cursor); !ev.Gap || ev.Term != terms {
		t.Errorf("after a cursor whose terms are forgotten: %+v, want the present state as a gap", ev)
	}
	if ev := state("g", kept.Cursor); ev.Gap || ev.Term != kept.Term || ev.Type != baton.LeaderLost {
		t.Errorf("after a cursor that is remembered: %+v, want the end of term %d", ev, kept.Term)
	}
	if ev := state("h", kept.Cursor); !ev.Gap || ev.Reason != "" {
		t.Errorf("after the cursor of another group: %+v, want the state as a gap", ev)
	}
}

// A watch that is under way when the group is deleted goes on with the next leader.
func TestWatchThroughADeletion(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	events := make(chan baton.Event, 10)
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ev, err := range o.Watch(ctx, "g", "") {
			if err == nil {
				events <- ev
			}
		}
	})
	defer watching.Wait()
	defer cancel()
	within(t, "the state", events)
	l := o.lead("g", "a", time.Minute)
	within(t, "the leader", events)
	o.release(l)
	if ev := within(t, "the loss", events); ev.Reason != baton.Resigned {
		t.Errorf("lost: %+v", ev)
	}
	if err := o.DeleteGroup(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	next := o.lead("g", "b", time.Minute)
	if ev := within(t, "the next leader", events); ev.Term != next.Term || ev.NodeID != next.NodeID || ev.Gap {
		t.Errorf("after the deletion: %+v, want term %d", ev, next.Term)
	}
}

// Nobody campaigns, and a watch tells all the same that the lease ran out.
func TestAWatchSeesAnExpiryThatNobodyElseLooksFor(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	l := o.lead("g", "a", time.Second)
	for ev, err := range o.Watch(t.Context(), "g", "") {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == baton.LeaderLost {
			if ev.Term != l.Term || ev.Reason != baton.Expired {
				t.Errorf("got %+v", ev)
			}
			break
		}
	}
	past, err := o.History(t.Context(), "g")
	if err != nil || len(past) != 1 || past[0].Reason != baton.Expired || past[0].EndedAt.Sub(past[0].ElectedAt) != time.Second {
		t.Errorf("history: %+v, %v: want one term that lasted its second", past, err)
	}
}

// Texts that a column of Postgres does not take are kept as far as they can be.
func TestOddTexts(t *testing.T) {
	t.Parallel()
	o := newOne(t)
	c := candidate("a")
	c.Metadata = map[string]string{"nul": "a\x00b", "quote": `"'\`, "": "ünï\u2028"}
	if _, err := o.Acquire(t.Context(), "g", c, time.Minute); err != nil {
		t.Fatal(err)
	}
	l, err := o.Get(t.Context(), "g")
	if err != nil || fmt.Sprint(l.Metadata) != fmt.Sprint(c.Metadata) {
		t.Errorf("metadata %q, %v: want %q", l.Metadata, err, c.Metadata)
	}
	if err := o.End(t.Context(), "g", l.Term, baton.Ending{Reason: baton.SteppedDown, Note: "a\x00b\xff"}); err != nil {
		t.Fatal(err)
	}
	if l, err = o.Get(t.Context(), "g"); err != nil || l.Ending == nil || l.Ending.Note != "a\uFFFDb\uFFFD" {
		t.Errorf("ending %+v, %v", l.Ending, err)
	}
}
