package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// installDebian installs packages, if this is root on a system that has apt.
// It does not start the services that they bring.
func installDebian(ctx context.Context, progress io.Writer, packages ...string) error {
	list := strings.Join(packages, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return unavailable("not installed, and there is no apt-get to install %s with", list)
	}
	if os.Geteuid() != 0 {
		return unavailable("not installed; sudo apt-get install %s", list)
	}
	return withCacheLock("apt", func() error {
		allow, err := forbidServices()
		if err != nil {
			return err
		}
		defer allow()
		_, _ = fmt.Fprintf(progress, "installing %s\n", list)
		// Stale lists name versions that are gone. If the update fails, the
		// installation shows whether that matters.
		updated := apt(ctx, progress, "update")
		args := append([]string{"install", "--yes", "--no-install-recommends"}, packages...)
		if err := apt(ctx, progress, args...); err != nil {
			return &unavailableError{errors.Join(err, updated).Error()}
		}
		return nil
	})
}

func apt(ctx context.Context, progress io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "DPkg::Lock::Timeout=300"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	cmd.Stdout, cmd.Stderr = progress, progress
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w", args[0], err)
	}
	return nil
}

// forbidServices makes packages' scripts start nothing until allow is called.
// A machine that has a policy keeps it.
func forbidServices() (allow func(), err error) {
	const policy = "/usr/sbin/policy-rc.d"
	f, err := os.OpenFile(policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, os.ErrExist) {
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("keep packages from starting services: %w", err)
	}
	allow = func() { _ = os.Remove(policy) }
	_, err = f.WriteString("#!/bin/sh\nexit 101\n")
	if err = errors.Join(err, f.Close()); err != nil {
		allow()
		return nil, fmt.Errorf("keep packages from starting services: %w", err)
	}
	return allow, nil
}
