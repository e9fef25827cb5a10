// Package sqlitefence is the fencing ledger for data in an SQLite file. See
// baton/fence for the rules. It needs SQLite 3.35 or later and works with any
// driver of database/sql.
//
// SQLite lets one transaction write at a time. [Ledger.Write] and
// [Ledger.Adopt] begin theirs with BEGIN IMMEDIATE, so that they hold that
// right before they read the record; [Admit] begins with a write, which has
// the same effect, and fails if the transaction has read a state that is no
// longer the current one. So what was checked stays true until the commit, and
// Adopt comes before or after, never in between.
//
// A leader that freezes inside a transaction keeps everyone else from writing
// to the file: SQLite has no way to take the right from a living process.
// Leaders on other machines that share the data belong behind a server, such
// as cmd/fenced; processes on one machine that share the file set a
// busy_timeout and keep their transactions short. So far as one process is
// concerned Adopt waits its turn behind those that came before it.
//
// A power cut forgets no adoption if the database is opened with the pragma
// synchronous(FULL), which is SQLite's default but not every driver's.
package sqlitefence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed" // schema.sql
	"errors"
	"fmt"
	"time"

	"baton"
	"baton/fence"
)

// Schema creates the ledger's tables. It can be run any number of times.
//
//go:embed schema.sql
var Schema string

// Migrate runs Schema.
func Migrate(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, Schema); err != nil {
		return fmt.Errorf("install the fencing schema: %w", err)
	}
	return nil
}

// Admit lets the caller's transaction write to the resource. If it is refused,
// the transaction is rolled back: whoever overlooks the error cannot commit.
// Call it before anything else in the transaction.
//
// When a statement of the transaction fails later, end it: SQLite may have rolled
// it back, and what follows would be written at once, beside the check.
// [Ledger.Write] sees to that itself.
func Admit(ctx context.Context, tx *sql.Tx, resource string, c fence.Claim) error {
	if _, err := (fence.Record{}).Admit(resource, c); errors.Is(err, baton.ErrInvalidArgument) {
		return errors.Join(err, tx.Rollback())
	}
	// A write that changes nothing takes the right to write.
	const lock = `update fenced_resource set max_token = max_token where name = ?`
	if _, err := tx.ExecContext(ctx, lock, resource); err != nil {
		return aborted("admit", resource, c, errors.Join(err, tx.Rollback()))
	}
	if err := admit(ctx, tx, resource, c); err != nil {
		_ = tx.Rollback() // the refusal is what matters, and nothing has been written
		return fence.Report(ctx, err)
	}
	return nil
}

// admit checks c and records its number. tx has the right to write.
func admit(ctx context.Context, tx Tx, resource string, c fence.Claim) error {
	held, err := read(ctx, tx, resource)
	if err != nil {
		return aborted("admit", resource, c, err)
	}
	if _, err := held.Admit(resource, c); err != nil {
		return err
	}
	seq, ordered := c.Seq()
	if !ordered {
		return nil
	}
	const advance = `insert into sequence (name, last_seq, owner_token) values (?1, ?2, ?3)
		on conflict (name) do update set last_seq = ?2, owner_token = ?3`
	if _, err := tx.ExecContext(ctx, advance, resource, seq, int64(c.Token().Term)); err != nil {
		return aborted("admit", resource, c, err)
	}
	return nil
}

func read(ctx context.Context, tx Tx, resource string) (fence.Record, error) {
	const query = `select r."group", r.max_token, r.instance, coalesce(s.last_seq, 0)
		from fenced_resource r left join sequence s on s.name = r.name where r.name = ?`
	var (
		r    fence.Record
		term int64
	)
	err := tx.QueryRowContext(ctx, query, resource).Scan(&r.Group, &term, &r.InstanceID, &r.LastSeq)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fence.Record{}, nil
	case err != nil:
		return fence.Record{}, fmt.Errorf("read the record of resource %q: %w", resource, err)
	}
	r.Term = baton.Term(term)
	return r, nil
}

func aborted(what, resource string, c fence.Claim, err error) error {
	if fence.Refused(err) {
		return err
	}
	return &fence.AbortedError{Err: fmt.Errorf("%s %v to resource %q: %w", what, c, resource, err)}
}

// Ledger is the ledger in one SQLite database. A process has one per database:
// those who write through it wait in line, while SQLite itself lets whoever
// asks at the right moment go first, and can keep an Adopt waiting for long.
type Ledger struct {
	db   *sql.DB
	turn chan struct{} // holds one value while nobody writes
}

var _ fence.Ledger = (*Ledger)(nil)

