package sqlitefence

import (
	"context"
	"database/sql"
	"errors"
)

// Tx is what the effect of a write can do in its transaction. Once SQLite has
// rolled it back, as it does when a statement that writes is interrupted or
// the disk is full, nothing more can be done in it: the statements that follow
// would be transactions of their own, beside the check.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

var errRolledBack = errors.New("a statement failed, and SQLite has rolled the transaction back")

// watched is the transaction on conn, for as long as SQLite has not ended it.
type watched struct {
	conn  *sql.Conn
	doubt bool // something may have failed since it was known to be open
	over  bool
}

// open reports that the transaction is over, if it is.
func (t *watched) open(ctx context.Context) error {
	if t.doubt && !t.over {
		// There is no transaction inside a transaction, so this fails in an open
		// one. If it does not, what it began is rolled back in the end.
		_, err := t.conn.ExecContext(context.WithoutCancel(ctx), "begin")
		t.over, t.doubt = err == nil, false
	}
	if t.over {
		return errRolledBack
	}
	return nil
}

func (t *watched) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := t.open(ctx); err != nil {
		return nil, err
	}
	r, err := t.conn.ExecContext(ctx, query, args...)
	t.doubt = err != nil
	return r, err
}

func (t *watched) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := t.open(ctx); err != nil {
		return nil, err
	}
	t.doubt = true // also what fails while the rows are read ends it
	return t.conn.QueryContext(ctx, query, args...)
}

func (t *watched) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if err := t.open(ctx); err != nil {
		ended, cancel := context.WithCancel(ctx)
		cancel() // the only way to an *sql.Row that is an error
		return t.conn.QueryRowContext(ended, query, args...)
	}
	t.doubt = true
	return t.conn.QueryRowContext(ctx, query, args...)
}
