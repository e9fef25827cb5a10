package sqlitefence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"testing"

	"baton"
	"baton/fence"
	"baton/fence/sqlitefence"
)

// tardy is a connection whose context ends just when a transaction has begun:
// the driver reports the context's end, as it does in that race, and yet the
// transaction is open.
type tardy struct {
	conn
	end context.CancelFunc // nil if nothing is to happen
}

// conn is what database/sql uses of the driver's connection.
type conn interface {
	driver.Conn
	driver.ExecerContext
	driver.QueryerContext
}

func (c *tardy) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	r, err := c.conn.ExecContext(ctx, query, args)
	if c.end != nil && query == "begin immediate" && err == nil {
		c.end()
		c.end = nil
		return nil, ctx.Err()
	}
	return r, err
}

// connector opens one tardy connection after the other to the same file.
type connector struct {
	driver driver.Driver
	name   string
	opened []*tardy
}

func (c *connector) Driver() driver.Driver { return c.driver }

func (c *connector) Connect(context.Context) (driver.Conn, error) {
	opened, err := c.driver.Open(c.name)
	if err != nil {
		return nil, err
	}
	c.opened = append(c.opened, &tardy{conn: opened.(conn)})
	return c.opened[len(c.opened)-1], nil
}

// TestContextEndsAsTransactionBegins: nobody inherits the transaction of a write
// whose context ended at that moment, and the file stays free for others.
func TestContextEndsAsTransactionBegins(t *testing.T) {
	file := filepath.Join(t.TempDir(), "data.db")
	plain, err := sql.Open("sqlite", file)
	if err != nil {
		t.Fatal(err)
	}
	c := &connector{driver: plain.Driver(), name: file}
	db := sql.OpenDB(c)
	for _, d := range []*sql.DB{plain, db} {
		defer func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}()
	}
	if err := sqlitefence.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	ledger, tok := sqlitefence.New(db), baton.Token{Group: "payments", Term: 5, InstanceID: "a"}
	if _, err := ledger.Adopt(t.Context(), "log", tok); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.opened[0].end = cancel
	err = ledger.Advance(ctx, "log", fence.Ordered(tok, 1))
	if aborted := new(fence.AbortedError); !errors.As(err, &aborted) || !errors.Is(err, context.Canceled) {
		t.Errorf("write whose context ended: got %v, want it aborted", err)
	}
	if err := sqlitefence.New(plain).Advance(t.Context(), "log", fence.Ordered(tok, 2)); err != nil {
		t.Errorf("write of another process: %v", err)
	}
	if err := ledger.Advance(t.Context(), "log", fence.Ordered(tok, 3)); err != nil {
		t.Errorf("next write: %v", err)
	}
	if r, err := ledger.Read(t.Context(), "log"); err != nil || r.LastSeq != 3 {
		t.Errorf("read: got %v (%v), want last number 3", r, err)
	}
}
