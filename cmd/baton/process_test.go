package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"baton/storetest"
)

// patience is far beyond what anything here takes.
const patience = time.Minute

// program is the baton command, built as a user builds it.
var program string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "baton-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "baton")
	// With a tag, a program can be tested that is broken on purpose: see docs/safety.md.
	build := exec.Command("go", "build", "-tags", os.Getenv("BATON_TEST_TAGS"), "-o", program, ".")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build baton:", err)
		return 1
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// cleanEnv is the environment without any settings of baton's.
func cleanEnv(more ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "BATON_") {
			env = append(env, v)
		}
	}
	return append(env, more...)
}

// result is a command that has ended.
type result struct {
	stdout, stderr string
	code           int
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\nstdout: %s\nstderr: %s", r.code, r.stdout, r.stderr)
}

// run runs baton to its end.
func run(t *testing.T, args ...string) result { return runEnv(t, nil, args...) }

func runEnv(t *testing.T, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return runCommand(t, ctx, cleanEnv(env...), program, args...)
}

func runCommand(t *testing.T, ctx context.Context, env []string, name string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, errors.Join(err, ctx.Err()), stderr.String())
	}
	return result{stdout: stdout.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
}

// wants fails the test unless the command ended with this code.
func (r result) wants(t *testing.T, code int) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("want exit code %d, got %v", code, r)
	}
	return r
}

// decode reads what a command printed with -o json.
func decode[T any](t *testing.T, s string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatalf("not JSON: %v\n%s", err, s)
	}
	return v
}

// process is a command that goes on.
type process struct {
	t     storetest.T
	cmd   *exec.Cmd
	lines chan string // of stdout; closed at its end
	ended chan struct{}

	mu     sync.Mutex
	stderr bytes.Buffer
}

// start starts baton. It is killed at the end of the test if it has not ended.
func start(t storetest.T, args ...string) *process { return startEnv(t, nil, args...) }

func startEnv(t storetest.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(program, args...), lines: make(chan string, 1000), ended: make(chan struct{})}
	p.cmd.Env = cleanEnv(env...)
	p.cmd.Stderr = p
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("%v", err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start baton %q: %v", args, err)
	}
	go func() {
		defer close(p.ended)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			p.lines <- lines.Text()
		}
		_, _ = io.Copy(io.Discard, stdout)
		close(p.lines)
		_ = p.cmd.Wait() // what it was is in ProcessState
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // most have ended
		<-p.ended
	})
	return p
}

// Write collects stderr.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.Write(b)
}

func (p *process) errors() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// line waits for the next line of output.
func (p *process) line() string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			<-p.ended
			p.t.Fatalf("%q ended with code %d: %s", p.cmd.Args, p.cmd.ProcessState.ExitCode(), p.errors())
		}
		return line
	case <-time.After(patience):
		p.t.Fatalf("no output of %q: %s", p.cmd.Args, p.errors())
	}
	return ""
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %v to %q: %v", s, p.cmd.Args, err)
	}
}

// wait waits for the end and returns the exit code, -1 after a signal.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		p.t.Fatalf("%q does not end: %s", p.cmd.Args, p.errors())
		return 0
	}
}

// serverProcess is a server and its address.
type serverProcess struct {
	*process
	url string
}

// startServer starts a server on a free port with its leases in memory, unless args say otherwise, and
// waits until it listens.
func startServer(t storetest.T, args ...string) serverProcess {
	t.Helper()
	return started(t, start(t, serverArgs(append([]string{"--store", "memory"}, args...)...)...))
}

func serverArgs(args ...string) []string {
	return append([]string{"server", "-o", "json", "--http", "127.0.0.1:0"}, args...)
}

// started waits until a server listens.
func started(t storetest.T, p *process) serverProcess {
	t.Helper()
	var s struct {
		URL string `json:"url"`
	}
	if err := json.Unmarshal([]byte(p.line()), &s); err != nil || s.URL == "" {
		t.Fatalf("the server does not tell its address: %v", err)
	}
	return serverProcess{process: p, url: s.URL}
}

func (s serverProcess) address() string { return strings.TrimPrefix(s.url, "http://") }

// kill9 ends a server as a crash does, and waits until it is gone.
func (s serverProcess) kill9() {
	s.t.Helper()
	s.signal(syscall.SIGKILL)
	s.wait()
}

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("still not: %s", what)
		}
	}
}
