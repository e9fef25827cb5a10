package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"baton"
	_ "baton/store/consulstore"
	_ "baton/store/etcdstore"
	_ "baton/store/kubestore"
	"baton/store/memstore"
	_ "baton/store/pgstore"
	"baton/store/raftstore"
	_ "baton/store/redisstore"
	_ "baton/store/remotestore"
	_ "baton/store/zkstore"
)

// storeKind is a store that can be measured.
type storeKind struct {
	name  string
	heavy bool // its server takes minutes to build
	start func(ctx context.Context, s *stage) (*storeBacking, error)
}

// storeBacking is what a store stands on while it is measured.
type storeBacking struct {
	runs string
	open func(ctx context.Context) (baton.Store, error)
	stop func() error
}

var storeKinds = []storeKind{
	{name: "memory", start: startMemory},
	{name: "raft", start: startRaft},
	{name: "remote", start: startRemote},
	{name: "etcd", start: serverOf("etcd", "one member", fromModule("etcd", "go.etcd.io/etcd/server/v3"))},
	{name: "redis", start: serverOf("redis", "appendonly, appendfsync always", fromProgram("redis-server", "--version"))},
	{name: "postgres", start: serverOf("postgres", "default settings", fromGlob("/usr/lib/postgresql/*/bin/postgres", "--version"))},
	{name: "zookeeper", start: serverOf("zookeeper", "one server", fromProgram("dpkg-query", "-W", "libzookeeper-java"))},
	{name: "consul", heavy: true, start: serverOf("consul", "one server", fromModule("consul", "github.com/hashicorp/consul"))},
	{name: "kubernetes", heavy: true, start: serverOf("kubernetes", "kube-apiserver on one etcd", fromModule("kubernetes", "k8s.io/kubernetes"))},
}

func storeNames() (names []string) {
	for _, k := range storeKinds {
		names = append(names, k.name)
	}
	return names
}

func oneForAll(runs string, s baton.Store) *storeBacking {
	return &storeBacking{
		runs: runs, stop: s.Close,
		open: func(context.Context) (baton.Store, error) { return s, nil },
	}
}

func startMemory(context.Context, *stage) (*storeBacking, error) {
	s, err := memstore.New(memstore.Config{})
	if err != nil {
		return nil, err
	}
	return oneForAll("in this process", s), nil
}

func startRaft(ctx context.Context, stage *stage) (*storeBacking, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s, err := raftstore.Open(ctx, raftstore.Config{
		Dir: filepath.Join(stage.dir, "stores-raft"), Listen: fmt.Sprintf("127.0.0.1:%d", port),
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return nil, err
	}
	return oneForAll("one server, embedded in this process", s), nil
}

func startRemote(ctx context.Context, stage *stage) (*storeBacking, error) {
	list, urls, err := stage.startBaton(ctx, 1)
	if err != nil {
		return nil, err
	}
	return &storeBacking{
		runs: "baton server --store raft, one of it, HTTP and JSON",
		open: func(ctx context.Context) (baton.Store, error) { return baton.OpenStore(ctx, urls[0]) },
		stop: list[0].stop,
	}, nil
}

// serverOf starts a server of the testservers command, with the settings that it has there.
func serverOf(kind, how string, version func(root string) string) func(context.Context, *stage) (*storeBacking, error) {
	return func(ctx context.Context, stage *stage) (*storeBacking, error) {
		server, hear, err := stage.orderServer(kind, nil)
		if err != nil {
			return nil, err
		}
		if err := hear(); err != nil {
			_ = server.stop()
			return nil, err
		}
		return &storeBacking{
			runs: fmt.Sprintf("%s, %s", version(stage.root), how),
			open: func(ctx context.Context) (baton.Store, error) { return baton.OpenStore(ctx, server.address) },
			stop: server.stop,
		}, nil
	}
}

// number finds a version in what programs and files say.
var number = regexp.MustCompile(`[0-9]+(\.[0-9]+)+`)

// fromModule finds the version that testservers builds.
func fromModule(kind, module string) func(root string) string {
	line := regexp.MustCompile(regexp.QuoteMeta(module) + ` v([0-9.]+)`)
	return func(root string) string {
		text, err := os.ReadFile(filepath.Join(root, "testservers", kind, "go.mod"))
		if found := line.FindSubmatch(text); err == nil && found != nil {
			return string(found[1])
		}
		return "unknown version"
	}
}

func fromProgram(program string, args ...string) func(root string) string {
	return func(string) string {
		out, err := exec.Command(program, args...).Output()
		if found := number.Find(out); err == nil && found != nil {
			return string(found)
		}
		return "unknown version"
	}
}

func fromGlob(pattern string, args ...string) func(root string) string {
	return func(root string) string {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			return "unknown version"
		}
		return fromProgram(found[len(found)-1], args...)(root)
	}
}
