package pgfence_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"baton"
	"baton/fence"
	"baton/fence/fencetest"
	"baton/fence/pgfence"
	"baton/internal/testserver"
)

// patience is far beyond what anything here takes.
const patience = 2 * time.Minute

// freeze begins a transaction under l, writes in it, and leaves it there, as a
// process does that is stopped between its write and its commit.
func freeze(t *testing.T, pool *pgxpool.Pool, l *baton.Leadership, c fence.Claim) pgx.Tx {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := pgfence.Admit(l.Context(), tx, "log", c); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), insertSQL, row("log", c, "frozen")...); err != nil {
		t.Fatal(err)
	}
	return tx
}

func checkFrozen(t *testing.T, pool *pgxpool.Pool, frozen pgx.Tx, ledger fencetest.Subject) {
	t.Helper()
	if err := frozen.Commit(t.Context()); err == nil {
		t.Errorf("the frozen leader committed after its successor adopted")
	}
	if err := ledger.Append(t.Context(), "log", fence.Ordered(token(6, "b"), 9), "b", nil); err != nil {
		t.Errorf("write of the successor: %v", err)
	}
	log, err := readLog(t.Context(), pool, "log")
	if err != nil {
		t.Fatal(err)
	}
	if len(log) != 1 || log[0].Value != "b" {
		t.Errorf("the log is %v, want the successor's write alone", log)
	}
}

// TestFrozenLeaderIsEvicted: a leadership that was ended early, an hour before
// its lease, is frozen inside a transaction.
func TestFrozenLeaderIsEvicted(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		pool := openFast(t)
		ledger := newLedger(t, pool, pgfence.Config{})
		a := lead(t, token(5, "a"), time.Hour)
		mustAdopt(t, ledger, "log", a.Token())
		claim := fence.Unordered(a.Token())
		if ordered {
			claim = fence.Ordered(a.Token(), 1)
		}
		frozen := freeze(t, pool, a, claim)

		ctx, cancel := context.WithTimeout(t.Context(), patience)
		began := time.Now()
		r, err := ledger.Adopt(ctx, "log", token(6, "b"))
		t.Logf("adopt past a leader frozen in its transaction took %v", time.Since(began).Round(time.Millisecond))
		cancel()
		if err != nil {
			t.Fatalf("adopt: %v", err)
		}
		if r.LastSeq != 0 {
			t.Errorf("adopt: got last number %d of a write that never landed", r.LastSeq)
		}
		checkFrozen(t, pool, frozen, ledger)
	}
}

