package pgfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"baton"
	"baton/fence"
	"baton/fence/pgfence"
)

// statements are the ways to send a first statement that inserts a row.
var statements = map[string]func(ctx context.Context, tx pgfence.Tx, args []any) error{
	"Exec": func(ctx context.Context, tx pgfence.Tx, args []any) error {
		_, err := tx.Exec(ctx, insertSQL, args...)
		return err
	},
	"Exec by the simple protocol": func(ctx context.Context, tx pgfence.Tx, args []any) error {
		_, err := tx.Exec(ctx, insertSQL, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
		return err
	},
	"Exec of two statements": func(ctx context.Context, tx pgfence.Tx, args []any) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("select 1; insert into log (resource, token, value) values ('%s', '%s', '%s')", args[0], args[1], args[3]))
		return err
	},
	"Query": func(ctx context.Context, tx pgfence.Tx, args []any) error {
		rows, err := tx.Query(ctx, insertSQL+" returning value", args...)
		if err != nil {
			return err
		}
		values, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err == nil && (len(values) != 1 || values[0] != args[3]) {
			err = fmt.Errorf("the query returned %q", values)
		}
		return err
	},
	"QueryRow": func(ctx context.Context, tx pgfence.Tx, args []any) error {
		var value string
		err := tx.QueryRow(ctx, insertSQL+" returning value", args...).Scan(&value)
		if err == nil && value != args[3] {
			err = fmt.Errorf("the query returned %q", value)
		}
		return err
	},
	"SendBatch": func(ctx context.Context, tx pgfence.Tx, args []any) error {
		b := new(pgx.Batch)
		b.Queue("select $1::int", 1)
		b.Queue(insertSQL, args...)
		return tx.SendBatch(ctx, b).Close()
	},
	"SendBatch, read one by one": func(ctx context.Context, tx pgfence.Tx, args []any) error {
		b := new(pgx.Batch)
		b.Queue("select $1::int", 7)
		b.Queue(insertSQL, args...)
		results := tx.SendBatch(ctx, b)
		var n int
		err := results.QueryRow().Scan(&n)
		if err == nil && n != 7 {
			err = fmt.Errorf("the first result is %d", n)
		}
		if err == nil {
			_, err = results.Exec()
		}
		return errors.Join(err, results.Close())
	},
	"CopyFrom": func(ctx context.Context, tx pgfence.Tx, args []any) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"log"}, []string{"resource", "token", "seq", "value"}, pgx.CopyFromRows([][]any{args}))
		return err
	},
}

// TestFirstStatement: whatever the first statement of an effect is, it lands
// under the right token, and under a stale one nothing does, not even what
// an effect sends that overlooks the refusal.
func TestFirstStatement(t *testing.T) {
	for level, settings := range map[string][]string{
		"read committed":          nil,
		"serializable by default": {"default_transaction_isolation", "serializable"},
	} {
		for name, insert := range statements {
			t.Run(level+"/"+name, func(t *testing.T) {
				t.Parallel()
				pool := openFast(t, settings...)
				ledger := newLedger(t, pool, pgfence.Config{})
				mine := fence.Unordered(token(5, "a"))
				mustAdopt(t, ledger, "log", mine.Token())
				second := statements["Exec"]
				write := func(c fence.Claim) error {
					return ledger.Write(t.Context(), "log", c, func(ctx context.Context, tx pgfence.Tx) error {
						if err := insert(ctx, tx, row("log", c, "first")); err != nil {
							// The refusal is overlooked on purpose.
							if e := second(ctx, tx, row("log", c, "after a refusal")); e == nil {
								t.Error("the transaction was refused, and took a second statement")
							}
							return nil
						}
						return second(ctx, tx, row("log", c, "second"))
					})
				}
				if err := write(mine); err != nil {
					t.Fatal(err)
				}
				for _, c := range []fence.Claim{fence.Unordered(token(4, "z")), fence.Unordered(token(5, "another")), fence.Unordered(token(6, "b"))} {
					if err := write(c); !fence.Refused(err) {
						t.Errorf("%v: got %v, want a refusal", c, err)
					}
				}
				b := new(pgx.Batch)
				b.Queue(insertSQL, row("log", mine, "third")...)
				if err := ledger.SendBatch(t.Context(), "log", mine, b); err != nil {
					t.Error(err)
				}
				log, err := readLog(t.Context(), pool, "log")
				if err != nil || len(log) != 3 || log[0].Value != "first" || log[1].Value != "second" || log[2].Value != "third" {
					t.Errorf("the log holds %v (%v), want the three rows that were let in", log, err)
				}
			})
		}
	}
}

// TestEffectWithoutStatement: a write that writes nothing is judged all the same.
func TestEffectWithoutStatement(t *testing.T) {
	ledger := newLedger(t, openFast(t), pgfence.Config{})
	mustAdopt(t, ledger, "log", token(5, "a"))
	nothing := func(context.Context, pgfence.Tx) error { return nil }
	if err := ledger.Write(t.Context(), "log", fence.Unordered(token(5, "a")), nothing); err != nil {
		t.Error(err)
	}
	if err := ledger.Write(t.Context(), "log", fence.Unordered(token(4, "z")), nothing); !errors.Is(err, fence.ErrStale) {
		t.Errorf("got %v, want stale", err)
	}
	broken := errors.New("changed its mind")
	err := ledger.Write(t.Context(), "log", fence.Unordered(token(4, "z")), func(context.Context, pgfence.Tx) error { return broken })
	if !errors.Is(err, broken) {
		t.Errorf("got %v, want what the effect said", err)
	}
}

