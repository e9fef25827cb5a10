package sqlitefence_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"baton"
	"baton/fence"
	"baton/fence/fencetest"
	"baton/fence/sqlitefence"
	"baton/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

const insertSQL = `insert into log (resource, token, seq, value) values (?, ?, ?, ?)`

const (
	wal     = "&_pragma=journal_mode(wal)"
	journal = "&_pragma=journal_mode(delete)"
	fast    = "&_pragma=synchronous(off)" // the interleavings are the same without waiting for the disk
)

// open returns a database in a file of its own.
func open(t testing.TB, settings string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "data.db")+"?_pragma=busy_timeout(60000)"+settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := sqlitefence.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	const table = `create table log (id integer primary key autoincrement, resource text not null, token text not null, seq integer, value text not null)`
	if _, err := db.ExecContext(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	return db
}

func row(resource string, c fence.Claim, value string) []any {
	var seq *int64
	if n, ok := c.Seq(); ok {
		seq = &n
	}
	return []any{resource, fence.SQLToken(c.Token()), seq, value}
}

// viaWrite appends with Ledger.Write.
type viaWrite struct {
	*sqlitefence.Ledger
	db *sql.DB
}

func (s viaWrite) Append(ctx context.Context, resource string, c fence.Claim, value string, between func()) error {
	return s.Write(ctx, resource, c, func(ctx context.Context, tx sqlitefence.Tx) error {
		if between != nil {
			between()
		}
		_, err := tx.ExecContext(ctx, insertSQL, row(resource, c, value)...)
		return err
	})
}

func (s viaWrite) Log(ctx context.Context, resource string) (log []fencetest.Entry, err error) {
	rows, err := s.db.QueryContext(ctx, "select token, seq, value from log where resource = ? order by id", resource)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var (
			e     fencetest.Entry
			token fence.SQLToken
			seq   *int64
		)
		if err := rows.Scan(&token, &seq, &e.Value); err != nil {
			return nil, err
		}
		e.Claim = fence.Unordered(baton.Token(token))
		if seq != nil {
			e.Claim = fence.Ordered(baton.Token(token), *seq)
		}
		log = append(log, e)
	}
	return log, rows.Err()
}

// viaAdmit appends in a transaction of its own.
type viaAdmit struct{ viaWrite }

func (s viaAdmit) Append(ctx context.Context, resource string, c fence.Claim, value string, between func()) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing, once it is committed
	if err := sqlitefence.Admit(ctx, tx, resource, c); err != nil {
		return err
	}
	if between != nil {
		between()
	}
	if _, err := tx.ExecContext(ctx, insertSQL, row(resource, c, value)...); err != nil {
		return err
	}
	return tx.Commit()
}

func TestConformance(t *testing.T) {
	for _, tt := range []struct {
		name   string
		writes int
		open   func(t *testing.T) fencetest.Subject
	}{
		{"Write", 4000, func(t *testing.T) fencetest.Subject {
			db := open(t, wal+fast)
			return viaWrite{sqlitefence.New(db), db}
		}},
		{"Admit", 1000, func(t *testing.T) fencetest.Subject {
			db := open(t, wal+fast)
			return viaAdmit{viaWrite{sqlitefence.New(db), db}}
		}},
		{"RollbackJournal", 500, func(t *testing.T) fencetest.Subject {
			db := open(t, journal+fast)
			return viaWrite{sqlitefence.New(db), db}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fencetest.Run(t, fencetest.Options{OneWriter: true, Writes: tt.writes}, tt.open)
		})
	}
}

// naive checks in one transaction and writes in the next.
type naive struct{ viaWrite }

func (s naive) Append(ctx context.Context, resource string, c fence.Claim, value string, between func()) error {
	if err := s.Write(ctx, resource, c, func(context.Context, sqlitefence.Tx) error { return nil }); err != nil {
		return err
	}
	if between != nil {
		between()
	}
	_, err := s.db.ExecContext(ctx, insertSQL, row(resource, c, value)...)
	return err
}

func TestSuiteSeesFaults(t *testing.T) {
	fencetest.MustFail(t, fencetest.Options{OneWriter: true}, func(t *testing.T) fencetest.Subject {
		db := open(t, wal)
		return naive{viaWrite{sqlitefence.New(db), db}}
	}, "PausedBetweenCheckAndEffect")
}

