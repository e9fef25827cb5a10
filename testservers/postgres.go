package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// postgres is PostgreSQL from the Debian package, or whichever is on the PATH.
type postgres struct {
	bin      string // directory of its programs
	password string
}

func (p *postgres) Obtain(ctx context.Context, progress io.Writer) error {
	if p.locate() {
		return nil
	}
	if err := installDebian(ctx, progress, "postgresql"); err != nil {
		return err
	}
	if !p.locate() {
		return unavailable("postgres and initdb are not where the package postgresql should have put them")
	}
	return nil
}

// locate finds the newest version that Debian has installed. It comes before
// the PATH, which rarely has more than the client programs there.
func (p *postgres) locate() bool {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			found = append(found, path)
		}
	}
	for _, path := range found {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "initdb")); err == nil {
			p.bin = filepath.Dir(path)
			return true
		}
	}
	return false
}

// Anyone on the machine can connect to a loopback port, and a superuser of
// Postgres can run programs: so it asks for a password.
var initdbArgs = []string{"--username=postgres", "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"}

// Init copies what initdb once made: initdb takes seconds, the copy does not.
func (p *postgres) Init(ctx context.Context, dir string) error {
	version, err := exec.CommandContext(ctx, filepath.Join(p.bin, "postgres"), "--version").Output()
	if err != nil {
		return fmt.Errorf("ask postgres for its version: %w", err)
	}
	cache, err := cacheDir()
	if err != nil {
		return err
	}
	key := sha256.Sum256(fmt.Append(nil, p.bin, string(version), initdbArgs, serverUser))
	template := filepath.Join(cache, fmt.Sprintf("postgres-%x", key[:8]))
	err = withCacheLock("postgres", func() error {
		if _, err := os.Stat(template); errors.Is(err, os.ErrNotExist) {
			return p.makeTemplate(ctx, template)
		} else if err != nil {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("make the first data directory: %w", err)
	}
	password, err := os.ReadFile(filepath.Join(template, "password"))
	if err != nil {
		return err
	}
	p.password = string(password)
	return copyTree(filepath.Join(template, "data"), dir)
}

// makeTemplate runs initdb where the servers' user may, and moves the result
// to where it is kept, whole or not at all.
func (p *postgres) makeTemplate(ctx context.Context, template string) error {
	base, err := enterableTempDir()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(base, "baton-initdb-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	password := rand.Text()
	passwordFile := filepath.Join(work, "password")
	if err := os.WriteFile(passwordFile, []byte(password), 0o600); err != nil {
		return err
	}
	for _, path := range []string{work, passwordFile} {
		if err := os.Chown(path, serverUser.uid, serverUser.gid); err != nil {
			return err
		}
	}
	initdb := serverCommand(filepath.Join(p.bin, "initdb"), append(initdbArgs, "--pwfile="+passwordFile, "--pgdata="+filepath.Join(work, "data"))...)
	initdb.Dir = work
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	half := template + ".new"
	if err := os.RemoveAll(half); err != nil {
		return err
	}
	if err := copyTree(work, half); err != nil {
		return err
	}
	return os.Rename(half, template)
}

// Command leaves Postgres as durable as it is by default: what a test sees
// survive a kill is what a user would see survive it.
func (p *postgres) Command(dir string, port int, settings map[string]string) []string {
	all := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(port),
		"unix_socket_directories": "", // a long TMPDIR does not fit into a socket's address
		"max_connections":         "200",
		// Kept in files below dir, so that a killed server leaves nothing in /dev/shm.
		"dynamic_shared_memory_type": "mmap",
	}
	maps.Copy(all, settings)
	argv := []string{filepath.Join(p.bin, "postgres"), "-D", dir}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		argv = append(argv, "-c", name+"="+all[name])
	}
	return argv
}

// pidFile is what a running Postgres says about itself, by line.
type pidFile []string

func readPIDFile(dir string) pidFile {
	text, _ := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	return strings.Split(string(text), "\n")
}

func (f pidFile) line(n int) string {
	if n > len(f) {
		return ""
	}
	return strings.TrimSpace(f[n-1])
}

func (p *postgres) Ready(_ context.Context, dir string, _, pid int) bool {
	f := readPIDFile(dir)
	return f.line(1) == strconv.Itoa(pid) && f.line(8) == "ready"
}

func (p *postgres) URL(addr string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword("postgres", p.password), Host: addr, Path: "/postgres", RawQuery: "sslmode=disable"}
	return u.String()
}

// StopSignal asks for the immediate shutdown, which waits for nobody.
func (p *postgres) StopSignal() syscall.Signal { return syscall.SIGQUIT }

// Sweep removes the System V shared memory that tells one postmaster of a data
// directory of another, and that survives it when it is killed. Line 7 is its
// key and its id; a tidy stop has removed file and memory.
func (p *postgres) Sweep(dir string) {
	if key := strings.Fields(readPIDFile(dir).line(7)); len(key) == 2 {
		_ = exec.Command("ipcrm", "--shmem-id", key[1]).Run()
	}
}

// copyTree copies the directory src to dst, which may exist and be empty.
// Directories and files become the servers' user's, and only theirs.
func copyTree(src, dst string) error {
	return filepath.WalkDir(src, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		target := filepath.Join(dst, rel)
		switch {
		case entry.IsDir():
			if err := os.Mkdir(target, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
		case entry.Type().IsRegular():
			if err := copyFile(path, target); err != nil {
				return err
			}
		default:
			return fmt.Errorf("copy %s: neither file nor directory", path)
		}
		return os.Chown(target, serverUser.uid, serverUser.gid)
	})
}

func copyFile(src, dst string) (err error) {
	from, err := os.Open(src)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	_, err = io.Copy(to, from)
	return err
}
