package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// consul is one Consul server, built from the module in consul/. Alone it is a
// cluster of one. Its settings are those of an agent's configuration file, each
// value as HCL: "performance" to "{ raft_multiplier = 5 }".
type consul struct {
	built string
	// What servers say to each other needs ports too.
	rpc, serf int
}

func (c *consul) Obtain(ctx context.Context, progress io.Writer) (err error) {
	c.built, err = buildModule(ctx, progress, "consul")
	return err
}

func (c *consul) Init(_ context.Context, dir string) (err error) {
	if c.rpc, err = freePort(); err != nil {
		return err
	}
	if c.serf, err = freePort(); err != nil {
		return err
	}
	return placeProgram(c.built, filepath.Join(dir, "consul"))
}

// Command starts a server that keeps its data on disk, unlike Consul's own
// development mode, and leads as soon as such a server may. Settings come last:
// Consul merges what is given twice, field by field.
func (c *consul) Command(dir string, port int, settings map[string]string) []string {
	argv := []string{filepath.Join(dir, "consul")}
	for _, fragment := range []string{
		"server = true",
		"bootstrap_expect = 1",
		fmt.Sprintf("data_dir = %q", filepath.Join(dir, "data")),
		`node_name = "alone"`,
		`bind_addr = "127.0.0.1"`,
		`client_addr = "127.0.0.1"`,
		fmt.Sprintf("ports { http = %d, server = %d, serf_lan = %d, serf_wan = -1, dns = -1, grpc = -1, grpc_tls = -1 }", port, c.rpc, c.serf),
		`performance { raft_multiplier = 1, leave_drain_time = "1ms" }`,
		"limits { http_max_conns_per_client = 10000 }", // all of a test's clients have one address
		"connect { enabled = false }",
		"peering { enabled = false }",
		"disable_update_check = true",
		`log_level = "warn"`,
	} {
		argv = append(argv, "-hcl", fragment)
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		argv = append(argv, "-hcl", name+" = "+settings[name])
	}
	return argv
}

// Ready asks for a read that most servers have to agree to. A token is not
// needed to be told that there is no such key, or that one is needed.
func (c *consul) Ready(ctx context.Context, _ string, port, _ int) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/v1/kv/ready?consistent", port), nil)
	if err != nil {
		return false
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusForbidden
}

func (c *consul) URL(addr string) string { return "consul://" + addr }

func (c *consul) StopSignal() syscall.Signal { return syscall.SIGTERM }

// Sweep has nothing to do: Consul keeps to its directory.
func (c *consul) Sweep(string) {}