// TestOverlookedRefusal: whoever ignores the error of Admit cannot commit.
func TestOverlookedRefusal(t *testing.T) {
	db := open(t, wal)
	ledger := viaWrite{sqlitefence.New(db), db}
	ctx := t.Context()
	b := baton.Token{Group: "payments", Term: 6, InstanceID: "b"}
	if _, err := ledger.Adopt(ctx, "log", b); err != nil {
		t.Fatal(err)
	}
	stale := baton.Token{Group: "payments", Term: 5, InstanceID: "a"}
	for _, c := range []fence.Claim{fence.Unordered(stale), fence.Ordered(b, -1)} {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := sqlitefence.Admit(ctx, tx, "log", c); !fence.Refused(err) {
			t.Errorf("admit %v: got %v, want a refusal", c, err)
		}
		_, _ = tx.ExecContext(ctx, insertSQL, "log", "x", nil, "overlooked")
		if err := tx.Commit(); err == nil {
			t.Errorf("the transaction was committed")
		}
	}
	if log, err := ledger.Log(ctx, "log"); err != nil || len(log) != 0 {
		t.Errorf("the log is %v (%v), want nothing", log, err)
	}
}

// TestReadBeforeAdmit: a transaction that began with a read of the past is not let in.
func TestReadBeforeAdmit(t *testing.T) {
	db := open(t, wal)
	ledger := viaWrite{sqlitefence.New(db), db}
	ctx := t.Context()
	a := baton.Token{Group: "payments", Term: 5, InstanceID: "a"}
	b := baton.Token{Group: "payments", Term: 6, InstanceID: "b"}
	if _, err := ledger.Adopt(ctx, "log", a); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRowContext(ctx, "select count(*) from log").Scan(&n); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Adopt(ctx, "log", b); err != nil {
		t.Fatal(err)
	}
	if err := sqlitefence.Admit(ctx, tx, "log", fence.Unordered(a)); err == nil {
		t.Errorf("a transaction that sees the past was let in")
	}
	if err := tx.Commit(); err == nil {
		t.Errorf("the transaction was committed")
	}
}

// TestEffectFails: nothing of a failed write stays, its number included.
func TestEffectFails(t *testing.T) {
	db := open(t, wal)
	ledger := viaWrite{sqlitefence.New(db), db}
	ctx := t.Context()
	a := baton.Token{Group: "payments", Term: 5, InstanceID: "a"}
	if _, err := ledger.Adopt(ctx, "log", a); err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	fail := func(how func() error) error {
		return ledger.Write(ctx, "log", fence.Ordered(a, 7), func(ctx context.Context, tx sqlitefence.Tx) error {
			if _, err := tx.ExecContext(ctx, insertSQL, row("log", fence.Ordered(a, 7), "x")...); err != nil {
				return err
			}
			return how()
		})
	}
	var aborted *fence.AbortedError
	if err := fail(func() error { return boom }); !errors.Is(err, boom) || !errors.As(err, &aborted) {
		t.Errorf("got %v, want the effect's error, aborted", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Errorf("the panic was swallowed")
			}
		}()
		_ = fail(func() error { panic(boom) })
	}()
	if r, err := ledger.Read(ctx, "log"); err != nil || r.LastSeq != 0 {
		t.Errorf("the record is %v (%v), want last number 0", r, err)
	}
	if log, err := ledger.Log(ctx, "log"); err != nil || len(log) != 0 {
		t.Errorf("the log is %v (%v), want nothing", log, err)
	}
	if err := ledger.Append(ctx, "log", fence.Ordered(a, 8), "next", nil); err != nil {
		t.Errorf("the next write: %v", err)
	}
}

// BenchmarkCost compares transactions that write one row, fenced and not, with
// every commit on disk.
func BenchmarkCost(b *testing.B) {
	db := open(b, wal+"&_pragma=synchronous(full)&_txlock=immediate")
	ledger := sqlitefence.New(db)
	tok := baton.Token{Group: "payments", Term: 5, InstanceID: "a"}
	if _, err := ledger.Adopt(b.Context(), "log", tok); err != nil {
		b.Fatal(err)
	}
	claim := fence.Unordered(tok)
	args := row("log", claim, "value")
	fencetest.Cost(b,
		func(ctx context.Context, _ int) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, insertSQL, args...); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		},
		func(ctx context.Context, _ int) error {
			return ledger.Write(ctx, "log", claim, func(ctx context.Context, tx sqlitefence.Tx) error {
				_, err := tx.ExecContext(ctx, insertSQL, args...)
				return err
			})
		})
}
