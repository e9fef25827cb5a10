package fenced

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"baton"
	"baton/fence"
)

// openSQLite opens a file, through one connection that writes at a time: a
// transaction takes the write lock when it begins, and what it commits is on disk.
func openSQLite(ctx context.Context, path string) (*Store, error) {
	settings := url.Values{
		"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"},
		"_txlock": {"immediate"},
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: url.PathEscape(path), RawQuery: settings.Encode()}).String())
	if err != nil {
		return nil, err
	}
	s := &Store{
		db:      db,
		query:   func(q string) string { return strings.ReplaceAll(q, "$", "?") },
		reading: &sql.TxOptions{ReadOnly: true},
	}
	s.ledger = &sqliteLedger{naive{db: db, query: s.query}}
	if _, err := db.ExecContext(ctx, schemaSQLite+sqliteLedgerSchema); err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("create the tables: %w", err)
	}
	return s, nil
}

const sqliteLedgerSchema = `
CREATE TABLE IF NOT EXISTS fenced_resource (name text PRIMARY KEY, "group" text NOT NULL, max_token integer NOT NULL, instance text NOT NULL);
CREATE TABLE IF NOT EXISTS sequence (name text PRIMARY KEY, last_seq integer NOT NULL, owner_token integer NOT NULL);`

type sqliteLedger struct{ naive }

func (l *sqliteLedger) record(ctx context.Context, tx *sql.Tx, resource string) (fence.Record, error) {
	var (
		r    fence.Record
		term int64
	)
	err := tx.QueryRowContext(ctx, `
		SELECT r."group", r.max_token, r.instance, coalesce(s.last_seq, 0)
		FROM fenced_resource r LEFT JOIN sequence s ON s.name = r.name WHERE r.name = ?1`, resource).
		Scan(&r.Group, &term, &r.InstanceID, &r.LastSeq)
	if err == sql.ErrNoRows {
		return fence.Record{}, nil
	}
	r.Term = baton.Term(term)
	return r, err
}

func (l *sqliteLedger) Adopt(ctx context.Context, resource string, t baton.Token) (fence.Record, error) {
	var r fence.Record
	err := l.transaction(ctx, func(tx *sql.Tx) error {
		held, err := l.record(ctx, tx, resource)
		if err != nil {
			return err
		}
		if r, err = held.Adopt(resource, t); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `
			INSERT INTO fenced_resource (name, "group", max_token, instance) VALUES (?1, ?2, ?3, ?4)
			ON CONFLICT (name) DO UPDATE SET max_token = excluded.max_token, instance = excluded.instance`,
			resource, t.Group, int64(t.Term), t.InstanceID)
		return err
	})
	return r, err
}

func (l *sqliteLedger) Write(ctx context.Context, resource string, c fence.Claim, effect func(ctx context.Context, tx *sql.Tx) error) error {
	return l.transaction(ctx, func(tx *sql.Tx) error {
		held, err := l.record(ctx, tx, resource)
		if err != nil {
			return err
		}
		if _, err := held.Admit(resource, c); err != nil {
			return err
		}
		if seq, ok := c.Seq(); ok {
			if _, err := tx.ExecContext(ctx, `
				INSERT INTO sequence (name, last_seq, owner_token) VALUES (?1, ?2, ?3)
				ON CONFLICT (name) DO UPDATE SET last_seq = excluded.last_seq, owner_token = excluded.owner_token`,
				resource, seq, int64(c.Token().Term)); err != nil {
				return err
			}
		}
		return effect(ctx, tx)
	})
}

func (l *sqliteLedger) Advance(ctx context.Context, resource string, c fence.Claim) error {
	if err := fence.RequireOrdered(c); err != nil {
		return err
	}
	return l.Write(ctx, resource, c, func(context.Context, *sql.Tx) error { return nil })
}
