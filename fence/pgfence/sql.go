package pgfence

import (
	"context"
	"database/sql"
	"fmt"

	"baton"
	"baton/fence"
)

// AdmitSQL is Admit for a transaction of database/sql. With a driver other than
// pgx's the errors do not tell what the ledger holds.
func AdmitSQL(ctx context.Context, tx *sql.Tx, resource string, c fence.Claim) error {
	return admitSQLTx(ctx, Config{}, tx, resource, c)
}

func admitSQLTx(ctx context.Context, cfg Config, tx *sql.Tx, resource string, c fence.Claim) error {
	args, err := cfg.call(ctx, resource, c)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, admitSQL, args...); err != nil {
		return fence.Report(ctx, aborted("admit", resource, c, err))
	}
	return nil
}

// SQLLedger is the ledger through database/sql.
type SQLLedger struct {
	db  *sql.DB
	cfg Config
}

var _ fence.Ledger = (*SQLLedger)(nil)

// NewSQL returns the ledger in db, which stays the caller's.
func NewSQL(db *sql.DB, cfg Config) (*SQLLedger, error) {
	if _, err := cfg.beginSQL(); err != nil {
		return nil, err
	}
	return &SQLLedger{db: db, cfg: cfg}, nil
}

// MigrateSQL is Migrate for database/sql.
func MigrateSQL(ctx context.Context, db *sql.DB) error {
	err := inTx(ctx, db, nil, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "select pg_advisory_xact_lock($1)", migrationKey); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, Schema)
		return err
	})
	if err != nil {
		return fmt.Errorf("install the fencing schema: %w", err)
	}
	return nil
}

func inTx(ctx context.Context, db *sql.DB, o *sql.TxOptions, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing, once it is committed
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Adopt implements fence.Ledger.
func (l *SQLLedger) Adopt(ctx context.Context, resource string, t baton.Token) (fence.Record, error) {
	return adopt(ctx, resource, t, func() (lastSeq int64, err error) {
		err = inTx(ctx, l.db, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(tx *sql.Tx) error {
			return tx.QueryRowContext(ctx, adoptSQL, resource, t.Group, int64(t.Term), t.InstanceID, l.cfg.evictMillis()).Scan(&lastSeq)
		})
		return lastSeq, err
	})
}

// Write runs effect in a transaction that was let in to the resource, and
// commits it; see Ledger.Write. The check costs a round trip.
func (l *SQLLedger) Write(ctx context.Context, resource string, c fence.Claim, effect func(ctx context.Context, tx *sql.Tx) error) error {
	tx, err := l.db.BeginTx(ctx, &sql.TxOptions{Isolation: l.cfg.Isolation})
	if err != nil {
		return aborted("write", resource, c, err)
	}
	defer func() { _ = tx.Rollback() }() // nothing, once it is committed
	if err := admitSQLTx(ctx, l.cfg, tx, resource, c); err != nil {
		return err
	}
	if err := effect(ctx, tx); err != nil {
		return aborted("write", resource, c, err)
	}
	if err := tx.Commit(); err != nil {
		return committed(resource, c, err)
	}
	return nil
}

// Advance implements fence.Ledger.
func (l *SQLLedger) Advance(ctx context.Context, resource string, c fence.Claim) error {
	if err := fence.RequireOrdered(c); err != nil {
		return err
	}
	return l.Write(ctx, resource, c, func(context.Context, *sql.Tx) error { return nil })
}

// Read implements fence.Ledger.
func (l *SQLLedger) Read(ctx context.Context, resource string) (fence.Record, error) {
	if err := fence.ValidateResource(resource); err != nil {
		return fence.Record{}, err
	}
	return scan(resource, l.db.QueryRowContext(ctx, readSQL, resource).Scan)
}
