package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"baton/lab"
	"baton/lab/all"
)

// patience is far beyond what anything here takes.
const patience = 2 * time.Minute

func TestCommands(t *testing.T) {
	tests := []struct {
		name   string
		args   []string
		status int
		stdout string
		stderr string
	}{
		{"help", nil, 0, "usage: lab list", ""},
		{"help of a command", []string{"run", "-h"}, 0, "-seed", ""},
		{"list", []string{"list"}, 0, "4  gcpause", ""},
		{"list of a few", []string{"list", "--only", "4,1", "--backend", "raft"}, 0, "\nraft         4: ", ""},
		{"times of fleets side by side", []string{"list"}, 0, "in all with 6 fleets at once", ""},
		{"times of one fleet after the other", []string{"list", "--profile", "full"}, 0, "profile full, one fleet after the other:", ""},
		{"list of no such experiment", []string{"list", "--only", "99"}, 2, "", `experiment "99" is not known`},
		{"list with a flag of another command", []string{"list", "--seed", "1"}, 2, "", "lab list takes no --seed"},
		{"report with a flag of another command", []string{"report", "--only", "1"}, 2, "", "lab report takes no --only"},
		{"no such command", []string{"ran"}, 2, "", `unknown command "ran"`},
		{"no such experiment", []string{"run", "--only", "1,99"}, 2, "", `experiment "99" is not known`},
		{"no such backend", []string{"run", "--backend", "paper"}, 2, "", `backend "paper" is not known`},
		{"no backend", []string{"run", "--backend", ","}, 2, "", "--backend names none"},
		{"a backend twice", []string{"run", "--backend", "raft,raft"}, 2, "", "--backend has raft twice"},
		{"an experiment twice", []string{"run", "--only", "4,gcpause"}, 2, "", "experiment 4 (gcpause) is named twice"},
		{"broken in no known way", []string{"run", "--broken", "xx"}, 2, "", `--broken is "xx": want receipt`},
		{"broken leases of peers", []string{"run", "--broken", "receipt", "--backend", "baton,bully"}, 2, "", "bully has none"},
		{"a store without a name", []string{"run", "--stores", "127.0.0.1"}, 2, "", "want name=URL"},
		{"a store of no backend", []string{"run", "--stores", "nope=etcd://h"}, 2, "", `backend "nope" is not known`},
		{"a store of a backend that is not run", []string{"run", "--backend", "redis", "--stores", "etcd=etcd://h"}, 2, "", "etcd, which is not among --backend redis"},
		{"a store of peers", []string{"run", "--stores", "raft=http://h"}, 2, "", "raft has no server"},
		{"a store of another kind", []string{"run", "--stores", "etcd=redis://u:secret@h"}, 2, "", "redis:// is not of etcd: want a URL such as etcd://"},
		{"a store without a scheme", []string{"run", "--stores", "etcd=secret@h"}, 2, "", "what etcd is given is no URL: want one such as etcd://"},
		{"no such profile", []string{"run", "--profile", "slow"}, 2, "", `profile "slow" is not known`},
		{"no such flag", []string{"run", "--no"}, 2, "", "-no"},
		{"an argument too many", []string{"run", "1"}, 2, "", `unexpected argument "1"`},
		{"nothing to report", []string{"report", "--out", t.TempDir()}, 1, "", "no results in"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			status := lab.Main(t.Context(), all.Experiments, tt.args, &stdout, &stderr)
			if status != tt.status || !strings.Contains(stdout.String(), tt.stdout) || !strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("status %d, want %d\nstdout: %s\nstderr: %s", status, tt.status, stdout.String(), stderr.String())
			}
			if strings.Contains(stderr.String(), "secret") {
				t.Errorf("it shows a password: %s", stderr.String())
			}
		})
	}
}

// Ctrl-C in the middle of a pause: the frozen node, too, is gone.
func TestInterruptEndsEverything(t *testing.T) {
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/", "baton/cmd/lab")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := lab.Build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "lab"), "run", "--only", "4", "--backend", "baton", "--bin", dir, "--out", filepath.Join(dir, "out"))
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(io.TeeReader(stderr, &said)); lines.Scan(); {
		if strings.Contains(lines.Text(), "chaos gc-pause-leader") {
			break
		}
	}
	if !poll(ctx, func() bool { return strings.Contains(states(t, dir), "T") }) {
		t.Fatalf("no node is frozen: %s", said.String())
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(stderr)
	_ = cmd.Wait() // how it ended is in ProcessState
	if status := cmd.ProcessState.ExitCode(); status != 130 {
		t.Errorf("it ends with %d, want 130: %s%s", status, said.String(), rest)
	}
	said.Write(rest)
	if want := "\nlab: interrupted; 0 of 1 experiments are done and kept; the same command goes on\n"; !strings.HasSuffix(said.String(), want) {
		t.Errorf("it says %q, want %q at the end", said.String(), want)
	}
	if left := states(t, dir); left != "" {
		t.Errorf("processes are left: %s", left)
	}
}

func poll(ctx context.Context, done func() bool) bool {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// states are the states of all processes whose program is in dir.
func states(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	var found string
	for _, path := range paths {
		program, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(program, dir+"/") || program == filepath.Join(dir, "lab") {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		if err != nil {
			continue // gone meanwhile
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		found += after[:1]
	}
	return found
}
