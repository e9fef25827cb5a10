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

// obtainedWithin is enough to fetch and build a server on a new machine.
const obtainedWithin = 30 * time.Minute

// obtained starts a server of this kind by the command in testservers/, which
// gets it first, and ends it when our end of its pipe closes.
func obtained(kind string) func(ctx context.Context, s starter) (*server, error) {
	return func(ctx context.Context, s starter) (*server, error) {
		t, out, err := startTestservers(ctx, s)
		if err != nil {
			return nil, err
		}
		a, err := t.start(ctx, out, kind)
		if err != nil {
			return nil, errors.Join(err, t.stop())
		}
		return &server{store: a.Server.Direct, version: versionOf(ctx, kind, a.Server.Direct), stop: t.stop}, nil
	}
}

// versionOf is what a server says that it is, where it is easily asked.
func versionOf(ctx context.Context, kind, store string) string {
	if kind == "etcd" {
		kind += " " + etcdVersion(ctx, store)
	}
	return kind + ", one server"
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

func startTestservers(ctx context.Context, s starter) (*testservers, io.Reader, error) {
	program := filepath.Join(s.dir, "testservers")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", program, ".")
	build.Dir, build.Env = filepath.Join(s.checkout, "testservers"), append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("build testservers: %w\n%s", err, out), ctx.Err())
	}
	log, err := os.Create(filepath.Join(s.dir, "testservers.log"))
	if err != nil {
		return nil, nil, err
	}
	t := &testservers{cmd: exec.Command(program, "serve"), log: log}
	t.cmd.Dir, t.cmd.Stderr, t.cmd.SysProcAttr = build.Dir, log, &syscall.SysProcAttr{Setpgid: true} // it sees by its pipe that the lab is gone
	if t.in, err = t.cmd.StdinPipe(); err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	if err := t.cmd.Start(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("run testservers: %w", err), log.Close())
	}
	return t, out, nil
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

func (t *testservers) start(ctx context.Context, out io.Reader, kind string) (startAnswer, error) {
	var a startAnswer
	if _, err := fmt.Fprintf(t.in, "{\"cmd\":\"start\",\"kind\":%q}\n", kind); err != nil {
		return a, fmt.Errorf("order testservers to start %s: %w", kind, err)
	}
	ctx, cancel := context.WithTimeout(ctx, obtainedWithin)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = t.in.Close() })() // it ends, and with it the read
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
func (t *testservers) stop() error {
	t.once.Do(func() {
		_ = t.in.Close() // twice is no harm
		ended := make(chan error, 1)
		go func() { ended <- t.cmd.Wait() }()
		select {
		case t.err = <-ended:
		case <-time.After(30 * time.Second):
			_ = t.cmd.Process.Kill()
			t.err = errors.Join(errors.New("testservers did not end within 30s and was killed"), <-ended)
		}
		t.err = errors.Join(t.err, t.log.Close())
	})
	return t.err
}
