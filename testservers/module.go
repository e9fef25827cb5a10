package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// buildModule makes sure that the server in testservers/<name>, a Go module of
// its own, is built, and returns the path of the program. It is built once for
// each state of that directory, and kept in the user's cache.
func buildModule(ctx context.Context, progress io.Writer, name string) (string, error) {
	source, err := moduleDir(name)
	if err != nil {
		return "", err
	}
	hash, err := hashModule(source)
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	program := filepath.Join(cache, fmt.Sprintf("%s-%s", name, hash), name)
	return program, withCacheLock(name, func() error {
		if _, err := os.Stat(program); err == nil {
			return nil
		}
		if _, err := exec.LookPath("go"); err != nil {
			return unavailable("not built, and there is no go to build %s with", source)
		}
		_, _ = fmt.Fprintf(progress, "building %s from its Go module, which takes some minutes the first time\n", name)
		if err := os.MkdirAll(filepath.Dir(program), 0o700); err != nil {
			return err
		}
		fresh := program + ".building"
		defer func() { _ = os.Remove(fresh) }()
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", fresh, ".")
		cmd.Dir, cmd.Stdout, cmd.Stderr = source, progress, progress
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
		stop := tell(progress, "still building "+name)
		err := cmd.Run()
		stop()
		if err != nil {
			return fmt.Errorf("build %s: %w", source, err)
		}
		return os.Rename(fresh, program)
	})
}

// tell says once a minute that something goes on, until it is stopped.
func tell(progress io.Writer, what string) (stop func()) {
	start, ended := time.Now(), make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		tick := time.NewTicker(time.Minute)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_, _ = fmt.Fprintf(progress, "%s, for %v\n", what, time.Since(start).Round(time.Second))
			case <-ended:
				return
			}
		}
	})
	return func() {
		close(ended)
		telling.Wait()
	}
}

// moduleDir finds the directory of a server's module: this command runs in
// testservers/, or in the directory of a test that lies beside it or below.
func moduleDir(name string) (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		for _, source := range []string{filepath.Join(dir, name), filepath.Join(dir, "testservers", name)} {
			if filepath.Base(filepath.Dir(source)) != "testservers" {
				continue
			}
			if _, err := os.Stat(filepath.Join(source, "go.mod")); err == nil {
				return source, nil
			}
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no testservers/%s in any directory above %s", name, wd)
		}
	}
}

func hashModule(dir string) (string, error) {
	hash := sha256.New()
	_, _ = fmt.Fprintln(hash, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(hash, "%s %d\n%s", name, len(text), text)
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:8]), nil
}

// placeProgram puts a program from the cache, which may be private, where the
// servers' user can run it.
func placeProgram(program, at string) error {
	if os.Link(program, at) == nil {
		return os.Chmod(at, 0o755)
	}
	from, err := os.Open(program)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}