// New returns the ledger in db, which stays the caller's.
func New(db *sql.DB) *Ledger {
	l := &Ledger{db: db, turn: make(chan struct{}, 1)}
	l.turn <- struct{}{}
	return l
}

// immediate runs f between BEGIN IMMEDIATE and COMMIT, whatever the driver's
// settings make of BeginTx. An error of the commit is marked as such.
func (l *Ledger) immediate(ctx context.Context, f func(conn *sql.Conn) error) error {
	select {
	case <-l.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { l.turn <- struct{}{} }()
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // goes back to the pool
	if _, err := conn.ExecContext(ctx, "begin immediate"); err != nil {
		// It may have begun all the same, just before the context ended.
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
		defer cancel()
		_, _ = conn.ExecContext(end, "rollback") // fails if it has not
		return err
	}
	open := true
	defer func() {
		if open { // also if f panics
			rollback(conn)
		}
	}()
	if err := f(conn); err != nil {
		return err
	}
	// The commit is not torn from its context: it is short, and ends known.
	if _, err := conn.ExecContext(context.WithoutCancel(ctx), "commit"); err != nil {
		return &commitError{err}
	}
	open = false
	return nil
}

const rollbackTime = time.Second

// rollback is not bound to the write's context, which may be what failed.
func rollback(conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), rollbackTime)
	defer cancel()
	if _, err := conn.ExecContext(ctx, "rollback"); err != nil {
		// Nobody may go on in this transaction: drop the connection.
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// commitError is a failure of COMMIT, after which the outcome is unknown.
type commitError struct{ err error }

func (e *commitError) Error() string { return "commit: " + e.err.Error() }
func (e *commitError) Unwrap() error { return e.err }

// Adopt implements fence.Ledger.
func (l *Ledger) Adopt(ctx context.Context, resource string, t baton.Token) (fence.Record, error) {
	if _, err := (fence.Record{}).Adopt(resource, t); err != nil {
		return fence.Record{}, err
	}
	var adopted fence.Record
	err := l.immediate(ctx, func(tx *sql.Conn) error {
		held, err := read(ctx, tx, resource)
		if err != nil {
			return err
		}
		adopted, err = held.Adopt(resource, t)
		if err != nil || adopted == held {
			return err
		}
		const raise = `insert into fenced_resource (name, "group", max_token, instance) values (?1, ?2, ?3, ?4)
			on conflict (name) do update set max_token = ?3, instance = ?4`
		if _, err := tx.ExecContext(ctx, raise, resource, t.Group, int64(t.Term), t.InstanceID); err != nil {
			return err
		}
		const begin = `insert into sequence (name, last_seq, owner_token) values (?1, 0, ?2) on conflict (name) do nothing`
		_, err = tx.ExecContext(ctx, begin, resource, int64(t.Term))
		return err
	})
	switch {
	case fence.Refused(err):
		return fence.Record{}, fence.Report(ctx, err)
	case err != nil:
		return fence.Record{}, fmt.Errorf("adopt resource %q for %v: %w", resource, t, err)
	}
	return adopted, nil
}

// Write runs effect in a transaction that was let in to the resource, and
// commits it. When effect fails the error is a *fence.AbortedError; when the
// commit does, the outcome is unknown.
func (l *Ledger) Write(ctx context.Context, resource string, c fence.Claim, effect func(ctx context.Context, tx Tx) error) error {
	if _, err := (fence.Record{}).Admit(resource, c); errors.Is(err, baton.ErrInvalidArgument) {
		return err
	}
	err := l.immediate(ctx, func(conn *sql.Conn) error {
		if err := admit(ctx, conn, resource, c); err != nil {
			return err
		}
		tx := &watched{conn: conn}
		if err := effect(ctx, tx); err != nil {
			return err
		}
		return tx.open(ctx)
	})
	var unknown *commitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unknown):
		return fmt.Errorf("write %v to resource %q: %w", c, resource, err)
	}
	return fence.Report(ctx, aborted("write", resource, c, err))
}

// Advance implements fence.Ledger.
func (l *Ledger) Advance(ctx context.Context, resource string, c fence.Claim) error {
	if err := fence.RequireOrdered(c); err != nil {
		return err
	}
	return l.Write(ctx, resource, c, func(context.Context, Tx) error { return nil })
}

// Read implements fence.Ledger.
func (l *Ledger) Read(ctx context.Context, resource string) (fence.Record, error) {
	if err := fence.ValidateResource(resource); err != nil {
		return fence.Record{}, err
	}
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return fence.Record{}, fmt.Errorf("read the record of resource %q: %w", resource, err)
	}
	defer func() { _ = conn.Close() }() // goes back to the pool
	return read(ctx, conn, resource)
}
