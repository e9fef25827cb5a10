package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"baton/internal/fleet"
)

// MissingError says that a backend cannot be had on this machine.
type MissingError struct {
	Backend string
	Reason  string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("no %s here: %s", e.Backend, e.Reason)
}

// etcdWithin is enough to fetch and build it on a new machine.
const etcdWithin = 10 * time.Minute

// startEtcd starts a server by the command in testservers/, which obtains it
// first, and ends it when our end of its pipe closes.
func startEtcd(ctx context.Context, dir, checkout string) (*backend, error) {
	program := filepath.Join(dir, "testservers")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", program, ".")
	build.Dir, build.Env = filepath.Join(checkout, "testservers"), append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build testservers: %w\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, "testservers.log"))
	if err != nil {
		return nil, err
	}
	s := &testservers{cmd: exec.Command(program, "serve"), log: log}
	s.cmd.Dir, s.cmd.Stderr, s.cmd.SysProcAttr = build.Dir, log, &syscall.SysProcAttr{Setpgid: true} // it sees by its pipe that the lab is gone
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("run testservers: %w", err), log.Close())
	}
	a, err := s.start(ctx, out, "etcd")
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return &backend{name: "etcd", store: a.Server.Direct, version: "etcd " + etcdVersion(ctx, a.Server.Direct) + ", one member", stop: s.stop}, nil
}

// etcdVersion is what the first server of an etcd says; empty if it says nothing.
func etcdVersion(ctx context.Context, store string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var v struct {
		Server string `json:"etcdserver"`
	}
	hosts, err := fleet.StoreHosts(store)
	if err != nil {
		return ""
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+hosts[0]+"/version", nil)
	if err != nil {
		return ""
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	_ = json.NewDecoder(resp.Body).Decode(&v) // what cannot be read stays empty
	return v.Server
}

// testservers is the command that was started.
type testservers struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  *os.File
	once sync.Once
	err  error
}

// startAnswer is what it answers to an order to start; see testservers/serve.go.
type startAnswer struct {
	OK          bool   `json:"ok"`
	Error       string `json:"error"`
	Unavailable bool   `json:"unavailable"`
	Server      struct {
		Direct string `json:"direct"`
	} `json:"server"`
}

func (s *testservers) start(ctx context.Context, out io.Reader, kind string) (startAnswer, error) {
	var a startAnswer
	if _, err := fmt.Fprintf(s.in, "{\"cmd\":\"start\",\"kind\":%q}\n", kind); err != nil {
		return a, fmt.Errorf("order testservers to start %s: %w", kind, err)
	}
	ctx, cancel := context.WithTimeout(ctx, etcdWithin)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = s.in.Close() })() // it ends, and with it the read
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		return a, errors.Join(fmt.Errorf("wait for testservers to start %s: %w", kind, err), context.Cause(ctx))
	}
	switch err := json.Unmarshal(line, &a); {
	case err != nil:
		return a, fmt.Errorf("read what testservers said: %w", err)
	case a.Unavailable:
		return a, &MissingError{Backend: kind, Reason: a.Error}
	case !a.OK:
		return a, fmt.Errorf("start %s: %s", kind, a.Error)
	}
	return a, nil
}

// stop ends it, and it its servers.
func (s *testservers) stop() error {
	s.once.Do(func() {
		_ = s.in.Close() // twice is no harm
		ended := make(chan error, 1)
		go func() { ended <- s.cmd.Wait() }()
		select {
		case s.err = <-ended:
		case <-time.After(30 * time.Second):
			_ = s.cmd.Process.Kill()
			s.err = errors.Join(errors.New("testservers did not end within 30s and was killed"), <-ended)
		}
		s.err = errors.Join(s.err, s.log.Close())
	})
	return s.err
}
