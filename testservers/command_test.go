package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const asCommand = "TESTSERVERS_AS_COMMAND"

// TestMain runs as the command itself when a test starts it so.
func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command is a run of the command, as tests of the main module have it.
type command struct {
	*exec.Cmd
	in  *os.File
	out *bufio.Reader
}

func runCommand(t *testing.T, args ...string) *command {
	t.Helper()
	stdin, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=yes")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = stdin.Close(), stdout.Close()
	c := &command{Cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // an error if the test has waited or killed
		_ = out.Close()
	})
	return c
}

// answer reads the next line that the command says.
func (c *command) answer(t *testing.T) answer {
	t.Helper()
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("read the command's answer: %v", err)
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatalf("read the command's answer %q: %v", line, err)
	}
	return a
}

func (c *command) order(t *testing.T, format string, args ...any) answer {
	t.Helper()
	if _, err := fmt.Fprintf(c.in, format+"\n", args...); err != nil {
		t.Fatal(err)
	}
	return c.answer(t)
}

// must gives an order about one server.
func (c *command) must(t *testing.T, cmd string, s *serverInfo) {
	t.Helper()
	if a := c.order(t, `{"cmd":%q,"server":%q}`, cmd, s.Name); !a.OK {
		t.Fatal(a.Error)
	}
}

func (c *command) cut(t *testing.T, direction string, s *serverInfo) {
	t.Helper()
	if a := c.order(t, `{"cmd":"cut","direction":%q,"server":%q}`, direction, s.Name); !a.OK {
		t.Fatal(a.Error)
	}
}

// serveOne starts the command with one server.
func serveOne(t *testing.T, kind string) (*command, *serverInfo) {
	t.Helper()
	if isHeavy(kind) && os.Getenv("BATON_TEST_HEAVY") != "true" {
		t.Skipf("%s is heavy: its tests run where BATON_TEST_HEAVY=true", kind)
	}
	c := runCommand(t, "serve", kind)
	a := c.answer(t)
	if a.Unavailable && os.Getenv("CI") != "true" {
		t.Skip(a.Error)
	}
	if !a.OK || a.Server == nil {
		t.Fatalf("%s was not started: %s", kind, a.Error)
	}
	return c, a.Server
}

// eventually waits for what another process is about to do.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !happened(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after 30 s", what)
		}
	}
}

func mustBeGone(t *testing.T, s *serverInfo) {
	t.Helper()
	if pids, err := processesIn(s.Dir); err != nil || len(pids) > 0 {
		t.Errorf("processes %v, %v still run in %s", pids, err, s.Dir)
	}
	if _, err := os.Stat(filepath.Dir(s.Dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", filepath.Dir(s.Dir), err)
	}
}

func TestEndOfInputCleansUp(t *testing.T) {
	for _, kind := range engineNames() {
		for _, state := range []string{"running", "pause", "kill"} {
			t.Run(kind+"/"+state, func(t *testing.T) {
				c, s := serveOne(t, kind)
				if pids, err := processesIn(s.Dir); err != nil || len(pids) == 0 {
					t.Fatalf("processes %v, %v in %s: a server was to run there", pids, err, s.Dir)
				}
				if state != "running" {
					c.must(t, state, s)
				}
				if err := c.in.Close(); err != nil {
					t.Fatal(err)
				}
				if err := c.Wait(); err != nil {
					t.Errorf("the command ended with %v", err)
				}
				mustBeGone(t, s)
			})
		}
	}
}

func TestInterruptCleansUp(t *testing.T) {
	c, s := serveOne(t, "redis")
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("the command ended with %v", err)
	}
	mustBeGone(t, s)
}

// A command that is killed cannot clean up: its servers die with it, but for
// what a pause has stopped, and the next run removes the rest.
func TestNextRunSweepsAfterAKilledOne(t *testing.T) {
	killed, s := serveOne(t, "postgres")
	killed.must(t, "pause", s)
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	if err := os.Chtimes(filepath.Dir(s.Dir), time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	serveOne(t, "redis")
	mustBeGone(t, s)
}

func TestServersDieWithTheCommand(t *testing.T) {
	for _, kind := range engineNames() {
		t.Run(kind, func(t *testing.T) {
			c, s := serveOne(t, kind)
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait()
			eventually(t, "the server's end", func() bool {
				pids, err := processesIn(s.Dir)
				return err == nil && len(pids) == 0
			})
			clearRun(filepath.Dir(s.Dir))
			mustBeGone(t, s)
		})
	}
}

func TestOrdersThatMakeNoSense(t *testing.T) {
	c, s := serveOne(t, "redis")
	for _, line := range []string{
		`{`,
		`{"cmd":"start","kind":"abacus"}`,
		`{"cmd":"pause","server":"redis-9"}`,
		`{"cmd":"polish","server":"` + s.Name + `"}`,
		`{"cmd":"cut","direction":"sideways","server":"` + s.Name + `"}`,
	} {
		if a := c.order(t, "%s", line); a.OK || a.Error == "" {
			t.Errorf("%s was answered %+v, want an error", line, a)
		}
	}
	c.must(t, "kill", s)
	if a := c.order(t, `{"cmd":"pause","server":%q}`, s.Name); a.OK {
		t.Error("a killed server was paused")
	}
	c.must(t, "restart", s)
	c.must(t, "stop", s)
	if _, err := os.Stat(s.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there after stop: %v", s.Dir, err)
	}
}
