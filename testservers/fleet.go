package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// fleet is the servers of one run of this command, below one directory.
type fleet struct {
	dir     string
	lock    *os.File // held as long as the directory is in use
	servers map[string]*server
	started int
}

const fleetPattern = "baton-testservers-"

// newFleet makes the directory of a run, and removes those that earlier runs
// were killed before they could remove.
func newFleet() (*fleet, error) {
	base, err := enterableTempDir()
	if err != nil {
		return nil, err
	}
	sweepAbandoned(base)
	dir, err := os.MkdirTemp(base, fleetPattern)
	if err != nil {
		return nil, fmt.Errorf("make directory for servers: %w", err)
	}
	// The servers' user has to pass through.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return &fleet{dir: dir, lock: lock, servers: map[string]*server{}}, nil
}

// sweepAbandoned ends the processes and removes the directories of runs whose
// lock nobody holds any more.
func sweepAbandoned(base string) {
	dirs, _ := filepath.Glob(filepath.Join(base, fleetPattern+"*"))
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		// A young one may not have come to lock it yet.
		if err != nil || !info.IsDir() || !ownedByMe(info) || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0); err == nil {
			held := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
			_ = lock.Close()
			if held {
				continue
			}
		}
		clearRun(dir)
	}
}

// clearRun ends and removes all that is left of a run.
func clearRun(dir string) {
	if killAll(dir) != nil {
		return // still in use, whoever may do more will
	}
	servers, _ := filepath.Glob(filepath.Join(dir, "*-*"))
	for _, server := range servers {
		kind, _, _ := strings.Cut(filepath.Base(server), "-")
		if e, err := newEngine(kind); err == nil {
			e.Sweep(server)
		}
	}
	_ = os.RemoveAll(dir)
}

func (f *fleet) start(ctx context.Context, kind string, settings map[string]string) (*server, error) {
	e, err := newEngine(kind)
	if err != nil {
		return nil, err
	}
	if err := e.Obtain(ctx, os.Stderr); err != nil {
		return nil, err
	}
	f.started++
	name := fmt.Sprintf("%s-%d", kind, f.started)
	dir, err := filepath.EvalSymlinks(f.dir)
	if err != nil {
		return nil, err
	}
	s := &server{name: name, kind: kind, engine: e, settings: settings, dir: filepath.Join(dir, name), log: filepath.Join(dir, name+".log")}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chown(s.dir, serverUser.uid, serverUser.gid); err != nil {
		return nil, err
	}
	if err := e.Init(ctx, s.dir); err != nil {
		return nil, fmt.Errorf("make its data: %w", err)
	}
	if err := s.launchAnywhere(ctx); err != nil {
		return nil, errors.Join(err, s.discard())
	}
	if s.proxy, err = newProxy(s.addr()); err != nil {
		return nil, errors.Join(err, s.discard())
	}
	f.servers[name] = s
	return s, nil
}

func (f *fleet) stop(s *server) error {
	delete(f.servers, s.name)
	return errors.Join(s.proxy.close(), s.discard())
}

// close stops all servers and removes all that this run has made.
func (f *fleet) close() error {
	var errs []error
	for _, s := range f.servers {
		errs = append(errs, f.stop(s))
	}
	errs = append(errs, os.RemoveAll(f.dir), f.lock.Close())
	return errors.Join(errs...)
}
