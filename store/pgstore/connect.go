package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"baton"
)

// minVersion has gen_random_uuid, as Postgres counts versions.
const minVersion = 130000

// errReadOnly: the server takes no writes.
var errReadOnly = errors.New("the server takes no writes: it is a standby, or default_transaction_read_only is on; name the primary, or all hosts")

// pools are what a store connects with.
type pools struct {
	calls, waits *pgxpool.Config
	listener     *pgx.ConnConfig
}

// connectTo makes what the store connects with. Connections break when life ends.
func (cfg Config) connectTo(life context.Context) (pools, error) {
	calls, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		// What pgx says of a URL that it cannot read has parts of it.
		return pools{}, errors.New("the connection string is not one that Postgres' clients take")
	}
	switch {
	case cfg.MaxConns > 0:
		calls.MaxConns = int32(min(cfg.MaxConns, 1<<15)) //nolint:gosec // it is bounded
	case !namesPoolSize(cfg.URL):
		calls.MaxConns = defaultMaxConns
	}
	conn := calls.ConnConfig
	conn.ConnectTimeout = cfg.Timeout
	set := func(name, value string) {
		if _, taken := conn.RuntimeParams[name]; !taken {
			conn.RuntimeParams[name] = value
		}
	}
	set("application_name", "baton")
	// Whatever the database's default: the functions are made for this one.
	conn.RuntimeParams["default_transaction_isolation"] = "read committed"
	// Whoever has left does not stay in the queue for a row.
	conn.RuntimeParams["statement_timeout"] = strconv.FormatInt(cfg.Timeout.Milliseconds(), 10)
	dial := conn.DialFunc
	conn.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		return dialBound(ctx, life, dial, network, addr, cfg.Timeout)
	}
	theirs := conn.ValidateConnect
	conn.ValidateConnect = func(ctx context.Context, c *pgconn.PgConn) error {
		if theirs != nil {
			if err := theirs(ctx, c); err != nil {
				return err
			}
		}
		return validate(ctx, c)
	}
	conn.AfterConnect = func(_ context.Context, c *pgconn.PgConn) error {
		return c.Conn().SetDeadline(time.Time{})
	}
	// One that was cut off is found out before a request is given to it.
	calls.PingTimeout = cfg.Timeout / 5
	waits := calls.Copy()
	waits.MaxConns = waitingConns
	return pools{calls: calls, waits: waits, listener: conn.Copy()}, nil
}

// bound is a connection that breaks when the store closes.
type bound struct {
	net.Conn
	release func() bool
}

// closingWithin is how long a connection may take to say good-bye. pgx would
// give a server that is silent 15 seconds, and the pool counts the connection meanwhile.
const closingWithin = time.Second

// dialBound connects. A connection has a deadline until AfterConnect takes it
// away; so those on which pgx asks for a cancellation have one, too.
func dialBound(ctx, life context.Context, dial pgconn.DialFunc, network, addr string, within time.Duration) (net.Conn, error) {
	conn, err := dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &bound{conn, context.AfterFunc(life, func() { _ = conn.Close() })}, nil
}

// SetDeadline is what pgx calls with a moment ahead only when it says good-bye.
func (b *bound) SetDeadline(t time.Time) error {
	if latest := time.Now().Add(closingWithin); t.After(latest) {
		t = latest
	}
	return b.Conn.SetDeadline(t)
}

func (b *bound) Close() error {
	b.release()
	return b.Conn.Close()
}

// validate looks at a server before the connection is used: of several hosts
// the one that passes is taken.
func validate(ctx context.Context, c *pgconn.PgConn) error {
	results, err := c.Exec(ctx, `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean, current_setting('server_version_num'), current_setting('server_version')`).ReadAll()
	if err != nil {
		return err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 || len(results[0].Rows[0]) != 3 {
		return errors.New("the server does not say what it is")
	}
	row := results[0].Rows[0]
	if err := checkVersion(string(row[1]), string(row[2])); err != nil {
		return err
	}
	if string(row[0]) != "f" {
		return errReadOnly
	}
	return nil
}

// versionError says that the server is too old.
type versionError struct{ version string }

func (e *versionError) Error() string {
	return fmt.Sprintf("the server is Postgres %s: want %d or newer", e.version, minVersion/10000)
}

func (e *versionError) Is(target error) bool { return target == baton.ErrConflict }

// checkVersion takes server_version_num and server_version.
func checkVersion(number, text string) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return fmt.Errorf("the server's version is %q: %w", number, err)
	}
	if n < minVersion {
		return &versionError{text}
	}
	return nil
}
