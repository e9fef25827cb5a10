package pgfence

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"baton/fence"
)

// Tx is what the effect of a write can do in its transaction: all that
// pgx.Tx can, but end it.
type Tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error)
}

// Write runs effect in a transaction that is let in to the resource, and
// commits it. When effect fails, or the server refuses to commit, the error is a
// *fence.AbortedError; when the commit got no answer, the outcome is unknown.
//
// BEGIN and check travel with the first statement of effect, so they cost no
// round trip. The server does not execute that statement, nor any after it, unless the check
// let the transaction in; but effect itself has begun by then. So effect does nothing
// but what it does through tx.
func (l *Ledger) Write(ctx context.Context, resource string, c fence.Claim, effect func(ctx context.Context, tx Tx) error) error {
	args, err := l.cfg.call(ctx, resource, c)
	if err != nil {
		return err
	}
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return aborted("write", resource, c, err)
	}
	defer conn.Release()
	defer rollback(conn) // also if effect panics
	tx := &transaction{conn: conn.Conn(), begin: l.begin, check: check{ctx, l.cfg, args, c}}
	err = effect(ctx, tx)
	if err == nil {
		err = tx.open(ctx) // one that wrote nothing is judged, too
	}
	switch {
	case tx.failed != nil:
		// Whatever effect makes of it.
		return fence.Report(ctx, aborted("write", resource, c, tx.failed))
	case err != nil:
		return aborted("write", resource, c, err)
	}
	tag, err := conn.Exec(ctx, "commit")
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	if err != nil {
		return committed(resource, c, err)
	}
	return nil
}

// rollback ends a transaction that was not committed, so that the pool can go on
// using the connection. If that fails, the pool drops it.
func rollback(conn *pgxpool.Conn) {
	const within = time.Second
	if conn.Conn().IsClosed() || conn.Conn().PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	_, _ = conn.Exec(ctx, "rollback")
}

// check is what the server is asked before anything of a write.
type check struct {
	ctx   context.Context // of the write, which has the leadership
	cfg   Config
	args  []any // of baton_fence_admit, when the write began
	claim fence.Claim
}

// now is the arguments with what is left of the leadership when they are sent:
// until then the write may have waited for a connection, or thought.
func (k check) now() ([]any, error) {
	left, err := k.cfg.left(k.ctx)
	if err != nil {
		return nil, err
	}
	return append(k.args[:5:5], left), nil
}

const (
	// enterSQL is the first half of what baton_fence_admit does, as a plain
	// statement, which costs less. Under READ COMMITTED the next statement
	// takes its snapshot when the lock is held, and can read the record.
	enterSQL = `select pg_advisory_xact_lock_shared(baton_fence_key($1)),
		set_config('idle_in_transaction_session_timeout', $2, true), set_config('statement_timeout', $3, true)`

	// insistSQL fails, dividing by zero, unless the record is as the token wants
	// it and what was said of snapshots holds. What it costs to say why is
	// spent by baton_fence_admit, when somebody wants to know.
	insistSQL = `select 1 / coalesce((select 1 from fenced_resource
		where name = $1 and "group" = $2 and max_token = $3 and instance = $4
		  and current_setting('transaction_isolation') = 'read committed'), 0)`

	codeInsists = "22012" // division by zero
)

// queue adds the plain statements to b and says how many they are.
func (k check) queue(ctx context.Context, conn *pgx.Conn, b *pgx.Batch) (int, error) {
	own, err := ownTimeouts(ctx, conn)
	if err != nil {
		return 0, err
	}
	args, err := k.now()
	if err != nil {
		return 0, err
	}
	left := args[5].(int64)
	b.Queue(enterSQL, args[0], own.idle.orShorter(left), own.statement.orShorter(left))
	b.Queue(insistSQL, args[:4]...)
	return 2, nil
}

// unsettled reports whether the plain statements could not decide.
func unsettled(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == codeInsists
}

// millis is a timeout as Postgres counts it: 0 is none.
type millis int64

func (m millis) orShorter(left int64) string {
	if m > 0 && int64(m) < left {
		left = int64(m)
	}
	return strconv.FormatInt(left, 10)
}

// timeouts are those that a session has anyway. A write may shorten them.
type timeouts struct{ idle, statement millis }

const ownTimeoutsSQL = `select (1000 * extract(epoch from current_setting('idle_in_transaction_session_timeout')::interval))::bigint,
	(1000 * extract(epoch from current_setting('statement_timeout')::interval))::bigint`

