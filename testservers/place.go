package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// serverUser runs the servers and owns their data. Root's servers run as
// nobody: Postgres refuses to run as root, and the others have no need to.
var serverUser = func() (u struct{ uid, gid int }) {
	u.uid, u.gid = os.Getuid(), os.Getgid()
	if os.Geteuid() == 0 {
		u.uid, u.gid = 65534, 65534
	}
	return u
}()

// enterableTempDir is the directory for temporary files, or, if the servers'
// user may not enter that one, another.
func enterableTempDir() (string, error) {
	for _, dir := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if dir, err := filepath.EvalSymlinks(dir); err == nil && (serverUser.uid == os.Getuid() || othersMayEnter(dir)) {
			return dir, nil
		}
	}
	return "", errors.New("no directory for temporary files that unprivileged users may enter: set TMPDIR to one")
}

func othersMayEnter(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

func ownedByMe(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

// cacheDir is where what takes long to make is kept between runs.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a place to keep servers' files: %w", err)
	}
	dir := filepath.Join(base, "baton", "testservers")
	return dir, os.MkdirAll(dir, 0o700)
}

// withCacheLock calls f while no other process is inside withCacheLock of the
// same name: tests of several packages start servers at once.
func withCacheLock(name string, f func() error) error {
	dir, err := cacheDir()
	if err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	return f()
}

// Ports are taken below those that the kernel hands out to outgoing
// connections, lest one of them sits on the port while its server is down.
const lowestPort, highestPort = 15000, 30000

func freePort() (int, error) {
	for range 100 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port found between %d and %d", lowestPort, highestPort)
}
