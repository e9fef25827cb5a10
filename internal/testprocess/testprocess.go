// Package testprocess gives tests programs as a user has them: built by the go
// command, started as processes, listened to, signalled, and gone when the test is over.
package testprocess

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"baton/internal/leak"
)

// Patience is far beyond what anything takes that tests wait for.
const Patience = time.Minute

// T is what of a test is needed here.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Dir is where the programs are that Main has built.
var Dir string

// Path is that of one of them.
func Path(name string) string { return filepath.Join(Dir, name) }

// Main is for TestMain: it builds the commands of these packages, with the
// tags that $BATON_TEST_TAGS names, runs the tests, lets the caller tidy up, and looks for goroutines that were left behind. It
// returns the exit status.
func Main(m *testing.M, tidy func(), packages ...string) int {
	dir, err := os.MkdirTemp("", "baton-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	Dir = dir
	if err := Build(dir+string(filepath.Separator), os.Getenv("BATON_TEST_TAGS"), packages...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if tidy != nil {
		tidy()
	}
	if code == 0 {
		if err := leak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// Build builds commands. With a tag it can be programs that are broken on
// purpose, to see that tests notice: see docs/safety.md.
func Build(output, tags string, packages ...string) error {
	build := exec.Command("go", append([]string{"build", "-tags", tags, "-o", output}, packages...)...)
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(packages, ", "), err, said)
	}
	return nil
}

// Process is a program that goes on.
type Process struct {
	Cmd *exec.Cmd
	// Lines are those of its standard output; closed at its end. A program that is a thousand
	// ahead of whoever takes them waits.
	Lines chan string
	// Ended is closed when it has been waited for.
	Ended chan struct{}

	t   T
	mu  sync.Mutex
	err bytes.Buffer // its standard error
	all bytes.Buffer // both
}

// Start starts a program. It is killed at the end of the test if it has not ended.
func Start(t T, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, Lines: make(chan string, 1000), Ended: make(chan struct{}), t: t}
	cmd.Stderr = p
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("%v", err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %q: %v", cmd.Args, err)
	}
	go func() {
		defer close(p.Ended)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			p.heard(lines.Text())
		}
		close(p.Lines)
		_ = cmd.Wait() // how it ended is in ProcessState
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // most have ended
		<-p.Ended
	})
	return p
}

func (p *Process) heard(line string) {
	p.mu.Lock()
	p.all.WriteString(line + "\n")
	p.mu.Unlock()
	p.Lines <- line
}

// Write collects standard error.
func (p *Process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all.Write(b)
	return p.err.Write(b)
}

// Errors is all that it said on standard error.
func (p *Process) Errors() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err.String()
}

// Said is all that it said.
func (p *Process) Said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all.String()
}

// Line waits for the next line of output.
func (p *Process) Line() string {
	p.t.Helper()
	select {
	case line, ok := <-p.Lines:
		if !ok {
			<-p.Ended
			p.t.Fatalf("%q ended with code %d: %s", p.Cmd.Args, p.Cmd.ProcessState.ExitCode(), p.Errors())
		}
		return line
	case <-time.After(Patience):
		p.t.Fatalf("no output of %q: %s", p.Cmd.Args, p.Errors())
	}
	return ""
}

// Signal sends it a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %v to %q: %v", s, p.Cmd.Args, err)
	}
}

// Wait waits for the end and returns the exit code, -1 after a signal.
func (p *Process) Wait() int {
	p.t.Helper()
	select {
	case <-p.Ended:
		return p.Cmd.ProcessState.ExitCode()
	case <-time.After(Patience):
		p.t.Fatalf("%q does not end: %s", p.Cmd.Args, p.Errors())
		return 0
	}
}

// Eventually polls until something is so.
func Eventually(t T, what string, so func() bool) {
	t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	limit := time.After(Patience)
	for !so() {
		select {
		case <-ticker.C:
		case <-limit:
			t.Fatalf("not so within %v: %s", Patience, what)
		}
	}
}
