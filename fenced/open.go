package fenced

import (
	"context"
	"database/sql"
	_ "embed" // the schemas
	"fmt"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"baton/fence"
	"baton/fence/pgfence"
)

var (
	//go:embed schema_postgres.sql
	schemaPostgres string
	//go:embed schema_sqlite.sql
	schemaSQLite string
)

// Open opens the database at a postgres:// URL or the path of an SQLite file,
// and creates the tables that are missing. Without fencing it accepts any token.
//
// A commit that is made for several callers is given up after within.
func Open(ctx context.Context, database string, fencing bool, within time.Duration) (*Store, error) {
	open, kind := openSQLite, "sqlite"
	if strings.HasPrefix(database, "postgres://") || strings.HasPrefix(database, "postgresql://") {
		open, kind = openPostgres, "postgres"
	}
	s, err := open(ctx, database)
	if err != nil {
		return nil, fmt.Errorf("open the %s database: %w", kind, err)
	}
	s.kind, s.fencing, s.allot.within = kind, fencing, within
	if !fencing {
		s.ledger = &naive{db: s.db, query: s.query}
	}
	return s, nil
}

const maxConnections = 32

func openPostgres(ctx context.Context, url string) (*Store, error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(maxConnections)
	db.SetMaxIdleConns(maxConnections)
	s := &Store{
		db:      db,
		query:   func(q string) string { return q },
		reading: &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
	}
	if err := s.migratePostgres(ctx); err != nil {
		_ = db.Close()
		return nil, err
	}
	return s, nil
}

// migrationKey keeps two processes from creating the tables at once, which
// Postgres does not take well.
const migrationKey int64 = 0x62_6174_6f6e_6664 // "batonfd"

func (s *Store) migratePostgres(ctx context.Context) error {
	if err := pgfence.MigrateSQL(ctx, s.db); err != nil {
		return err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing, once it is committed
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", migrationKey); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, schemaPostgres); err != nil {
		return fmt.Errorf("create the tables: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	l, err := pgfence.NewSQL(s.db, pgfence.Config{})
	if err != nil {
		return err
	}
	s.ledger = postgresLedger{l}
	return nil
}

type postgresLedger struct{ *pgfence.SQLLedger }

func (l postgresLedger) Write(ctx context.Context, resource string, c fence.Claim, do effect) error {
	return l.SQLLedger.Write(ctx, resource, c, func(ctx context.Context, tx *sql.Tx) error { return do(ctx, tx) })
}
