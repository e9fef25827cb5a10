package fenced

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"baton/fence"
	"baton/fence/sqlitefence"
)

// openSQLite opens a file. What is committed is on disk, and who reads does not
// keep who writes waiting.
func openSQLite(ctx context.Context, path string) (*Store, error) {
	settings := url.Values{
		"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"},
		"_txlock": {"immediate"}, // of transactions that may write
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: url.PathEscape(path), RawQuery: settings.Encode()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(maxConnections)
	s := &Store{
		db:      db,
		query:   func(q string) string { return strings.ReplaceAll(q, "$", "?") },
		reading: &sql.TxOptions{ReadOnly: true},
		ledger:  sqliteLedger{sqlitefence.New(db)},
	}
	if err := s.migrateSQLite(ctx); err != nil {
		_ = db.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) migrateSQLite(ctx context.Context) error {
	if err := sqlitefence.Migrate(ctx, s.db); err != nil {
		return err
	}
	if _, err := s.db.ExecContext(ctx, schemaSQLite); err != nil {
		return fmt.Errorf("create the tables: %w", err)
	}
	return nil
}

type sqliteLedger struct{ *sqlitefence.Ledger }

func (l sqliteLedger) Write(ctx context.Context, resource string, c fence.Claim, do effect) error {
	return l.Ledger.Write(ctx, resource, c, func(ctx context.Context, tx sqlitefence.Tx) error { return do(ctx, tx) })
}
