package pgfence

import (
	"context"
	"database/sql"
	_ "embed" // schema.sql
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"baton"
	"baton/fence"
)

// Schema is the migration that creates the ledger's tables and functions, for
// those who run their own migrations. It can be run any number of times.
//
//go:embed schema.sql
var Schema string

// migrationKey is the advisory lock under which the schema is changed, since
// Postgres does not take CREATE ... IF NOT EXISTS from two sides at once.
const migrationKey int64 = 0x6261746f6e66656e // "batonfen"

// Config is what can be chosen; the zero Config is good.
type Config struct {
	// Isolation is that of the transactions that Write begins. Default: the
	// database's.
	Isolation sql.IsolationLevel
	// EvictAfter is how long Adopt waits for writers of earlier leaderships
	// before it disconnects them. Default 500ms; negative: never.
	EvictAfter time.Duration
	// Hold bounds how long a transaction may stay idle, or in one
	// statement, where the context carries neither a leadership nor a deadline.
	// Default 10s.
	Hold time.Duration
}

func (c Config) evictMillis() int64 {
	switch {
	case c.EvictAfter < 0:
		return 0
	case c.EvictAfter == 0:
		return 500
	}
	return max(1, c.EvictAfter.Milliseconds())
}

const defaultHold = 10 * time.Second

// left is how long, in milliseconds, a transaction under ctx may block others.
func (c Config) left(ctx context.Context) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, context.Cause(ctx)
	}
	left, bounded := defaultHold, false
	if c.Hold > 0 {
		left = c.Hold
	}
	if l, ok := baton.LeadershipFrom(ctx); ok {
		left, bounded = l.Remaining(), true
	}
	if deadline, ok := ctx.Deadline(); ok {
		if d := time.Until(deadline); !bounded || d < left {
			left = d
		}
	}
	if left <= 0 {
		return 0, baton.ErrLapsed
	}
	return max(1, min(left, baton.MaxTTL).Milliseconds()), nil
}

// beginSQL is how Write begins: the isolation level, spelled as Postgres does.
func (c Config) beginSQL() (string, error) {
	switch c.Isolation {
	case sql.LevelDefault:
		return "begin", nil
	case sql.LevelReadUncommitted, sql.LevelReadCommitted:
		return "begin isolation level read committed", nil
	case sql.LevelRepeatableRead, sql.LevelSnapshot:
		return "begin isolation level repeatable read", nil
	case sql.LevelSerializable:
		return "begin isolation level serializable", nil
	}
	return "", &baton.InvalidArgumentError{Field: "isolation", Value: c.Isolation.String(), Want: "a level that Postgres has"}
}

// call is the arguments of baton_fence_admit.
func (c Config) call(ctx context.Context, resource string, claim fence.Claim) ([]any, error) {
	if err := fence.ValidateResource(resource); err != nil {
		return nil, err
	}
	if err := claim.Validate(); err != nil {
		return nil, err
	}
	left, err := c.left(ctx)
	if err != nil {
		return nil, &fence.AbortedError{Err: err}
	}
	t := claim.Token()
	seq, _ := claim.Seq() // 0 if there is none, which no valid number is
	return []any{resource, t.Group, int64(t.Term), t.InstanceID, seq, left}, nil
}

