package sqlitefence_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"baton"
	"baton/fence"
	"baton/fence/sqlitefence"
)

// query reads all that a statement returns.
func query(ctx context.Context, tx sqlitefence.Tx, text string, args ...any) error {
	rows, err := tx.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
	}
	return rows.Err()
}

// TestTransactionLost: SQLite itself rolls back when a statement that writes is
// interrupted. An effect that overlooks this writes nothing more, since it would
// be outside of any transaction, beside the check.
func TestTransactionLost(t *testing.T) {
	const endless = ` with recursive n(i) as (select 1 union all select i + 1 from n) select 'log', 'endless', null, i from n`
	for name, interrupted := range map[string]func(ctx context.Context, tx sqlitefence.Tx) error{
		"Exec": func(ctx context.Context, tx sqlitefence.Tx) error {
			_, err := tx.ExecContext(ctx, `insert into log (resource, token, seq, value)`+endless)
			return err
		},
		"QueryRow": func(ctx context.Context, tx sqlitefence.Tx) error {
			var id int64
			return tx.QueryRowContext(ctx, `insert into log (resource, token, seq, value)`+endless+` returning id`).Scan(&id)
		},
		"Query": func(ctx context.Context, tx sqlitefence.Tx) error {
			return query(ctx, tx, `insert into log (resource, token, seq, value)`+endless+` returning id`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t, wal+fast)
			s := viaWrite{sqlitefence.New(db), db}
			a, b := baton.Token{Group: "payments", Term: 5, InstanceID: "a"}, baton.Token{Group: "payments", Term: 6, InstanceID: "b"}
			if _, err := s.Adopt(t.Context(), "log", a); err != nil {
				t.Fatal(err)
			}
			err := s.Write(t.Context(), "log", fence.Unordered(a), func(ctx context.Context, tx sqlitefence.Tx) error {
				impatient, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				if err := interrupted(impatient, tx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("interrupted: %v", err)
				}
				if _, err := sqlitefence.New(db).Adopt(ctx, "log", b); err != nil { // as another process may
					t.Errorf("adopt: %v", err)
				}
				stale := row("log", fence.Unordered(a), "stale")
				_, _ = tx.ExecContext(ctx, insertSQL, stale...)
				_ = query(ctx, tx, insertSQL+" returning id", stale...)
				_ = tx.QueryRowContext(ctx, insertSQL+" returning id", stale...).Scan(new(int64))
				return nil
			})
			if aborted := new(fence.AbortedError); !errors.As(err, &aborted) {
				t.Errorf("write: got %v, want it aborted", err)
			}
			if log, err := s.Log(t.Context(), "log"); err != nil || len(log) != 0 {
				t.Errorf("the log is %v (%v), want nothing", log, err)
			}
		})
	}
}

// TestStatementFails: an effect may go on after a statement that was refused for
// what it said.
func TestStatementFails(t *testing.T) {
	db := open(t, wal+fast)
	s := viaWrite{sqlitefence.New(db), db}
	a := baton.Token{Group: "payments", Term: 5, InstanceID: "a"}
	if _, err := s.Adopt(t.Context(), "log", a); err != nil {
		t.Fatal(err)
	}
	err := s.Write(t.Context(), "log", fence.Unordered(a), func(ctx context.Context, tx sqlitefence.Tx) error {
		if _, err := tx.ExecContext(ctx, insertSQL, nil, nil, nil, nil); err == nil {
			t.Errorf("a row without a resource was inserted")
		}
		_, err := tx.ExecContext(ctx, insertSQL, row("log", fence.Unordered(a), "a")...)
		return err
	})
	if err != nil {
		t.Errorf("write: %v", err)
	}
	if log, err := s.Log(t.Context(), "log"); err != nil || len(log) != 1 {
		t.Errorf("the log is %v (%v), want one entry", log, err)
	}
}
