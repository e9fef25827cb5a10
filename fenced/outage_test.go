package fenced_test

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"baton"
	"baton/fence"
	"baton/fenced"
	"baton/fenced/fencedclient"
	"baton/internal/testserver"
)

// Killed and started again in the middle of it all, the program has forgotten
// nothing, and a leader that keeps trying gets every number once.
func TestKilled(t *testing.T) {
	eachDatabase(t, func(t *testing.T, open func(testing.TB) string) {
		p := start(t, "-db", open(t))
		l := lead(t, token(5, "a"))
		jobs, err := p.client.Take(l.Context(), "jobs")
		if err != nil {
			t.Fatal(err)
		}
		const batches = 120
		progress := make(chan int)
		failed := make(chan error, 1)
		go func() {
			defer close(progress)
			last := int64(0)
			for i := range batches {
				n, err := jobs.Next(l.Context(), 3)
				if err == nil && n.First <= last {
					err = errors.New("a number was given out again")
				}
				if err != nil {
					failed <- err
					return
				}
				last = n.Last
				progress <- i
			}
		}()
		for i := range progress {
			if i == batches/3 || i == 2*batches/3 {
				// While the next one is under way, or about to be.
				p.kill()
				p.restart()
			}
		}
		select {
		case err := <-failed:
			t.Fatal(err)
		default:
		}
		if !l.Valid() {
			t.Errorf("the leadership ended: %v", l.Cause())
		}
		if a, err := p.client.Audit(t.Context(), ""); err != nil || !a.OK || a.Writes < batches {
			t.Errorf("audit: %+v, %v, want at least %d writes and nothing to complain about", a, err, batches)
		}

		p.kill()
		p.restart()
		if _, err := p.client.Adopt(t.Context(), "jobs", token(4, "old")); !errors.Is(err, fence.ErrStale) {
			t.Errorf("the past after a restart: got %v, want stale", err)
		}
	})
}

// The database goes away in the middle: 503, and nothing is half done.
func TestDatabaseDown(t *testing.T) {
	server := testserver.Start(t, testserver.Postgres)
	p := start(t, "-db", newSchema(t, server.URL), "-timeout", "1s")
	ctx, a, b := t.Context(), token(5, "a"), token(6, "b")
	// A second is for a database that is down. It may pass by itself where the machine stands still.
	eventually(t, "the leader to adopt", func() error { _, err := p.client.Adopt(ctx, "jobs", a); return err })
	eventually(t, "the first tick", func() error {
		err := p.client.Tick(ctx, "jobs", fence.Ordered(a, 1), fencedclient.Tick{})
		if errors.Is(err, fence.ErrRepeat) {
			return nil // one that was not answered has landed
		}
		return err
	})
	down := func(how string) {
		t.Helper()
		_, adopt := p.client.Adopt(ctx, "jobs", b)
		_, numbers := p.client.Numbers(ctx, "jobs", fence.Unordered(a), 5)
		_, health := p.client.Health(ctx)
		for op, err := range map[string]error{
			"tick":    p.client.Tick(ctx, "jobs", fence.Ordered(a, 2), fencedclient.Tick{}),
			"adopt":   adopt,
			"numbers": numbers,
			"healthz": health,
		} {
			var unavailable *baton.UnavailableError
			if !errors.As(err, &unavailable) || fence.Refused(err) || unavailable.RetryAfter == 0 {
				t.Errorf("%s while the database is %s: got %v, want unavailable", op, how, err)
			}
		}
	}
	server.Refuse(t)
	down("gone")
	server.Heal(t)
	eventually(t, "the program to be well again", func() error { _, err := p.client.Health(ctx); return err })
	var r fence.Record
	read := func() (err error) { r, err = p.client.Read(ctx, "jobs"); return err }
	eventually(t, "the record", read)
	if r != (fence.Record{Group: "payments", Term: 5, InstanceID: "a", LastSeq: 1}) {
		t.Errorf("record: %v, want it as it was before the outage", r)
	}

	server.Pause(t)
	down("frozen")
	server.Resume(t)
	eventually(t, "the program to be well again", func() error { _, err := p.client.Health(ctx); return err })
	// What was sent to the frozen server may have landed by now, or does at last: all of it, or nothing.
	eventually(t, "the next tick", func() error {
		if err := read(); err != nil {
			return err
		}
		return p.client.Tick(ctx, "jobs", fence.Ordered(r.Token(), r.LastSeq+1), fencedclient.Tick{})
	})
	if a, err := p.client.Audit(ctx, ""); err != nil || !a.OK {
		t.Errorf("audit: %+v, %v", a, err)
	}
}

