package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// etcd is one member, built from the module in etcd/. Alone it is a cluster of
// one. Members of a larger one are started at the same time, each with settings
// that name all: none is ready before most of them are.
type etcd struct {
	built string
}

func (e *etcd) Obtain(ctx context.Context, progress io.Writer) (err error) {
	e.built, err = buildModule(ctx, progress, "etcd")
	return err
}

func (e *etcd) Init(_ context.Context, dir string) error {
	return placeProgram(e.built, filepath.Join(dir, "etcd"))
}

// Command lets the kernel choose the port for peers, which a cluster of one has
// no use for.
func (e *etcd) Command(dir string, port int, settings map[string]string) []string {
	clients := fmt.Sprintf("http://127.0.0.1:%d", port)
	all := map[string]string{
		"name":                  "alone",
		"data-dir":              filepath.Join(dir, "data"),
		"listen-client-urls":    clients,
		"advertise-client-urls": clients,
		"listen-peer-urls":      "http://127.0.0.1:0",
		"log-level":             "warn",
	}
	maps.Copy(all, settings)
	argv := []string{filepath.Join(dir, "etcd")}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		argv = append(argv, "--"+name+"="+all[name])
	}
	return argv
}

// Ready asks for a read that most members have to agree to.
func (e *etcd) Ready(ctx context.Context, _ string, port, _ int) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/health", port), nil)
	if err != nil {
		return false
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	var health struct {
		Health string `json:"health"`
	}
	return json.NewDecoder(response.Body).Decode(&health) == nil && health.Health == "true"
}

func (e *etcd) URL(addr string) string { return "etcd://" + addr }

func (e *etcd) StopSignal() syscall.Signal { return syscall.SIGTERM }

// Sweep has nothing to do: etcd keeps to its directory.
func (e *etcd) Sweep(string) {}
