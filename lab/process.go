package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"baton/internal/fleet"
)

// patience is far beyond what anything takes that the lab waits for.
const patience = time.Minute

// process is a program that was started and is expected to go on.
type process struct {
	name  string
	cmd   *exec.Cmd
	log   string        // the file that has what it said
	ended chan struct{} // closed when it has
	at    int64         // when it ended; valid then
}

// startProcess starts a program and returns when it has said its first line on
// stdout, which is returned. What it says goes to a file in dir.
func startProcess(ctx context.Context, dir, name, program string, args ...string) (*process, string, error) {
	fail := func(err error) (*process, string, error) { return nil, "", fmt.Errorf("start %s: %w", name, err) }
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fail(err)
	}
	p := &process{name: name, cmd: exec.Command(program, args...), log: log.Name(), ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stderr, p.cmd.SysProcAttr = dir, log, dieWithParent()
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return fail(errors.Join(err, log.Close()))
	}
	first := make(chan string, 1)
	go func() {
		defer close(p.ended)
		lines := bufio.NewReader(stdout)
		line, _ := lines.ReadString('\n') // an end is an empty line
		first <- strings.TrimSpace(line)
		_, _ = io.Copy(log, lines)
		_ = p.cmd.Wait() // how it ended is in ProcessState
		p.at = fleet.Now()
		_ = log.Close()
	}()
	select {
	case line := <-first:
		if line == "" {
			return fail(errors.Join(errors.New("it ended: "+p.tail()), p.stop()))
		}
		return p, line, nil
	case <-time.After(patience):
		return fail(errors.Join(fmt.Errorf("it says nothing after %v: %s", patience, p.tail()), p.stop()))
	case <-ctx.Done():
		return fail(errors.Join(context.Cause(ctx), p.stop()))
	}
}

// tail is the end of what it said, for people.
func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const most = 2000
	return strings.TrimSpace(string(text[max(0, len(text)-most):]))
}

// running is false once it has ended.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// gaveUp reports whether it has ended with an error: it was not killed, and nobody asked it to end.
func (p *process) gaveUp() bool { return !p.running() && p.cmd.ProcessState.ExitCode() > 0 }

// stop asks it to end, and ends it if it does not. A process that is frozen is
// woken, so that it can.
func (p *process) stop() error {
	if p.running() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may end meanwhile
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(10 * time.Second):
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
	return fmt.Errorf("%s did not end within 10s and was killed; see %s", p.name, p.log)
}