// SIGTERM: what is under way is finished and answered.
func TestDrain(t *testing.T) {
	database := postgresSchema(t)
	p := start(t, "-db", database)
	ctx, a := t.Context(), token(5, "a")
	if _, err := p.client.Adopt(ctx, "jobs", a); err != nil {
		t.Fatal(err)
	}
	// Somebody holds the resource, so that the tick has to wait.
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(baton_fence_key('jobs'))"); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() { answered <- p.client.Tick(ctx, "jobs", fence.Ordered(a, 1), fencedclient.Tick{}) }()
	eventually(t, "the tick to wait", func() error {
		var n int
		err := tx.QueryRow(ctx, "select count(*) from pg_locks where locktype = 'advisory' and not granted").Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("nobody waits")
		}
		return err
	})
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the program to stop listening", func() error {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			return nil
		}
		_ = conn.Close()
		return errors.New("it still does")
	})
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("the tick that was under way: %v", err)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("the program: %v\n%s", err, p.stderr)
	}
}

func TestBadStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	file := sqliteFile(t)
	for _, tt := range []struct {
		name   string
		args   []string
		status int
		says   string
	}{
		{"unknown flag", []string{"-nonsense"}, fenced.ExitUsage, "-nonsense"},
		{"fencing neither on nor off", []string{"-fencing=perhaps"}, fenced.ExitUsage, "want on or off"},
		{"an argument", []string{"-db", file, "run"}, fenced.ExitUsage, `unexpected argument "run"`},
		{"no database", []string{"-db", ""}, fenced.ExitUsage, "-db is empty"},
		{"no port", []string{"-listen", "127.0.0.1"}, fenced.ExitUsage, "want host:port"},
		{"bad port", []string{"-listen", "127.0.0.1:70000"}, fenced.ExitUsage, "port must be"},
		{"the whole world", []string{"-listen", ":0"}, fenced.ExitUsage, "say -insecure"},
		{"no time", []string{"-timeout", "0s"}, fenced.ExitUsage, "must be positive"},
		{"port in use", []string{"-listen", taken.Addr().String(), "-db", file}, fenced.ExitUsage, "address already in use"},
		{"no directory", []string{"-listen", "127.0.0.1:0", "-db", file + "/no/such"}, fenced.ExitFailed, "open the sqlite database"},
		{"nobody there", []string{"-listen", "127.0.0.1:0", "-db", "postgres://127.0.0.1:1/x?connect_timeout=2"}, fenced.ExitFailed, "open the postgres database"},
	} {
		cmd := command(tt.args...)
		said := new(lines)
		cmd.Stderr = said
		err := cmd.Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != tt.status {
			t.Errorf("%s: got %v, want exit status %d\n%s", tt.name, err, tt.status, said)
		}
		if text := said.String(); !strings.Contains(text, tt.says) || strings.Count(text, "\n") != 1 {
			t.Errorf("%s: it said %q, want one line with %q", tt.name, text, tt.says)
		}
	}
}

func TestHelp(t *testing.T) {
	help, err := command("-help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"-listen", "-db", "-fencing", "-insecure", "-timeout", "-drain", "-log-json"} {
		if !strings.Contains(string(help), "  "+flag) {
			t.Errorf("the help does not tell of %s:\n%s", flag, help)
		}
	}
}
