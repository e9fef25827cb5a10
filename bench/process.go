package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	readyWithin = time.Minute
	stopWithin  = 15 * time.Second
)

// stage is where a run takes place: programs built from this checkout, and a
// directory for their data, which goes when the run ends.
type stage struct {
	root    string // of the checkout
	dir     string
	baton   string // program
	servers string // program: testservers
	profile string // directory for CPU profiles; "" for none
	started int
}

func newStage(ctx context.Context, profile string) (s *stage, err error) {
	s = &stage{profile: profile}
	if s.root, err = findRoot(); err != nil {
		return nil, err
	}
	if profile != "" {
		if err := os.MkdirAll(profile, 0o755); err != nil {
			return nil, err
		}
	}
	if s.dir, err = os.MkdirTemp("", "baton-bench-"); err != nil {
		return nil, err
	}
	s.baton, s.servers = filepath.Join(s.dir, "baton"), filepath.Join(s.dir, "testservers")
	for _, b := range []struct{ program, dir, pkg string }{
		{s.baton, s.root, "./cmd/baton"},
		{s.servers, filepath.Join(s.root, "testservers"), "."},
	} {
		progress("building %s in %s", b.pkg, b.dir)
		cmd := exec.CommandContext(ctx, "go", "build", "-o", b.program, b.pkg)
		cmd.Dir = b.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, errors.Join(fmt.Errorf("build %s in %s: %w\n%s", b.pkg, b.dir, err, out), s.close())
		}
	}
	return s, nil
}

func (s *stage) close() error { return os.RemoveAll(s.dir) }

// findRoot finds the checkout from the working directory.
func findRoot() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "testservers", "go.mod")); err == nil {
			return dir, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no checkout of Baton in %s or above", wd)
		}
	}
}

// contenders starts those who are named. What it returns has to be closed even if it fails.
func (s *stage) contenders(ctx context.Context, names []string, shared bool) (list []contender, err error) {
	for _, name := range names {
		progress("starting %s", name)
		system, suffix, several := strings.Cut(name, " ")
		servers := 1
		if several {
			servers = 3
		}
		if system == "baton" {
			b := &batonServers{name: name, rival: strings.TrimSpace("etcd " + suffix), shared: shared}
			list = append(list, b)
			if b.processes, b.urls, err = s.startBaton(ctx, servers); err != nil {
				return list, err
			}
			continue
		}
		e := &etcdServers{name: name, shared: shared}
		list = append(list, e)
		if e.members, err = s.startEtcd(ctx, servers); err != nil {
			return list, err
		}
		for _, m := range e.members {
			e.endpoints = append(e.endpoints, strings.TrimPrefix(m.address, "etcd://"))
		}
	}
	return list, nil
}

// startBaton starts a cluster of this many servers, as an operator would.
func (s *stage) startBaton(ctx context.Context, servers int) (list []*process, urls []string, err error) {
	var cluster []string
	for i := range servers {
		port, err := freePort()
		if err != nil {
			return nil, nil, err
		}
		cluster = append(cluster, fmt.Sprintf("s%d=127.0.0.1:%d", i+1, port))
	}
	for i := range servers {
		s.started++
		_, peer, _ := strings.Cut(cluster[i], "=")
		args := []string{
			"server", "-o", "json", "--http", "127.0.0.1:0", "--default-max-ttl", holdTTL.String(),
			"--data", filepath.Join(s.dir, fmt.Sprintf("data-%d", s.started)), "--server-id", fmt.Sprintf("s%d", i+1), "--peer", peer,
		}
		if servers > 1 {
			args = append(args, "--cluster", strings.Join(cluster, ","))
		}
		program := s.baton
		if s.profile != "" {
			if program, err = os.Executable(); err != nil {
				return list, nil, err
			}
			name := fmt.Sprintf("baton-%d-of-%d.pprof", i+1, servers)
			args = append([]string{profiledServer, filepath.Join(s.profile, name)}, args...)
		}
		p, err := startProcess(filepath.Join(s.dir, fmt.Sprintf("baton-%d.log", s.started)), program, args...)
		if err != nil {
			return list, nil, err
		}
		list = append(list, p)
	}
	for _, p := range list {
		var said struct {
			URL string `json:"url"`
		}
		if err := p.hear(ctx, &said); err != nil {
			return list, nil, fmt.Errorf("start baton: %w", err)
		}
		urls = append(urls, said.URL)
	}
	return list, urls, nil
}

// process is a server that was started here. It says one line of JSON when it is ready.
type process struct {
	cmd   *exec.Cmd
	log   string // file of its standard error
	lines chan string
	ended chan struct{} // closed when it has been waited for
}

func startProcess(log, program string, args ...string) (*process, error) {
	stderr, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stderr.Close() }() // the child has its own
	cmd := exec.Command(program, args...)
	cmd.Stderr = stderr
	cmd.SysProcAttr = ownGroup()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("run %s: %w", program, err)
	}
	p := &process{cmd: cmd, log: log, lines: make(chan string, 1), ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		scan := bufio.NewScanner(out)
		for first := true; scan.Scan(); first = false {
			if first {
				p.lines <- scan.Text()
			}
		}
		close(p.lines)
		_ = cmd.Wait() // how it ended is for whoever ended it to know
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) hear(ctx context.Context, into any) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	select {
	case line, open := <-p.lines:
		if !open {
			said, _ := os.ReadFile(p.log)
			return fmt.Errorf("process %d ended before it was ready:\n%s", p.pid(), said)
		}
		if err := json.Unmarshal([]byte(line), into); err != nil {
			return fmt.Errorf("understand %q: %w", line, err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("process %d: wait until it is ready: %w", p.pid(), ctx.Err())
	}
}

// kill ends it as a power cut would.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	<-p.ended
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopWithin):
		return errors.Join(fmt.Errorf("process %d did not end within %v", p.pid(), stopWithin), p.kill())
	}
}

// freePort is below the ports that the kernel hands out to outgoing connections.
func freePort() (int, error) {
	const lowest, highest = 15000, 30000
	for range 100 {
		port := lowest + rand.IntN(highest-lowest)
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port found between %d and %d", lowest, highest)
}