const (
	admitSQL = `select baton_fence_admit($1, $2, $3, $4, $5, $6)`

	// lockSQL is the first half of what baton_fence_admit does, in a
	// transaction whose settings are the caller's.
	lockSQL = `select pg_advisory_xact_lock_shared(baton_fence_key($1)),
		set_config('idle_in_transaction_session_timeout', case
			when current_setting('idle_in_transaction_session_timeout') = '0'
			  or $2::bigint < 1000 * extract(epoch from current_setting('idle_in_transaction_session_timeout')::interval)
			then $2::bigint::text else current_setting('idle_in_transaction_session_timeout') end, true),
		set_config('statement_timeout', case
			when current_setting('statement_timeout') = '0'
			  or $2::bigint < 1000 * extract(epoch from current_setting('statement_timeout')::interval)
			then $2::bigint::text else current_setting('statement_timeout') end, true),
		current_setting('transaction_isolation')`

	// lookSQL finds the record if it is as the token wants it.
	lookSQL = `select 1 from fenced_resource where name = $1 and "group" = $2 and max_token = $3 and instance = $4`

	adoptSQL = `select baton_fence_adopt($1, $2, $3, $4, $5)`
	readSQL  = `select r."group", r.max_token, r.instance, coalesce(s.last_seq, 0)
		from fenced_resource r left join sequence s using (name) where r.name = $1`
)

// quick reports whether the plain statements will do, which they do if the
// isolation level turns out to be READ COMMITTED.
func (c Config) quick(claim fence.Claim) bool {
	_, ordered := claim.Seq()
	return !ordered && c.Isolation <= sql.LevelReadCommitted
}

// Admit lets the caller's transaction write to the resource, or aborts it. Call
// it before anything else in the transaction, and not inside a savepoint.
func Admit(ctx context.Context, tx pgx.Tx, resource string, c fence.Claim) error {
	var cfg Config
	args, err := cfg.call(ctx, resource, c)
	if err != nil {
		return err
	}
	if err := cfg.admit(ctx, tx, args, c); err != nil {
		return fence.Report(ctx, aborted("admit", resource, c, err))
	}
	return nil
}

func (c Config) admit(ctx context.Context, tx pgx.Tx, args []any, claim fence.Claim) error {
	if c.quick(claim) {
		var (
			isolation string
			found     bool
		)
		b := new(pgx.Batch)
		b.Queue(lockSQL, args[0], args[5]).QueryRow(func(row pgx.Row) error {
			return row.Scan(nil, nil, nil, &isolation)
		})
		b.Queue(lookSQL, args[:4]...).Query(func(rows pgx.Rows) error {
			found = rows.Next()
			rows.Close()
			return rows.Err()
		})
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		if found && isolation == "read committed" {
			return nil
		}
	}
	_, err := tx.Exec(ctx, admitSQL, args...)
	return err
}

// Migrate installs Schema in the first schema of the search_path.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", migrationKey); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, Schema)
		return err
	})
	if err != nil {
		return fmt.Errorf("install the fencing schema: %w", err)
	}
	return nil
}

// Ledger is the ledger through a pgx pool.
type Ledger struct {
	pool  *pgxpool.Pool
	cfg   Config
	begin string
}

var _ fence.Ledger = (*Ledger)(nil)

// New returns the ledger in the pool's database. The pool stays the caller's.
func New(pool *pgxpool.Pool, cfg Config) (*Ledger, error) {
	begin, err := cfg.beginSQL()
	if err != nil {
		return nil, err
	}
	return &Ledger{pool: pool, cfg: cfg, begin: begin}, nil
}

// Adopt implements fence.Ledger.
func (l *Ledger) Adopt(ctx context.Context, resource string, t baton.Token) (fence.Record, error) {
	return adopt(ctx, resource, t, func() (lastSeq int64, err error) {
		conn, err := l.pool.Acquire(ctx)
		if err != nil {
			return 0, err
		}
		defer conn.Release()
		defer rollback(conn) // if it was refused
		// In one round trip: whoever freezes meanwhile keeps nobody out.
		b := new(pgx.Batch)
		b.Queue("begin isolation level read committed")
		b.Queue(adoptSQL, resource, t.Group, int64(t.Term), t.InstanceID, l.cfg.evictMillis()).QueryRow(func(row pgx.Row) error {
			return row.Scan(&lastSeq)
		})
		b.Queue("commit")
		err = conn.SendBatch(ctx, b).Close()
		return lastSeq, err
	})
}

