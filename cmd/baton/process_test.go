package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"baton/internal/testprocess"
	"baton/storetest"
	"baton/storetest/drill"
)

// patience is far beyond what anything here takes.
const patience = testprocess.Patience

// program is the baton command, built as a user builds it.
func program() string { return testprocess.Path("baton") }

func TestMain(m *testing.M) { os.Exit(testprocess.Main(m, nil, "baton/cmd/baton")) }

// cleanEnv is the environment without any settings of baton's, but for a timeout that
// a machine's pauses do not exceed.
func cleanEnv(more ...string) []string {
	env := []string{"BATON_TIMEOUT=" + drill.Unhurried.String()}
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
	return runCommand(t, ctx, cleanEnv(env...), program(), args...)
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
	*testprocess.Process
	t storetest.T
}

// start starts baton. It is killed at the end of the test if it has not ended.
func start(t storetest.T, args ...string) *process { return startEnv(t, nil, args...) }

func startEnv(t storetest.T, env []string, args ...string) *process {
	t.Helper()
	return startProgram(t, program(), env, args...)
}

func startProgram(t storetest.T, path string, env []string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = cleanEnv(env...)
	return &process{testprocess.Start(t, cmd), t}
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
	if err := json.Unmarshal([]byte(p.Line()), &s); err != nil || s.URL == "" {
		t.Fatalf("the server does not tell its address: %v", err)
	}
	return serverProcess{process: p, url: s.URL}
}

func (s serverProcess) address() string { return strings.TrimPrefix(s.url, "http://") }

// kill9 ends a server as a crash does, and waits until it is gone.
func (s serverProcess) kill9() {
	s.t.Helper()
	s.Signal(syscall.SIGKILL)
	s.Wait()
}

// eventually polls until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testprocess.Eventually(t, what, ok)
}
