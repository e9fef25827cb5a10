//go:build !linux

package main

import (
	"os/exec"
	"runtime"
)

// Finding a server's processes takes Linux's /proc. Elsewhere no server is
// started, and the tests that want one are skipped.

var errNotLinux = unavailable("servers for tests run on Linux only, not on %s", runtime.GOOS)

func supported() error { return errNotLinux }

func serverCommand(path string, args ...string) *exec.Cmd { return exec.Command(path, args...) }

func pauseAll(string) error  { return errNotLinux }
func resumeAll(string) error { return errNotLinux }
func killAll(string) error   { return errNotLinux }