// adopt tries until it has an answer that is about itself. Another Adopt may have meant to cut off a write that
// ended just then, and whose connection had gone back to the pool: to this one.
func adopt(ctx context.Context, resource string, t baton.Token, try func() (lastSeq int64, err error)) (fence.Record, error) {
	const tries = 3
	r, err := fence.Record{}.Adopt(resource, t) // validates
	if err != nil {
		return fence.Record{}, err
	}
	for tried := 1; ; tried++ {
		if r.LastSeq, err = try(); err == nil {
			return r, nil
		}
		if tried == tries || ctx.Err() != nil || !wasCut(err) {
			return fence.Record{}, fence.Report(ctx, adoption(resource, fence.Unordered(t), err))
		}
	}
}

// wasCut: the connection was ended at the server, by somebody, or because no commit followed in time, as when this
// process stands still. Nothing was committed then.
func wasCut(err error) bool {
	const adminShutdown, idleInTransaction = "57P01", "25P03"
	var state interface{ SQLState() string }
	return errors.As(err, &state) && (state.SQLState() == adminShutdown || state.SQLState() == idleInTransaction)
}

func adoption(resource string, c fence.Claim, err error) error {
	if r := refusal(resource, c, err); fence.Refused(r) {
		return r
	}
	return fmt.Errorf("adopt resource %q for %v: %w", resource, c.Token(), err)
}

// SendBatch sends the check and the batch in one round trip, as one
// transaction with the database's isolation level: all of it lands, or nothing.
// The batch must not begin or end transactions itself. Results go to the
// functions that were given to its queries.
func (l *Ledger) SendBatch(ctx context.Context, resource string, c fence.Claim, b *pgx.Batch) error {
	args, err := l.cfg.call(ctx, resource, c)
	if err != nil {
		return err
	}
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return aborted("write", resource, c, err)
	}
	defer conn.Release()
	send := func(whole *pgx.Batch) error {
		enqueue(whole, b)
		return conn.SendBatch(ctx, whole).Close()
	}
	k, settled := check{ctx, l.cfg, args, c}, false
	if l.cfg.quick(c) {
		whole := new(pgx.Batch)
		if _, err := k.queue(ctx, conn.Conn(), whole); err != nil {
			return aborted("write", resource, c, err)
		}
		// A division by zero after this is the batch's own.
		whole.QueuedQueries[whole.Len()-1].Exec(func(pgconn.CommandTag) error { settled = true; return nil })
		err = send(whole)
		settled = settled || !unsettled(err)
	}
	if !settled {
		if args, err = k.now(); err != nil {
			return aborted("write", resource, c, err)
		}
		whole := new(pgx.Batch)
		whole.Queue(admitSQL, args...)
		err = send(whole)
	}
	if err != nil {
		return fence.Report(ctx, committed(resource, c, err))
	}
	return nil
}

// Advance implements fence.Ledger.
func (l *Ledger) Advance(ctx context.Context, resource string, c fence.Claim) error {
	if err := fence.RequireOrdered(c); err != nil {
		return err
	}
	return l.SendBatch(ctx, resource, c, new(pgx.Batch))
}

// Read implements fence.Ledger.
func (l *Ledger) Read(ctx context.Context, resource string) (fence.Record, error) {
	if err := fence.ValidateResource(resource); err != nil {
		return fence.Record{}, err
	}
	return scan(resource, l.pool.QueryRow(ctx, readSQL, resource).Scan)
}

func scan(resource string, row func(dest ...any) error) (fence.Record, error) {
	var r fence.Record
	var term int64
	err := row(&r.Group, &term, &r.InstanceID, &r.LastSeq)
	switch {
	case errors.Is(err, sql.ErrNoRows): // pgx's error is one, too
		return fence.Record{}, nil
	case err != nil:
		return fence.Record{}, fmt.Errorf("read the record of resource %q: %w", resource, err)
	}
	r.Term = baton.Term(term)
	return r, nil
}
