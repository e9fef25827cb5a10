package pgfence_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"baton"
	"baton/fence"
	"baton/fence/fencetest"
	"baton/fence/pgfence"
	"baton/internal/testserver"
)

// TestCommitWithoutAnswer cuts the connection while the commit is on its way,
// there or back: every content lands once, no number is used twice, and the
// leader does not resign over its own repeat.
func TestCommitWithoutAnswer(t *testing.T) {
	server := testserver.Start(t, testserver.Postgres)
	pool := open(t, server.URL)
	ledger := newLedger(t, pool, pgfence.Config{})
	l := lead(t, token(5, "a"), time.Hour)
	ctx, cancel := context.WithTimeout(l.Context(), 2*time.Minute)
	defer cancel()
	sequence, err := fence.Adopt(ctx, ledger, "log", l.Token())
	if err != nil {
		t.Fatal(err)
	}
	sent := map[int64]bool{}
	write := func(value string, cut testserver.Direction) int64 {
		t.Helper()
		first := true
		n, err := sequence.Do(ctx, fence.Write{
			Send: func(ctx context.Context, c fence.Claim) error {
				if seq, _ := c.Seq(); sent[seq] {
					t.Errorf("number %d was sent twice", seq)
				} else {
					sent[seq] = true
				}
				if !first || cut == "" {
					return ledger.Append(ctx, "log", c, value, nil)
				}
				first = false
				impatient, cancel := context.WithCancel(ctx)
				defer cancel()
				err := ledger.Write(impatient, "log", c, func(ctx context.Context, tx pgfence.Tx) error {
					_, err := tx.Exec(ctx, insertSQL, row("log", c, value)...)
					server.Cut(t, cut)
					time.AfterFunc(time.Second, cancel) // no answer comes from here on
					return err
				})
				var aborted *fence.AbortedError
				if err == nil || fence.Refused(err) || errors.As(err, &aborted) {
					t.Errorf("a commit that got no answer: got %v, want an unknown outcome", err)
				}
				server.Heal(t) // what was held back arrives now
				return err
			},
			Landed: func(ctx context.Context, c fence.Claim) (bool, error) {
				log, err := readLog(ctx, pool, "log")
				return slices.ContainsFunc(log, func(e fencetest.Entry) bool { return e.Claim == c }), err
			},
		})
		if err != nil {
			t.Fatalf("write %s: %v", value, err)
		}
		return n
	}
	contents := []struct {
		value string
		cut   testserver.Direction
	}{
		{"calm", ""},
		{"the answer is lost", testserver.ToClient},
		{"calm again", ""},
		{"the commit is held back", testserver.ToServer},
		{"the answer is lost once more", testserver.ToClient},
		{"calm at last", ""},
	}
	numbers := map[int64]string{}
	for _, c := range contents {
		n := write(c.value, c.cut)
		if other, used := numbers[n]; used {
			t.Errorf("%q got number %d, which %q has", c.value, n, other)
		}
		numbers[n] = c.value
	}
	if !l.Valid() {
		t.Errorf("the leadership ended: %v", l.Cause())
	}
	log, err := readLog(ctx, pool, "log")
	if err != nil {
		t.Fatal(err)
	}
	if len(log) != len(contents) {
		t.Fatalf("the log is %v, want each of %d contents once", log, len(contents))
	}
	for i, e := range log {
		if seq, _ := e.Claim.Seq(); e.Value != contents[i].value || numbers[seq] != e.Value {
			t.Errorf("entry %d is %v %q, want %q", i, e.Claim, e.Value, contents[i].value)
		}
	}
}

// TestDatabaseDown kills the server in the middle of a write and of an
// adoption: an error, no effect, no half-admitted token, and all goes on when
// it is back.
func TestDatabaseDown(t *testing.T) {
	server := testserver.Start(t, testserver.Postgres)
	pool := open(t, server.Direct)
	ledger := newLedger(t, pool, pgfence.Config{})
	a, b := token(5, "a"), token(6, "b")
	mustAdopt(t, ledger, "log", a)
	if err := ledger.Append(t.Context(), "log", fence.Ordered(a, 1), "before", nil); err != nil {
		t.Fatal(err)
	}
	err := ledger.Append(t.Context(), "log", fence.Ordered(a, 2), "lost", func() { server.Kill(t) })
	var aborted *fence.AbortedError
	if !errors.As(err, &aborted) {
		t.Errorf("write while the server dies: got %v, want it aborted", err)
	}
	down, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := ledger.Adopt(down, "log", b); err == nil || fence.Refused(err) {
		t.Errorf("adopt while the server is down: got %v, want an error that is no refusal", err)
	}
	if err := ledger.Advance(down, "log", fence.Ordered(a, 3)); err == nil || fence.Refused(err) {
		t.Errorf("advance while the server is down: got %v, want an error that is no refusal", err)
	}
	if _, err := ledger.Read(down, "log"); err == nil {
		t.Errorf("read while the server is down: no error")
	}
	server.Restart(t)
	if r := eventually(t, ledger); r.Token() != a || r.LastSeq != 1 {
		t.Errorf("after the restart the record is %v, want %v with last number 1", r, a)
	}
	if err := ledger.Append(t.Context(), "log", fence.Ordered(a, 4), "after", nil); err != nil {
		t.Error(err)
	}
	if r := mustAdopt(t, ledger, "log", b); r.LastSeq != 4 {
		t.Errorf("adopt: got last number %d, want 4", r.LastSeq)
	}
	log, err := readLog(t.Context(), pool, "log")
	if err != nil {
		t.Fatal(err)
	}
	if len(log) != 2 || log[0].Value != "before" || log[1].Value != "after" {
		t.Errorf("the log is %v", log)
	}
}

// Whoever cuts a write off may hit a connection that has gone back to its pool: an Adopt that is given it tries again.
func TestAdoptOnAConnectionThatIsCut(t *testing.T) {
	pool := openFast(t)
	others := openFast(t)
	ledger := newLedger(t, pool, pgfence.Config{})
	mustAdopt(t, ledger, "log", token(1, "a")) // as long as there is one connection, this is it
	for term := baton.Term(2); term < 12; term++ {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pid := conn.Conn().PgConn().PID()
		conn.Release()
		exec(t, others, "select pg_terminate_backend($1)", pid)
		mustAdopt(t, ledger, "log", token(term, "a"))
	}
}

// eventually reads the record as soon as the pool has noticed that its
// connections are gone.
func eventually(t *testing.T, l fence.Ledger) fence.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		r, err := l.Read(ctx, "log")
		if err == nil {
			return r
		}
		select {
		case <-ctx.Done():
			t.Fatalf("read: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
