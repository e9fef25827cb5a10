package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// table is a table of numbers, reached past the proxy.
type table struct{ conn *pgx.Conn }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func newTable(t *testing.T, s *serverInfo) table {
	t.Helper()
	conn := connect(t, s.Direct)
	if _, err := conn.Exec(t.Context(), "create table if not exists numbers (n int)"); err != nil {
		t.Fatal(err)
	}
	return table{conn}
}

func (tab table) has(t *testing.T, n int) (found bool) {
	t.Helper()
	if err := tab.conn.QueryRow(t.Context(), "select exists (select from numbers where n = $1)", n).Scan(&found); err != nil {
		t.Fatal(err)
	}
	return found
}

const insert = "insert into numbers values (1)"

// start runs a statement and returns how it ended, when it has.
func start(ctx context.Context, conn *pgx.Conn, sql string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(ctx, sql)
		done <- err
	}()
	return done
}

func mustSucceed(t *testing.T, what string, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: not done after 30 s", what)
	}
}

func mustWait(t *testing.T, what string, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("%s was done (%v), it was to wait", what, err)
	case <-time.After(100 * time.Millisecond):
	}
}

func TestPostgresKeepsDataThroughAKill(t *testing.T) {
	c, s := serveOne(t, "postgres")
	newTable(t, s)
	client := connect(t, s.URL)
	var fsync, connections string
	if err := client.QueryRow(t.Context(), "select current_setting('fsync'), current_setting('max_connections')").Scan(&fsync, &connections); err != nil {
		t.Fatal(err)
	}
	if fsync != "on" || connections != "200" {
		t.Errorf("fsync is %s and max_connections %s, want on and 200", fsync, connections)
	}
	if _, err := client.Exec(t.Context(), insert); err != nil {
		t.Fatal(err)
	}
	c.must(t, "kill", s)
	if _, err := client.Exec(t.Context(), insert); err == nil {
		t.Error("a killed server took a write")
	}
	c.must(t, "restart", s)
	if !newTable(t, s).has(t, 1) {
		t.Error("a committed row is gone after kill and restart")
	}
	if err := connect(t, s.URL).Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPostgresTakesSettings(t *testing.T) {
	c := runCommand(t, "serve")
	a := c.order(t, `{"cmd":"start","kind":"postgres","settings":{"fsync":"off"}}`)
	if !a.OK {
		t.Fatal(a.Error)
	}
	var fsync string
	if err := connect(t, a.Server.URL).QueryRow(t.Context(), "show fsync").Scan(&fsync); err != nil || fsync != "off" {
		t.Errorf("fsync is %s, %v; want off", fsync, err)
	}
}

func TestPostgresPausesWhole(t *testing.T) {
	c, s := serveOne(t, "postgres")
	tab := newTable(t, s)
	client := connect(t, s.URL) // its backend runs, and has to be paused too
	c.must(t, "pause", s)
	done := start(t.Context(), client, insert)
	mustWait(t, "a statement to a paused server", done)
	c.must(t, "resume", s)
	mustSucceed(t, "the statement", done)
	if !tab.has(t, 1) {
		t.Error("the row is not there")
	}
}

func TestPostgresCutOneWay(t *testing.T) {
	t.Run("to-server", func(t *testing.T) {
		c, s := serveOne(t, "postgres")
		tab, client := newTable(t, s), connect(t, s.URL)
		c.cut(t, "to-server", s)
		done := start(t.Context(), client, insert)
		mustWait(t, "a statement that does not arrive", done)
		if tab.has(t, 1) {
			t.Error("the statement arrived")
		}
		c.must(t, "heal", s)
		mustSucceed(t, "the statement", done)
		if !tab.has(t, 1) {
			t.Error("the row is not there")
		}
	})
	t.Run("to-client", func(t *testing.T) {
		c, s := serveOne(t, "postgres")
		tab, client := newTable(t, s), connect(t, s.URL)
		c.cut(t, "to-client", s)
		done := start(t.Context(), client, insert)
		eventually(t, "the write whose reply is held back", func() bool { return tab.has(t, 1) })
		mustWait(t, "the statement", done)
		c.must(t, "heal", s)
		mustSucceed(t, "the statement", done)
	})
}

// The unknown outcome: what was asked has happened, and the answer is lost for good.
func TestPostgresReplyLost(t *testing.T) {
	c, s := serveOne(t, "postgres")
	tab, client := newTable(t, s), connect(t, s.URL)
	c.cut(t, "to-client", s)
	done := start(t.Context(), client, insert)
	eventually(t, "the write whose reply is held back", func() bool { return tab.has(t, 1) })
	c.must(t, "refuse", s)
	if err := <-done; err == nil {
		t.Error("the reply came through")
	}
	if _, err := pgx.Connect(t.Context(), s.URL); err == nil {
		t.Error("a connection was made that was to be refused")
	}
	c.must(t, "heal", s)
	if err := connect(t, s.URL).Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// A server behind a cut does not learn that its client has gone: what the
// client has locked stays locked.
func TestPostgresKeepsSessionsBehindACut(t *testing.T) {
	c, s := serveOne(t, "postgres")
	direct, client := connect(t, s.Direct), connect(t, s.URL)
	if _, err := client.Exec(t.Context(), "select pg_advisory_lock(1)"); err != nil {
		t.Fatal(err)
	}
	free := func() (ok bool) {
		if err := direct.QueryRow(t.Context(), "select pg_try_advisory_lock(1)").Scan(&ok); err != nil {
			t.Fatal(err)
		}
		return ok
	}
	c.cut(t, "both", s)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := client.Exec(ctx, "select 1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a statement behind a cut ended with %v", err)
	}
	if err := client.Close(t.Context()); err != nil {
		t.Logf("close behind a cut: %v", err)
	}
	if free() {
		t.Error("the lock of a client that is gone behind a cut was freed")
	}
	c.must(t, "heal", s)
	eventually(t, "the lock's release after the cut", free)
}
