package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"syscall"
)

// engine knows one kind of server: how it is had, given data, started and
// asked whether it is ready. An engine is made for one server and may remember
// what it needs between the calls, which come in this order: Obtain, Init,
// then Command and Ready for every start.
type engine interface {
	// Obtain makes sure that the programs are here, installing or building
	// them if it may. *unavailableError says why they cannot be had.
	Obtain(ctx context.Context, progress io.Writer) error
	// Init fills the empty directory dir, which belongs to the server's user.
	Init(ctx context.Context, dir string) error
	// Command is the program and its arguments. It runs in dir, in the
	// foreground, and listens on 127.0.0.1:port only. Settings are the
	// server's own, in its own words.
	Command(dir string, port int, settings map[string]string) []string
	// Ready reports whether the server with this process id answers requests.
	Ready(ctx context.Context, dir string, port, pid int) bool
	// URL is how clients reach the server at this address.
	URL(addr string) string
	// StopSignal makes the server end quickly and tidily.
	StopSignal() syscall.Signal
	// Sweep removes what a killed server leaves outside its directory.
	Sweep(dir string)
}

// engines are the kinds of server there are, by name.
var engines = map[string]func() engine{
	"consul":     func() engine { return &consul{} },
	"etcd":       func() engine { return &etcd{} },
	"kubernetes": func() engine { return &kubernetes{} },
	"postgres":   func() engine { return &postgres{} },
	"redis":      func() engine { return &redis{} },
	"zookeeper":  func() engine { return &zookeeper{} },
}

// heavyKinds take many minutes to build on a new machine. They are obtained
// only when they are named, and used by tests only where BATON_TEST_HEAVY=true:
// internal/testserver keeps the same list.
var heavyKinds = []string{"consul", "kubernetes"}

func isHeavy(kind string) bool { return slices.Contains(heavyKinds, kind) }

func engineNames() []string { return slices.Sorted(maps.Keys(engines)) }

func newEngine(kind string) (engine, error) {
	make, ok := engines[kind]
	if !ok {
		return nil, fmt.Errorf("unknown kind of server %q: there are %s", kind, strings.Join(engineNames(), ", "))
	}
	if err := supported(); err != nil {
		return nil, err
	}
	return make(), nil
}

// unavailableError says that a server cannot be had on this machine, which is
// no fault of the test that wants it.
type unavailableError struct{ reason string }

func (e *unavailableError) Error() string { return e.reason }

func unavailable(format string, args ...any) error {
	return &unavailableError{fmt.Sprintf(format, args...)}
}