// TestFrozenLeaderTimesOut: the successor may not disconnect others, and the
// server ends the transaction when the leadership's time is up.
func TestFrozenLeaderTimesOut(t *testing.T) {
	url := testserver.Shared(t, testserver.Postgres).Direct
	pool := openFast(t)
	var schema string
	if err := pool.QueryRow(t.Context(), "select current_schema()").Scan(&schema); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, "drop role if exists fence_successor")
	exec(t, pool, "create role fence_successor login password 'x'")
	exec(t, pool, "grant usage on schema "+schema+" to fence_successor")
	exec(t, pool, "grant all on all tables in schema "+schema+" to fence_successor")
	t.Cleanup(func() {
		for _, sql := range []string{"drop owned by fence_successor", "drop role fence_successor"} {
			if _, err := pool.Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.User, cfg.ConnConfig.Password = "fence_successor", "x"
	cfg.ConnConfig.RuntimeParams["search_path"] = schema
	humble, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(humble.Close)

	a := lead(t, token(5, "a"), 6*time.Second)
	mustAdopt(t, newLedger(t, pool, pgfence.Config{}), "log", a.Token())
	frozen := freeze(t, pool, a, fence.Unordered(a.Token()))

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	if _, err := newLedger(t, humble, pgfence.Config{EvictAfter: 50 * time.Millisecond}).Adopt(ctx, "log", token(6, "b")); err != nil {
		t.Fatalf("adopt: %v", err)
	}
	t.Logf("adopt took %v, with at most 6s left of the frozen leadership", time.Since(began).Round(time.Millisecond))
	checkFrozen(t, pool, frozen, newLedger(t, pool, pgfence.Config{}))
}

// TestFrozenAdoptTimesOut: a leader is frozen between its Adopt and the commit
// of that, where it keeps out writers and successors alike.
func TestFrozenAdoptTimesOut(t *testing.T) {
	for _, settings := range [][]string{nil, {"idle_in_transaction_session_timeout", "1h"}} {
		pool := openFast(t, settings...)
		ledger := newLedger(t, pool, pgfence.Config{})
		frozen, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := frozen.Exec(t.Context(), "select baton_fence_adopt('log', 'payments', 5, 'a', 500)"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		began := time.Now()
		_, err = ledger.Adopt(ctx, "log", token(6, "b"))
		t.Logf("adopt past a leader frozen in its own took %v", time.Since(began).Round(time.Millisecond))
		cancel()
		if err != nil {
			t.Errorf("adopt: %v", err)
		}
		checkFrozen(t, pool, frozen, ledger)
	}
}

// TestStaleAdoptEvictsNobody: a leader of the past that adopts in vain does not
// disturb the one that leads.
func TestStaleAdoptEvictsNobody(t *testing.T) {
	pool := openFast(t)
	ledger := newLedger(t, pool, pgfence.Config{EvictAfter: time.Millisecond})
	b := token(6, "b")
	mustAdopt(t, ledger, "log", b)
	err := ledger.Append(t.Context(), "log", fence.Unordered(b), "b", func() {
		for _, past := range []baton.Token{token(5, "a"), token(6, "twin")} {
			if _, err := ledger.Adopt(t.Context(), "log", past); !errors.Is(err, fence.ErrStale) {
				t.Errorf("adopt %v: got %v, want stale", past, err)
			}
		}
		mustAdopt(t, ledger, "log", b) // again, by the one that has it
	})
	if err != nil {
		t.Errorf("write of the leader: %v", err)
	}
}

// TestOvertakenAdoptEvictsNobody: between the first look of an Adopt and its place
// in the line a later leadership has adopted, and has begun to write.
func TestOvertakenAdoptEvictsNobody(t *testing.T) {
	pool := openFast(t)
	// The later leadership has to be there before the Adopt loses its patience, also where the machine stands still.
	ledger := newLedger(t, pool, pgfence.Config{EvictAfter: 6 * time.Second})
	mustAdopt(t, ledger, "log", token(5, "a"))
	writer, err := pool.Begin(t.Context()) // holds what a write of the later leadership would
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Exec(t.Context(), "select pg_advisory_xact_lock_shared(baton_fence_key('log'))"); err != nil {
		t.Fatal(err)
	}
	var overtaken sync.WaitGroup
	overtaken.Go(func() {
		if _, err := ledger.Adopt(t.Context(), "log", token(6, "b")); !errors.Is(err, fence.ErrStale) {
			t.Errorf("adopt: got %v, want stale", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for waits := false; !waits; {
		const query = "select exists (select from pg_locks where locktype = 'advisory' and mode = 'ExclusiveLock' and not granted)"
		if err := pool.QueryRow(ctx, query).Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, pool, "update fenced_resource set max_token = 7, instance = 'c' where name = 'log'")
	overtaken.Wait()
	if err := writer.Commit(t.Context()); err != nil {
		t.Errorf("write of the leader: %v", err)
	}
}

// TestAdmitBoundsTheTransaction: the timeouts are what is left of the
// leadership, and never longer than what the caller has set.
func TestAdmitBoundsTheTransaction(t *testing.T) {
	pool := openFast(t)
	ledger := newLedger(t, pool, pgfence.Config{})
	a := lead(t, token(5, "a"), 8*time.Second)
	mustAdopt(t, ledger, "log", a.Token())
	for _, tt := range []struct {
		name     string
		set      string
		min, max time.Duration
	}{
		{"unset", "select", time.Millisecond, 8 * time.Second},
		{"longer", "set local statement_timeout = '1h'; set local idle_in_transaction_session_timeout = '2h'", time.Millisecond, 8 * time.Second},
		{"shorter", "set local statement_timeout = '5s'; set local idle_in_transaction_session_timeout = '5s'", 5 * time.Second, 5 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			batch := "begin; " + tt.set + "; select baton_fence_admit('log', 'payments', 5, 'a', 0, 8000);" +
				"select current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout'); rollback"
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Release()
			results, err := conn.Conn().PgConn().Exec(t.Context(), batch).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			for _, result := range results {
				if len(result.Rows) != 1 || len(result.Rows[0]) != 2 {
					continue
				}
				for _, value := range result.Rows[0] {
					d, err := time.ParseDuration(string(value))
					if err != nil || d < tt.min || d > tt.max {
						t.Errorf("got %s, want %v to %v", value, tt.min, tt.max)
					}
				}
			}
		})
	}
	err := ledger.Write(a.Context(), "log", fence.Unordered(a.Token()), func(ctx context.Context, tx pgfence.Tx) error {
		var idle string
		if err := tx.QueryRow(ctx, "select current_setting('idle_in_transaction_session_timeout')").Scan(&idle); err != nil {
			return err
		}
		if d, err := time.ParseDuration(idle); err != nil || d <= 0 || d > 8*time.Second {
			t.Errorf("idle_in_transaction_session_timeout is %s, want what is left of 8s", idle)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var idle string
	if err := pool.QueryRow(t.Context(), "select current_setting('idle_in_transaction_session_timeout')").Scan(&idle); err != nil || idle != "0" {
		t.Errorf("after the transaction the timeout is %s (%v), want it as it was", idle, err)
	}
}

// TestOverlookedRefusal: whoever ignores the error of Admit cannot commit.
func TestOverlookedRefusal(t *testing.T) {
	pool := openFast(t)
	ledger := newLedger(t, pool, pgfence.Config{})
	mustAdopt(t, ledger, "log", token(6, "b"))
	stale := fence.Unordered(token(5, "a"))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := pgfence.Admit(t.Context(), tx, "log", stale); !errors.Is(err, fence.ErrStale) {
		t.Errorf("admit: got %v, want stale", err)
	}
	_, _ = tx.Exec(t.Context(), insertSQL, row("log", stale, "overlooked")...)
	if err := tx.Commit(t.Context()); err == nil {
		t.Errorf("the transaction was committed")
	}
	if log, err := readLog(t.Context(), pool, "log"); err != nil || len(log) != 0 {
		t.Errorf("the log is %v (%v), want nothing", log, err)
	}
}

// TestSeveralResources: transactions that write to two resources, in either
// order, while both are being adopted.
func TestSeveralResources(t *testing.T) {
	pool := openFast(t)
	ledger := newLedger(t, pool, pgfence.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	old := token(1, "a")
	names := []string{"one", "two"}
	for _, name := range names {
		mustAdopt(t, ledger, name, old)
	}
	var writers, adopters sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for ctx.Err() == nil {
				err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if err := pgfence.Admit(ctx, tx, names[i%2], fence.Unordered(old)); err != nil {
						return err
					}
					return pgfence.Admit(ctx, tx, names[(i+1)%2], fence.Unordered(old))
				})
				if errors.Is(err, fence.ErrStale) {
					return
				}
			}
		})
	}
	for _, name := range names {
		adopters.Go(func() {
			if _, err := ledger.Adopt(ctx, name, token(2, "b")); err != nil {
				t.Errorf("adopt %s: %v", name, err)
			}
		})
	}
	adopters.Wait()
	writers.Wait()
	if ctx.Err() != nil {
		t.Errorf("not done in time")
	}
}

func TestMigrateTogether(t *testing.T) {
	pool := openFast(t)
	mustAdopt(t, newLedger(t, pool, pgfence.Config{}), "log", token(5, "a"))
	var nodes sync.WaitGroup
	for range 8 {
		nodes.Go(func() {
			if err := pgfence.Migrate(t.Context(), pool); err != nil {
				t.Error(err)
			}
		})
	}
	nodes.Wait()
	if r, err := newLedger(t, pool, pgfence.Config{}).Read(t.Context(), "log"); err != nil || r.Term != 5 {
		t.Errorf("after migrating again the record is %v (%v)", r, err)
	}
}