// ownTimeouts asks once per connection. To look each time, as baton_fence_admit
// does, costs a tenth of a small write.
func ownTimeouts(ctx context.Context, conn *pgx.Conn) (timeouts, error) {
	const key = "baton/fence/pgfence timeouts"
	known := conn.PgConn().CustomData()
	if own, ok := known[key].(timeouts); ok {
		return own, nil
	}
	var own timeouts
	if err := conn.QueryRow(ctx, ownTimeoutsSQL).Scan(&own.idle, &own.statement); err != nil {
		return timeouts{}, err
	}
	known[key] = own
	return own, nil
}

// transaction is that of a Write. It begins with the first statement.
type transaction struct {
	conn  *pgx.Conn
	begin string
	check check

	begun bool
	// failed is why the transaction never came to be. Nothing is sent any
	// more: it would be a transaction of its own, which nobody checked.
	failed error
}

// open begins the transaction, if it has not begun, and has it let in.
func (t *transaction) open(ctx context.Context) error {
	if t.begun || t.failed != nil {
		return t.failed
	}
	args, err := t.check.now()
	if err != nil {
		t.failed = err
		return err
	}
	t.begun = true
	b := new(pgx.Batch)
	b.Queue(t.begin)
	b.Queue(admitSQL, args...)
	t.failed = t.conn.SendBatch(ctx, b).Close()
	return t.failed
}

// along sends what queue adds to a batch with the BEGIN and the check. The
// results that it returns begin after those.
func (t *transaction) along(ctx context.Context, queue func(*pgx.Batch)) (pgx.BatchResults, error) {
	b := new(pgx.Batch)
	b.Queue(t.begin)
	before, err := t.check.queue(ctx, t.conn, b)
	if err != nil {
		t.failed = err
		return nil, err
	}
	queue(b)
	t.begun = true
	results := t.conn.SendBatch(ctx, b)
	for range before + 1 {
		if _, err = results.Exec(); err != nil {
			break
		}
	}
	if err == nil {
		return results, nil
	}
	_ = results.Close() // says the same again
	if !unsettled(err) {
		t.failed = err
		return nil, err
	}
	// The server has skipped what came along: it can be sent again.
	if _, err := t.conn.Exec(ctx, "rollback"); err != nil {
		t.failed = err
		return nil, err
	}
	t.begun = false
	if err := t.open(ctx); err != nil {
		return nil, err
	}
	b = new(pgx.Batch)
	queue(b)
	return t.conn.SendBatch(ctx, b), nil
}

// goesAlong reports whether a statement may travel with the check. Arguments
// that are options to pgx do not work in a batch.
func (t *transaction) goesAlong(args []any) bool {
	if t.begun || t.failed != nil || !t.check.cfg.quick(t.check.claim) {
		return false
	}
	if len(args) > 0 {
		switch args[0].(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
			return false
		}
	}
	return true
}

func (t *transaction) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	// Without arguments it may be several statements, which Postgres takes only
	// when they travel by themselves.
	if len(args) == 0 || !t.goesAlong(args) {
		if err := t.open(ctx); err != nil {
			return pgconn.CommandTag{}, err
		}
		return t.conn.Exec(ctx, sql, args...)
	}
	results, err := t.along(ctx, func(b *pgx.Batch) { b.Queue(sql, args...) })
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := results.Exec()
	if closing := results.Close(); err == nil {
		err = closing
	}
	return tag, err
}

func (t *transaction) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if !t.goesAlong(args) {
		if err := t.open(ctx); err != nil {
			return noRows{err: err}, err
		}
		return t.conn.Query(ctx, sql, args...)
	}
	results, err := t.along(ctx, func(b *pgx.Batch) { b.Queue(sql, args...) })
	if err != nil {
		return noRows{err: err}, err
	}
	rows, err := results.Query()
	return &batchRows{Rows: rows, results: results}, err
}

func (t *transaction) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, _ := t.Query(ctx, sql, args...) // the rows have the error, too
	return firstRow{rows}
}

func (t *transaction) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if b.Len() == 0 || !t.goesAlong(nil) {
		if err := t.open(ctx); err != nil {
			return noResults{err}
		}
		return t.conn.SendBatch(ctx, b)
	}
	results, err := t.along(ctx, func(whole *pgx.Batch) { enqueue(whole, b) })
	if err != nil {
		return noResults{err}
	}
	return results
}

func (t *transaction) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := t.open(ctx); err != nil {
		return 0, err
	}
	return t.conn.CopyFrom(ctx, table, columns, rows)
}

// enqueue adds the queries of b to whole. They are copies, since pgx notes in a
// query how it was prepared, which is void once it had to be sent again.
func enqueue(whole, b *pgx.Batch) {
	for _, q := range b.QueuedQueries {
		whole.QueuedQueries = append(whole.QueuedQueries, &pgx.QueuedQuery{SQL: q.SQL, Arguments: q.Arguments, Fn: q.Fn})
	}
}
