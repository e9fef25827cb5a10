package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// testServer is a server that the testservers command runs; testservers/serve.go
// describes what is said. It ends when our side of the pipe does.
type testServer struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	address string
	pid     int
}

// startEtcd starts a cluster of this many members.
func (s *stage) startEtcd(ctx context.Context, members int) ([]*testServer, error) {
	settings := make([]map[string]string, members)
	var peers []string
	for i := range members {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		name, url := fmt.Sprintf("m%d", i), fmt.Sprintf("http://127.0.0.1:%d", port)
		peers = append(peers, name+"="+url)
		settings[i] = map[string]string{"name": name, "listen-peer-urls": url, "initial-advertise-peer-urls": url}
	}
	list := make([]*testServer, 0, members)
	hears := make([]func() error, members)
	for i := range members {
		settings[i]["initial-cluster"] = strings.Join(peers, ",")
		t, hear, err := s.orderServer("etcd", settings[i])
		if err != nil {
			return list, err
		}
		list, hears[i] = append(list, t), hear
	}
	// None is ready before most of them are.
	errs := make([]error, members)
	var starting sync.WaitGroup
	for i, hear := range hears {
		starting.Go(func() { errs[i] = hear() })
	}
	ready := make(chan struct{})
	go func() { starting.Wait(); close(ready) }()
	select {
	case <-ready:
		return list, errors.Join(errs...)
	case <-ctx.Done():
		var stopped []error
		for _, t := range list {
			stopped = append(stopped, t.stop()) // the readers end with it
		}
		<-ready
		return nil, errors.Join(append(stopped, ctx.Err())...)
	}
}

// orderServer has a server started; hear waits until it is ready.
func (s *stage) orderServer(kind string, settings map[string]string) (t *testServer, hear func() error, err error) {
	cmd := exec.Command(s.servers, "serve")
	cmd.Dir, cmd.Stderr, cmd.SysProcAttr = s.root, os.Stderr, ownGroup()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("run testservers: %w", err)
	}
	t = &testServer{cmd: cmd, in: in}
	if err := json.NewEncoder(in).Encode(map[string]any{"cmd": "start", "kind": kind, "settings": settings}); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("order %s: %w", kind, err), t.stop())
	}
	return t, func() error {
		line, err := bufio.NewReader(out).ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("start %s: %w", kind, err)
		}
		var answer struct {
			OK     bool   `json:"ok"`
			Error  string `json:"error"`
			Server struct {
				Direct string `json:"direct"`
				PID    int    `json:"pid"`
			} `json:"server"`
		}
		if err := json.Unmarshal(line, &answer); err != nil {
			return fmt.Errorf("start %s: understand %q: %w", kind, line, err)
		}
		if !answer.OK {
			return fmt.Errorf("start %s: %s", kind, answer.Error)
		}
		t.address, t.pid = answer.Server.Direct, answer.Server.PID
		return nil
	}, nil
}

func (t *testServer) stop() error {
	closed := t.in.Close()
	ended := make(chan error, 1)
	go func() { ended <- t.cmd.Wait() }()
	select {
	case err := <-ended:
		return errors.Join(closed, err)
	case <-time.After(2 * stopWithin):
		return errors.Join(errors.New("testservers did not end"), t.cmd.Process.Kill(), <-ended)
	}
}
