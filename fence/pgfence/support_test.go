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
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"baton"
	"baton/fence"
	"baton/fence/fencetest"
	"baton/fence/pgfence"
	"baton/internal/leak"
	"baton/internal/testserver"
)

func TestMain(m *testing.M) { leak.Main(m) }

const logSQL = `create table if not exists log (
	id bigint generated always as identity primary key,
	resource text not null, token text not null, seq bigint, value text not null)`

var schemas atomic.Int64

// open returns a pool whose search_path is a schema of its own, with the ledger
// and a log in it. Settings are of the server's, name and value.
func open(t testing.TB, url string, settings ...string) *pgxpool.Pool {
	t.Helper()
	schema := fmt.Sprintf("fence_%d", schemas.Add(1))
	pool := connect(t, url, append(settings, "search_path", schema)...)
	exec(t, pool, "create schema "+schema)
	if err := pgfence.Migrate(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	exec(t, pool, logSQL)
	return pool
}

// openFast is open on the server that all tests share. It does not wait for the
// disk, since nothing there outlives the server; Adopt does.
func openFast(t testing.TB, settings ...string) *pgxpool.Pool {
	t.Helper()
	return open(t, testserver.Shared(t, testserver.Postgres).Direct, append(settings, "synchronous_commit", "off")...)
}

func connect(t testing.TB, url string, settings ...string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(settings); i += 2 {
		cfg.ConnConfig.RuntimeParams[settings[i]] = settings[i+1]
	}
	cfg.MaxConns = 40
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func row(resource string, c fence.Claim, value string) []any {
	var seq *int64
	if n, ok := c.Seq(); ok {
		seq = &n
	}
	return []any{resource, c.Token().String(), seq, value}
}

const insertSQL = `insert into log (resource, token, seq, value) values ($1, $2, $3, $4)`

func readLog(ctx context.Context, pool *pgxpool.Pool, resource string) ([]fencetest.Entry, error) {
	rows, err := pool.Query(ctx, "select token, seq, value from log where resource = $1 order by id", resource)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (fencetest.Entry, error) {
		var (
			e    fencetest.Entry
			text string
			seq  *int64
		)
		if err := r.Scan(&text, &seq, &e.Value); err != nil {
			return e, err
		}
		token, err := fence.ParseToken(text)
		e.Claim = fence.Unordered(token)
		if seq != nil {
			e.Claim = fence.Ordered(token, *seq)
		}
		return e, err
	})
}

// retry does what every user of REPEATABLE READ and SERIALIZABLE does.
func retry(write func() error) error {
	for {
		err := write()
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && pgErr.Code == "40001" {
			continue
		}
		return err
	}
}

func call(between func()) {
	if between != nil {
		between()
	}
}

// viaWrite appends with Ledger.Write.
type viaWrite struct {
	*pgfence.Ledger
	pool *pgxpool.Pool
}

func (s viaWrite) Append(ctx context.Context, resource string, c fence.Claim, value string, between func()) error {
	return retry(func() error {
		return s.Write(ctx, resource, c, func(ctx context.Context, tx pgfence.Tx) error {
			if between != nil { // what is between check and write comes after a first statement
				if _, err := tx.Exec(ctx, "select $1::int", 1); err != nil {
					return err
				}
				between()
			}
			_, err := tx.Exec(ctx, insertSQL, row(resource, c, value)...)
			return err
		})
	})
}

func (s viaWrite) Log(ctx context.Context, resource string) ([]fencetest.Entry, error) {
	return readLog(ctx, s.pool, resource)
}

// viaAdmit appends in a transaction of its own.
type viaAdmit struct{ viaWrite }

func (s viaAdmit) Append(ctx context.Context, resource string, c fence.Claim, value string, between func()) error {
	return retry(func() error {
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			if err := pgfence.Admit(ctx, tx, resource, c); err != nil {
				return err
			}
			call(between)
			_, err := tx.Exec(ctx, insertSQL, row(resource, c, value)...)
			return err
		})
	})
}

// viaBatch appends in one round trip.
type viaBatch struct{ viaWrite }

func (s viaBatch) Append(ctx context.Context, resource string, c fence.Claim, value string, between func()) error {
	call(between)
	return retry(func() error {
		b := new(pgx.Batch)
		b.Queue(insertSQL, row(resource, c, value)...)
		return s.SendBatch(ctx, resource, c, b)
	})
}

// viaSQL appends through database/sql.
type viaSQL struct {
	*pgfence.SQLLedger
	pool *pgxpool.Pool
}

func (s viaSQL) Append(ctx context.Context, resource string, c fence.Claim, value string, between func()) error {
	return retry(func() error {
		return s.Write(ctx, resource, c, func(ctx context.Context, tx *sql.Tx) error {
			call(between)
			_, err := tx.ExecContext(ctx, insertSQL, row(resource, c, value)...)
			return err
		})
	})
}

func (s viaSQL) Log(ctx context.Context, resource string) ([]fencetest.Entry, error) {
	return readLog(ctx, s.pool, resource)
}

func newLedger(t testing.TB, pool *pgxpool.Pool, cfg pgfence.Config) viaWrite {
	t.Helper()
	l, err := pgfence.New(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return viaWrite{l, pool}
}

func newSQLLedger(t testing.TB, pool *pgxpool.Pool, cfg pgfence.Config) viaSQL {
	t.Helper()
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	l, err := pgfence.NewSQL(db, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return viaSQL{l, pool}
}

func token(term baton.Term, instance string) baton.Token {
	return baton.Token{Group: "payments", Term: term, InstanceID: instance}
}

// lead returns a leadership that can be trusted for d.
func lead(t testing.TB, tok baton.Token, d time.Duration) *baton.Leadership {
	clock := baton.SystemClock()
	l, tenure := baton.NewLeadership(baton.LeadershipConfig{Token: tok, Clock: clock, Until: clock.Now() + d})
	t.Cleanup(func() { tenure.End(baton.ErrResigned) })
	return l
}

func mustAdopt(t testing.TB, l fence.Ledger, resource string, tok baton.Token) fence.Record {
	t.Helper()
	r, err := l.Adopt(t.Context(), resource, tok)
	if err != nil {
		t.Fatalf("adopt %v: %v", tok, err)
	}
	return r
}
