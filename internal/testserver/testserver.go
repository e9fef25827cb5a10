// Package testserver gives tests real servers: Postgres, Redis, etcd. They listen on
// loopback, their data is thrown away, and they can be paused, killed, cut off
// and restarted.
//
// The servers are started by the command in testservers/, a module of its
// own, which this package builds and runs. It leaves no goroutine behind, and
// a test that is killed leaves no server behind: the command ends its servers
// when the pipe to the test breaks.
package testserver

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// Kind is a kind of server.
type Kind string

// The kinds of server there are.
const (
	Postgres Kind = "postgres"
	Redis    Kind = "redis"
)

// Direction is a way that bytes go, as seen from the server's clients.
type Direction string

// The ways that Cut cuts.
const (
	ToServer Direction = "to-server"
	ToClient Direction = "to-client"
	BothWays Direction = "both"
)

// Server is a server that runs. Its methods fail the test that they are called
// with if they cannot do what they say.
type Server struct {
	// URL leads through a proxy that Cut and Refuse act on; Direct past it.
	// They stay the same through a restart.
	URL, Direct string

	name string
	cmd  *exec.Cmd
	out  *bufio.Reader

	mu       sync.Mutex // one order at a time
	in, read *os.File
}

// Option changes how a server is started.
type Option func(*order)

// Setting sets one of the server's own settings, in its own words: "fsync" to
// "off", say, which is on otherwise.
func Setting(name, value string) Option {
	return func(o *order) {
		if o.Settings == nil {
			o.Settings = map[string]string{}
		}
		o.Settings[name] = value
	}
}

// Start starts a server for this test alone, which may do to it what it likes.
// It ends with the test.
//
// Where the server cannot be had the test is skipped, or fails if CI=true. A
// heavy kind is used only where BATON_TEST_HEAVY=true, whatever CI says.
func Start(t testing.TB, kind Kind, options ...Option) *Server {
	t.Helper()
	skipHeavy(t, kind)
	s, err := start(kind, options...)
	require(t, kind, err)
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("stop %s: %v", kind, err)
		}
	})
	return s
}

var shared struct {
	mu      sync.Mutex
	servers map[Kind]*Server
	errs    map[Kind]error
}

// Shared is a server that all tests of this process use, so it must not be
// paused, cut off or stopped, and its users keep to tables or keys of their
// own. It ends with the process.
func Shared(t testing.TB, kind Kind) *Server {
	t.Helper()
	skipHeavy(t, kind)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.servers[kind] == nil && shared.errs[kind] == nil {
		s, err := start(kind)
		if shared.servers == nil {
			shared.servers, shared.errs = map[Kind]*Server{}, map[Kind]error{}
		}
		shared.servers[kind], shared.errs[kind] = s, err
	}
	require(t, kind, shared.errs[kind])
	return shared.servers[kind]
}

func require(t testing.TB, kind Kind, err error) {
	t.Helper()
	var missing *unavailableError
	switch {
	case err == nil:
	case errors.As(err, &missing) && os.Getenv("CI") != "true":
		t.Skipf("no %s here: %v", kind, err)
	default:
		t.Fatalf("start %s: %v", kind, err)
	}
}

// Kill ends all processes of the server at once, as a power cut would.
func (s *Server) Kill(t testing.TB) { t.Helper(); s.must(t, order{Cmd: "kill"}) }

// Pause stops all processes of the server where they stand; connections stay
// open and silent. It returns when all stand still.
func (s *Server) Pause(t testing.TB) { t.Helper(); s.must(t, order{Cmd: "pause"}) }

// Resume lets a paused server go on.
func (s *Server) Resume(t testing.TB) { t.Helper(); s.must(t, order{Cmd: "resume"}) }

// Restart starts the server again with the same data at the same addresses,
// after stopping it if it runs. It returns when the server is ready.
func (s *Server) Restart(t testing.TB) { t.Helper(); s.must(t, order{Cmd: "restart"}) }

// Cut holds back all that is sent in this direction from now on, the ends of
// connections included, and lets the other direction through. Nothing is lost:
// what was held back arrives after Heal, as it would after a network's outage,
// unless the connection is gone by then. New connections hear nothing.
func (s *Server) Cut(t testing.TB, d Direction) {
	t.Helper()
	s.must(t, order{Cmd: "cut", Direction: d})
}

// Refuse resets all connections, dropping what Cut holds back of them, and
// refuses new ones.
func (s *Server) Refuse(t testing.TB) { t.Helper(); s.must(t, order{Cmd: "refuse"}) }

// Heal undoes Cut and Refuse.
func (s *Server) Heal(t testing.TB) { t.Helper(); s.must(t, order{Cmd: "heal"}) }

func (s *Server) must(t testing.TB, o order) {
	t.Helper()
	o.Server = s.name
	if _, err := s.do(o); err != nil {
		t.Fatal(err)
	}
}

// order and answer are lines of what testservers/serve.go describes.
type order struct {
	Cmd       string            `json:"cmd"`
	Server    string            `json:"server,omitempty"`
	Kind      Kind              `json:"kind,omitempty"`
	Settings  map[string]string `json:"settings,omitempty"`
	Direction Direction         `json:"direction,omitempty"`
}

type answer struct {
	OK          bool   `json:"ok"`
	Error       string `json:"error"`
	Unavailable bool   `json:"unavailable"`
	Server      struct {
		Name   string `json:"name"`
		URL    string `json:"url"`
		Direct string `json:"direct"`
	} `json:"server"`
}

// unavailableError says that the server cannot be had on this machine.
type unavailableError struct{ reason string }

func (e *unavailableError) Error() string { return e.reason }

// answerWithin is far more than any order takes, on a machine that has to
// install the server first.
const answerWithin = 10 * time.Minute

// start runs the command and has it start one server.
func start(kind Kind, options ...Option) (*Server, error) {
	program, err := build()
	if err != nil {
		return nil, err
	}
	// Pipes of our own make for no goroutine that copies.
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	read, stdout, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "serve")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, os.Stderr
	err = cmd.Start()
	_, _ = stdin.Close(), stdout.Close()
	if err != nil {
		return nil, fmt.Errorf("run testservers: %w", err)
	}
	s := &Server{cmd: cmd, in: in, read: read, out: bufio.NewReader(read)}
	o := order{Cmd: "start", Kind: kind}
	for _, option := range options {
		option(&o)
	}
	a, err := s.do(o)
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	s.name, s.URL, s.Direct = a.Server.Name, a.Server.URL, a.Server.Direct
	return s, nil
}

func (s *Server) do(o order) (answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := json.NewEncoder(s.in).Encode(o); err != nil {
		return answer{}, fmt.Errorf("order testservers to %s: %w", o.Cmd, err)
	}
	if err := s.read.SetReadDeadline(time.Now().Add(answerWithin)); err != nil {
		return answer{}, err
	}
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return answer{}, fmt.Errorf("wait for testservers to %s: %w", o.Cmd, err)
	}
	var a answer
	switch err := json.Unmarshal(line, &a); {
	case err != nil:
		return answer{}, fmt.Errorf("read what testservers said to %s: %w", o.Cmd, err)
	case a.Unavailable:
		return answer{}, &unavailableError{a.Error}
	case !a.OK:
		return answer{}, errors.New(a.Error)
	}
	return a, nil
}

// stop ends the command, and it its server.
func (s *Server) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.in.Close(), s.cmd.Wait(), s.read.Close())
}