// TestErrorsOfTheEffect: what goes wrong in the first statement is told as it
// is, not taken for the check's answer; and no later one lands by itself.
func TestErrorsOfTheEffect(t *testing.T) {
	pool := openFast(t)
	ledger := newLedger(t, pool, pgfence.Config{})
	c := fence.Unordered(token(5, "a"))
	mustAdopt(t, ledger, "log", c.Token())
	for code, bad := range map[string]string{
		"22012": "select 1 / $1::int",            // as the check's own
		"42601": "select nonsense from where $1", // refused before anything is executed
		"42P01": "select $1 from no_such_table",
	} {
		for _, later := range []bool{false, true} {
			err := ledger.Write(t.Context(), "log", c, func(ctx context.Context, tx pgfence.Tx) error {
				_, err := tx.Exec(ctx, bad, 0)
				if later {
					_, _ = tx.Exec(ctx, insertSQL, row("log", c, "overlooked")...)
					return nil
				}
				return err
			})
			var (
				aborted *fence.AbortedError
				pgErr   *pgconn.PgError
			)
			if !errors.As(err, &aborted) || !later && (!errors.As(err, &pgErr) || pgErr.Code != code) {
				t.Errorf("%s, later %t: got %v, want it aborted for that", bad, later, err)
			}
		}
		b := new(pgx.Batch)
		b.Queue(insertSQL, row("log", c, "with it")...)
		b.Queue(bad, 0)
		var pgErr *pgconn.PgError
		if err := ledger.SendBatch(t.Context(), "log", c, b); !errors.As(err, &pgErr) || pgErr.Code != code {
			t.Errorf("batch with %s: got %v, want code %s", bad, err, code)
		}
	}
	if log, err := readLog(t.Context(), pool, "log"); err != nil || len(log) != 0 {
		t.Errorf("the log holds %v (%v), want nothing", log, err)
	}
}

// TestShorterTimeoutsStay: a session's own timeouts are shortened, never prolonged.
func TestShorterTimeoutsStay(t *testing.T) {
	pool := openFast(t, "statement_timeout", "8s", "idle_in_transaction_session_timeout", "1h")
	ledger := newLedger(t, pool, pgfence.Config{Isolation: sql.LevelReadCommitted})
	mustAdopt(t, ledger, "log", token(5, "a"))
	for range 2 { // when the connection is new, and when it is known
		var statement, idle string
		err := ledger.Write(t.Context(), "log", fence.Unordered(token(5, "a")), func(ctx context.Context, tx pgfence.Tx) error {
			return tx.QueryRow(ctx, "select current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout')").Scan(&statement, &idle)
		})
		if err != nil || statement != "8s" || idle != "10s" {
			t.Errorf("timeouts are %s and %s (%v), want 8s, as it was, and 10s", statement, idle, err)
		}
	}
}

// movedClock is a clock that the test puts forward.
type movedClock struct {
	baton.Clock
	ahead atomic.Int64
}

func (c *movedClock) Now() time.Duration { return c.Clock.Now() + time.Duration(c.ahead.Load()) }

// TestTimeoutsCountFromTheSending: what is left of the leadership is what is
// left when the first statement goes, not when the effect began to think.
func TestTimeoutsCountFromTheSending(t *testing.T) {
	pool := openFast(t)
	ledger := newLedger(t, pool, pgfence.Config{})
	mustAdopt(t, ledger, "log", token(5, "a"))
	c := fence.Unordered(token(5, "a"))
	for name, first := range map[string]func(ctx context.Context, tx pgfence.Tx) error{
		"along": func(ctx context.Context, tx pgfence.Tx) error {
			_, err := tx.Exec(ctx, insertSQL, row("log", c, "late")...)
			return err
		},
		"by itself": func(ctx context.Context, tx pgfence.Tx) error {
			_, err := tx.Exec(ctx, "select 1")
			return err
		},
	} {
		for _, thinks := range []time.Duration{15 * time.Second, 25 * time.Second} {
			clock := &movedClock{Clock: baton.SystemClock()}
			l, tenure := baton.NewLeadership(baton.LeadershipConfig{Token: c.Token(), Clock: clock, Until: clock.Now() + 20*time.Second})
			var timeout string
			err := ledger.Write(l.Context(), "log", c, func(ctx context.Context, tx pgfence.Tx) error {
				clock.ahead.Store(int64(thinks))
				if err := first(context.WithoutCancel(ctx), tx); err != nil {
					return err
				}
				return tx.QueryRow(ctx, "select current_setting('statement_timeout')").Scan(&timeout)
			})
			d, _ := time.ParseDuration(timeout)
			var aborted *fence.AbortedError
			switch {
			case thinks < 20*time.Second && (err != nil || d <= 0 || d > 5*time.Second):
				t.Errorf("%s: after %v of 20s the timeout is %q (%v), want what is left", name, thinks, timeout, err)
			case thinks > 20*time.Second && !errors.As(err, &aborted):
				t.Errorf("%s: after %v of 20s the write ended with %v, want it aborted", name, thinks, err)
			}
			tenure.End(baton.ErrResigned)
		}
	}
	log, err := readLog(t.Context(), pool, "log")
	if err != nil || len(log) != 1 {
		t.Errorf("the log holds %v (%v), want the one row that was in time", log, err)
	}
}
