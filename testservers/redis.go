package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// redis is Redis from the Debian package, or whichever is on the PATH.
type redis struct {
	path     string
	password string
}

func (r *redis) Obtain(ctx context.Context, progress io.Writer) error {
	if r.locate() {
		return nil
	}
	if err := installDebian(ctx, progress, "redis-server"); err != nil {
		return err
	}
	if !r.locate() {
		return unavailable("redis-server is not where its package should have put it")
	}
	return nil
}

func (r *redis) locate() bool {
	path, err := exec.LookPath("redis-server")
	r.path = path
	return err == nil
}

// Init draws the password. It goes into a file, since arguments can be read by
// everyone on the machine.
func (r *redis) Init(_ context.Context, dir string) error {
	r.password = rand.Text()
	config := filepath.Join(dir, "redis.conf")
	err := os.WriteFile(config, fmt.Appendf(nil, "requirepass %s\n", r.password), 0o600)
	return errors.Join(err, os.Chown(config, serverUser.uid, serverUser.gid))
}

// Command makes Redis as durable as it can be: a write that was acknowledged
// is on disk.
func (r *redis) Command(dir string, port int, settings map[string]string) []string {
	all := map[string]string{
		"bind":        "127.0.0.1",
		"port":        strconv.Itoa(port),
		"dir":         dir,
		"appendonly":  "yes",
		"appendfsync": "always",
		"save":        "",
	}
	maps.Copy(all, settings)
	argv := []string{r.path, filepath.Join(dir, "redis.conf")}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		argv = append(argv, "--"+name, all[name])
	}
	return argv
}

func (r *redis) Ready(ctx context.Context, _ string, port, _ int) bool {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	if _, err := fmt.Fprintf(conn, "AUTH %s\r\nPING\r\n", r.password); err != nil {
		return false
	}
	replies := bufio.NewReader(conn)
	auth, _ := replies.ReadString('\n')
	ping, _ := replies.ReadString('\n')
	return auth == "+OK\r\n" && ping == "+PONG\r\n"
}

func (r *redis) URL(addr string) string {
	u := url.URL{Scheme: "redis", User: url.UserPassword("", r.password), Host: addr, Path: "/0"}
	return u.String()
}

func (r *redis) StopSignal() syscall.Signal { return syscall.SIGTERM }

// Sweep has nothing to do: Redis keeps to its directory.
func (r *redis) Sweep(string) {}
