package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// server is one server: its data, its port, and its processes while it runs.
type server struct {
	name, kind string
	engine     engine
	settings   map[string]string
	dir        string
	log        string
	port       int
	proxy      *proxy

	cmd    *exec.Cmd     // nil before the first start
	exited chan struct{} // closed when cmd has been waited for
}

const (
	readyWithin = time.Minute
	stopWithin  = 10 * time.Second
	pollEvery   = 5 * time.Millisecond
)

func (s *server) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

func (s *server) info() *serverInfo {
	return &serverInfo{
		Name: s.name, Kind: s.kind, PID: s.cmd.Process.Pid, Dir: s.dir,
		URL: s.engine.URL(s.proxy.addr), Direct: s.engine.URL(s.addr()),
	}
}

// launchAnywhere starts the server on a free port. Somebody may take a port
// between the moment it is found free and the server's bind.
func (s *server) launchAnywhere(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		s.port = port
		err = s.launch(ctx)
		if err == nil || attempt == 3 || ctx.Err() != nil {
			return err
		}
	}
}

// launch starts the server on its port and returns when it is ready.
func (s *server) launch(ctx context.Context) error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	argv := s.engine.Command(s.dir, s.port, s.settings)
	cmd := serverCommand(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run %s: %w", argv[0], err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in the log
		close(exited)
	}()
	s.cmd, s.exited = cmd, exited

	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for !s.engine.Ready(ctx, s.dir, s.port, cmd.Process.Pid) {
		select {
		case <-exited:
			return fmt.Errorf("it ended while starting (%v); the end of its log:\n%s", cmd.ProcessState, s.logTail())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("not ready: %w; the end of its log:\n%s", ctx.Err(), s.logTail()), s.kill())
		case <-time.After(pollEvery):
		}
	}
	return nil
}

func (s *server) logTail() []byte {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return []byte(err.Error())
	}
	if n := len(text) - 2000; n > 0 {
		text = text[n:]
	}
	return bytes.TrimSpace(text)
}

func (s *server) running() bool {
	if s.cmd == nil {
		return false
	}
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// pause stops every process of the server where it stands. Its connections
// stay open, as those of a machine that hangs.
func (s *server) pause() error {
	if !s.running() {
		return errors.New("it does not run")
	}
	return pauseAll(s.dir)
}

func (s *server) resume() error {
	if !s.running() {
		return errors.New("it does not run")
	}
	return resumeAll(s.dir)
}

// kill ends every process of the server at once.
func (s *server) kill() error {
	if s.cmd == nil {
		return nil
	}
	err := killAll(s.dir)
	<-s.exited
	return err
}

// end lets the server stop in its own way if it does so soon.
func (s *server) end() error {
	if s.running() {
		_ = resumeAll(s.dir)
		_ = s.cmd.Process.Signal(s.engine.StopSignal()) // one that has just ended is what is wanted
		select {
		case <-s.exited:
		case <-time.After(stopWithin):
		}
	}
	return s.kill()
}

// restart starts the server again with the same data on the same port.
func (s *server) restart(ctx context.Context) error {
	if err := s.end(); err != nil {
		return err
	}
	return s.launch(ctx)
}

// discard ends the server and removes what it leaves.
func (s *server) discard() error {
	err := s.end()
	s.engine.Sweep(s.dir)
	return errors.Join(err, os.RemoveAll(s.dir), os.Remove(s.log))
}
