package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// zookeeper is one server of ZooKeeper from the Debian packages: the library,
// which has the server in it, and a Java without a display. Alone it is
// standalone. Servers of an ensemble are started at the same time, each with
// settings that name all ("server.1", ...) and its own number ("myid"): none is
// ready before most of them are.
type zookeeper struct {
	java string
}

const zookeeperJar = "/usr/share/java/zookeeper.jar"

func (z *zookeeper) Obtain(ctx context.Context, progress io.Writer) error {
	if z.locate() {
		return nil
	}
	if err := installDebian(ctx, progress, "libzookeeper-java", "default-jre-headless"); err != nil {
		return err
	}
	if !z.locate() {
		return unavailable("java or %s is not where its package should have put it", zookeeperJar)
	}
	return nil
}

func (z *zookeeper) locate() bool {
	path, err := exec.LookPath("java")
	z.java = path
	_, missing := os.Stat(zookeeperJar)
	return err == nil && missing == nil
}

// Init has nothing to do: the configuration is written with every start, since it has the port in it.
func (z *zookeeper) Init(context.Context, string) error { return nil }

// Command makes a server that comes up fast and takes little memory: a short
// tick, so that sessions may be short, a small heap, and no web server. What it
// acknowledges is on disk, as it is by ZooKeeper's own defaults.
func (z *zookeeper) Command(dir string, port int, settings map[string]string) []string {
	data := filepath.Join(dir, "data")
	all := map[string]string{
		"dataDir":            data,
		"clientPort":         strconv.Itoa(port),
		"clientPortAddress":  "127.0.0.1",
		"tickTime":           "500",
		"initLimit":          "20",
		"syncLimit":          "10",
		"admin.enableServer": "false",
		"maxClientCnxns":     "0",
	}
	maps.Copy(all, settings)
	var config strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name != "myid" {
			_, _ = fmt.Fprintf(&config, "%s=%s\n", name, all[name])
		}
	}
	path := filepath.Join(dir, "zoo.cfg")
	err := errors.Join(os.MkdirAll(data, 0o755), os.WriteFile(path, []byte(config.String()), 0o644))
	if id, ok := all["myid"]; ok {
		err = errors.Join(err, os.WriteFile(filepath.Join(data, "myid"), []byte(id), 0o644))
	}
	err = errors.Join(err, os.Chown(data, serverUser.uid, serverUser.gid))
	if err != nil {
		return []string{"sh", "-c", "echo \"$0\" >&2; exit 1", err.Error()} // its log says why it did not start
	}
	return []string{
		z.java, "-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xshare:auto",
		"-Dzookeeper.admin.enableServer=false", "-Djava.net.preferIPv4Stack=true",
		"-cp", zookeeperJar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", path,
	}
}

// Ready asks for the server's state, which it tells when it takes requests.
func (z *zookeeper) Ready(ctx context.Context, _ string, port, _ int) bool {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return false
	}
	said, err := io.ReadAll(conn)
	return err == nil && bytes.Contains(said, []byte("Mode: "))
}

func (z *zookeeper) URL(addr string) string { return "zookeeper://" + addr }

func (z *zookeeper) StopSignal() syscall.Signal { return syscall.SIGTERM }

// Sweep has nothing to do: ZooKeeper keeps to its directory.
func (z *zookeeper) Sweep(string) {}
