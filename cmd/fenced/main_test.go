package main_test

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"baton/fenced/fencedclient"
)

// The command as a user builds and starts it.
func TestCommand(t *testing.T) {
	program := filepath.Join(t.TempDir(), "fenced")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.Command(program, "-listen", "127.0.0.1:0", "-db", filepath.Join(t.TempDir(), "data.db"))
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("read what it says: %v\n%s", cmd.Wait(), &stderr)
	}
	client, err := fencedclient.New(strings.TrimSpace(strings.TrimPrefix(line, "listening on ")), nil)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := client.Health(t.Context()); err != nil || !h.Fencing || h.Database != "sqlite" {
		t.Errorf("health: %+v, %v", h, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, &stderr)
	}
}
