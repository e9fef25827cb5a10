package pgfence_test

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"baton"
	"baton/fence"
	"baton/fence/pgfence"
)

// The work of a leader: adopt, then read, then write.
func Example() {
	var pool *pgxpool.Pool // of the database that has the invoices
	var elector baton.Elector

	_ = baton.Run(context.Background(), elector, func(ctx context.Context, l *baton.Leadership) error {
		if err := pgfence.Migrate(ctx, pool); err != nil {
			return err
		}
		ledger, err := pgfence.New(pool, pgfence.Config{})
		if err != nil {
			return err
		}
		if _, err := ledger.Adopt(ctx, "invoices", l.Token()); err != nil {
			return err
		}
		var last int
		if err := pool.QueryRow(ctx, "select max(id) from invoices").Scan(&last); err != nil {
			return err
		}
		return ledger.Write(ctx, "invoices", fence.Unordered(l.Token()), func(ctx context.Context, tx pgfence.Tx) error {
			_, err := tx.Exec(ctx, "insert into invoices (id) values ($1)", last+1)
			return err
		})
	})
}

// A transaction that is the caller's own.
func ExampleAdmit() {
	var pool *pgxpool.Pool
	bill := func(ctx context.Context, l *baton.Leadership) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := pgfence.Admit(ctx, tx, "invoices", fence.Unordered(l.Token())); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "update invoices set billed = true")
			return err
		})
	}
	_ = bill
}

// The same with database/sql.
func ExampleAdmitSQL() {
	var db *sql.DB
	bill := func(ctx context.Context, l *baton.Leadership) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := pgfence.AdmitSQL(ctx, tx, "invoices", fence.Unordered(l.Token())); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "update invoices set billed = true"); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = bill
}

// Check and write in a single round trip.
func ExampleLedger_SendBatch() {
	var ledger *pgfence.Ledger
	heartbeat := func(ctx context.Context, l *baton.Leadership) error {
		b := new(pgx.Batch)
		b.Queue("update scheduler set seen = now()")
		return ledger.SendBatch(ctx, "scheduler", fence.Unordered(l.Token()), b)
	}
	_ = heartbeat
}
