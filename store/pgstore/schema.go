package pgstore

import (
	"context"
	_ "embed" // schema.sql
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"baton"
)

//go:embed schema.sql
var schemaSQL string

// schemaVersion is that of schema.sql.
const schemaVersion = 1

// installKey is the advisory lock under which a schema is installed.
const installKey int64 = 0x6261746f6e73746f // "batonsto"

// schema is the name of one.
type schema string

// A name of any letters would do for Postgres; this one needs no thought in a shell.
var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,49}$`)

func validateSchema(name string) error {
	if !schemaName.MatchString(name) || strings.HasPrefix(name, "pg_") {
		return &baton.InvalidArgumentError{Field: "schema", Value: name, Want: "1 to 50 of a-z 0-9 _, not beginning with a digit or pg_"}
	}
	return nil
}

// in makes a text that is written for the schema "baton" one for s.
func (s schema) in(sql string) string {
	return strings.ReplaceAll(sql, "baton.", pgx.Identifier{string(s)}.Sanitize()+".")
}

// channel is where hints come.
func (s schema) channel() string { return s.in("baton.hints") }

// Schema is what New installs in a database that does not have it, for those
// who would rather run it themselves: New then needs no right to create anything.
func Schema(name string) (string, error) {
	if err := validateSchema(name); err != nil {
		return "", err
	}
	s := schema(name)
	// CREATE SCHEMA IF NOT EXISTS asks for the right to create one, also if it is there.
	return fmt.Sprintf(`DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = '%s') THEN CREATE SCHEMA %s; END IF;
END $$;
`, name, pgx.Identifier{name}.Sanitize()) + s.in(schemaSQL), nil
}

// install sees to it that the schema is there, whoever else does so at the
// same moment.
func (s schema) install(ctx context.Context, pool *pgxpool.Pool) error {
	if there, err := s.check(ctx, pool); there || err != nil {
		return err
	}
	sql, err := Schema(string(s))
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", installKey); err != nil {
			return err
		}
		if there, err := s.check(ctx, tx); there || err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sql)
		return err
	})
}

// check reports whether the schema is there. One that a newer program made is
// an error: what it means by its columns is not known here.
func (s schema) check(ctx context.Context, q interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (there bool, err error) {
	// Looked up in the catalogue: what to_regclass finds may be older than the transaction.
	err = q.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = 'store')`, string(s)).Scan(&there)
	if !there || err != nil {
		return false, err
	}
	table := s.in("baton.store")
	var version int
	switch err := q.QueryRow(ctx, "SELECT version FROM "+table).Scan(&version); {
	case err != nil:
		return false, fmt.Errorf("read %s: %w", table, err)
	case version != schemaVersion:
		return false, &baton.ConflictError{
			Reason:  baton.ConflictUnsupported,
			Message: fmt.Sprintf("schema %q has version %d, made by a newer Baton: this one knows version %d", string(s), version, schemaVersion),
		}
	}
	return true, nil
}

// isCode reports whether the server answered with one of these SQLSTATEs.
func isCode(err error, codes ...string) bool {
	var answer *pgconn.PgError
	if !errors.As(err, &answer) {
		return false
	}
	for _, code := range codes {
		if strings.HasPrefix(answer.Code, code) {
			return true
		}
	}
	return false
}
