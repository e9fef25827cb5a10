package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"baton/internal/fleet"
)

func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "node")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

// What is started wrongly says so in one line.
func TestUsage(t *testing.T) {
	program := build(t)
	for _, tt := range []struct {
		args   string
		status int
		says   string
	}{
		{"-help", 0, "usage: node"},
		{"-node-id n1 -backend raftish", 2, `-backend is "raftish": want one of`},
		{"-node-id n1 -backend baton -store nowhere", 2, "-store"},
		{"-node-id n1 -backend etcd -store http://127.0.0.1:2379 -http 127.0.0.1:0", 2, "etcd://"},
		{"-node-id n1 -backend baton -store http://127.0.0.1:1 -resource nowhere", 2, "nowhere"},
		{"-node-id n1 -backend baton -store http://127.0.0.1:1 -http 127.0.0.1:0 -events /no/such/place", 2, "open the log of events"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, program, strings.Fields(tt.args)...)
		var stderr, stdout bytes.Buffer
		cmd.Stderr, cmd.Stdout = &stderr, &stdout
		_ = cmd.Run() // its status says all
		cancel()
		said := stderr.String()
		if status := cmd.ProcessState.ExitCode(); status != tt.status || !strings.Contains(stdout.String()+said, tt.says) {
			t.Errorf("node %s: exit status %d, want %d and %q:\n%s", tt.args, status, tt.status, tt.says, said)
		}
		if tt.status != 0 && strings.Count(said, "\n") != 1 {
			t.Errorf("node %s: more than one line:\n%s", tt.args, said)
		}
	}
}

// A node whose backend is not there is a candidate, gives out no numbers, and
// ends when it is told to.
func TestWithoutABackend(t *testing.T) {
	dir := t.TempDir()
	pidFile := filepath.Join(dir, "n1.pid")
	cmd := exec.Command(build(t), "-node-id", "n1", "-backend", "baton", "-store", "http://127.0.0.1:1", "-http", "127.0.0.1:0",
		"-pid-file", pidFile, "-clock-skew=-1h")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("read what it says: %v\n%s", cmd.Wait(), &stderr)
	}
	_, address, _ := strings.Cut(strings.TrimSpace(line), "http://")

	s, err := fleet.GetStatus(t.Context(), http.DefaultClient, address)
	if err != nil || s.NodeID != "n1" || s.Role != fleet.RoleCandidate || s.FenceToken != 0 || s.PID != cmd.Process.Pid || s.Leader != nil {
		t.Errorf("%+v, %v", s, err)
	}
	if off := time.Since(time.UnixMilli(s.WallMS)); off < 59*time.Minute {
		t.Errorf("its clock is off by %v only", off)
	}
	resp, err := http.Post("http://"+address+"/next", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var refusal fleet.Refusal
	if err := json.NewDecoder(resp.Body).Decode(&refusal); err != nil || resp.StatusCode != http.StatusServiceUnavailable || refusal.Code != fleet.CodeNoLeader {
		t.Errorf("%s %+v, %v", resp.Status, refusal, err)
	}
	metrics, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = metrics.Body.Close() }()
	text, err := io.ReadAll(metrics.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"leaders_acting 0", `baton_node_role{role="candidate"} 1`, `baton_fence_rejections_total{reason="stale"} 0`} {
		if !strings.Contains(string(text), "\n"+want+"\n") {
			t.Errorf("the metrics lack %q", want)
		}
	}
	if _, err := os.Stat(pidFile); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, &stderr)
	}
	if _, err := os.Stat(pidFile); !os.IsNotExist(err) {
		t.Errorf("the PID file is still there: %v", err)
	}
}
