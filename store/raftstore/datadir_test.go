package raftstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"baton"
	"baton/internal/raftnode"
)

// A data directory that cannot be used is refused with a reason, and left as it is.
func TestDataDirectoryIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name   string
		spoil  func(t *testing.T, dir string)
		server string
		want   string
	}{
		{"of another server", func(*testing.T, string) {}, "s7", `belongs to server "s1"`},
		{"of a newer program", func(t *testing.T, dir string) {
			replaceIn(t, filepath.Join(dir, "identity.json"), `"version": 1`, `"version": 99`)
		}, "s1", "needs an upgrade"},
		{"with an unreadable identity", func(t *testing.T, dir string) {
			replaceIn(t, filepath.Join(dir, "identity.json"), `{`, `<`)
		}, "s1", "not readable"},
		{"in use", func(t *testing.T, dir string) {
			unlock, err := raftnode.LockDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unlock() })
		}, "s1", "in use by another process"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t, 1, nil)
			c.stopAll()
			cfg := c.config("s1")
			tc.spoil(t, cfg.Dir)
			cfg.ID = tc.server
			s, err := Open(t.Context(), cfg)
			if err == nil {
				_ = s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("opened: %v, want %q", err, tc.want)
			}
		})
	}
}

func replaceIn(t *testing.T, path, old, new string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(b), old, new, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A crash in the middle of a write leaves half an entry behind what was
// acknowledged. It is dropped, and nothing else.
func TestTornLogTail(t *testing.T) {
	c := newCluster(t, 1, nil)
	var last baton.Term
	for i := range 20 {
		last = takeAndGive(t, c.servers["s1"], fmt.Sprintf("n%d", i))
	}
	c.stopAll()
	segments, err := filepath.Glob(filepath.Join(c.config("s1").Dir, "*.wal"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("no log found: %v", err)
	}
	path := segments[len(segments)-1]
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	end := len(strings.TrimRight(string(b), "\x00"))
	end = (end + 7) / 8 * 8 // frames are aligned
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	torn := append([]byte{1, 0, 0, 0, 200, 0, 0, 0}, strings.Repeat("torn", 20)...)
	if _, err := f.WriteAt(torn, int64(end)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	c.startAll()
	if term := takeAndGive(t, c.servers["s1"], "next"); term != last+1 {
		t.Errorf("term %d after %d", term, last)
	}
	c.stopAll()
	c.startAll()
	if term := takeAndGive(t, c.servers["s1"], "again"); term != last+2 {
		t.Errorf("term %d after %d", term, last+1)
	}
}

func takeAndGive(t *testing.T, s *Store, node string) baton.Term {
	t.Helper()
	lease, err := s.Acquire(t.Context(), "g", baton.Candidate{NodeID: node, InstanceID: node}, time.Minute)
	if err == nil {
		err = s.Release(t.Context(), lease.ID())
	}
	if err != nil {
		t.Fatal(err)
	}
	return lease.Term
}

const fullDiskEnv = "BATON_TEST_FULL_DISK"

// The disk fills up under a server. What was acknowledged is there when there
// is room again.
func TestFullDisk(t *testing.T) {
	if dir := os.Getenv(fullDiskEnv); dir != "" {
		fillDisk(dir)
		return
	}
	dir := t.TempDir()
	// The log takes its space in segments of 64 MiB: there is room for one, and a little.
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=66m"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("a small disk is needed: %v", err)
		}
		t.Skipf("a small disk is needed: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	child := exec.Command(os.Args[0], "-test.run=^TestFullDisk$")
	child.Env = append(os.Environ(), fullDiskEnv+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	acknowledged := 0
	end := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, err := fmt.Sscanf(lines.Text(), "acknowledged g1 %d", &acknowledged); err != nil {
			end = lines.Text()
			break
		}
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	t.Logf("%d terms, then: %s", acknowledged, end)
	if acknowledged == 0 || !strings.HasPrefix(end, "refused") {
		t.Fatalf("the server did not refuse when its disk was full: %q", end)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=300m"); err != nil {
		t.Fatal(err)
	}
	s := openFullDisk(t.Context(), dir)
	defer func() { _ = s.Close() }()
	if _, err := acquireSoon(t.Context(), s, "next"); !errors.Is(err, baton.ErrHeld) {
		t.Errorf("the first grant is gone: %v", err)
	}
	lease, err := s.Get(t.Context(), "g1")
	if err != nil || lease.Term < baton.Term(acknowledged) {
		t.Errorf("term %d after %d was acknowledged: %v", lease.Term, acknowledged, err)
	}
}

func openFullDisk(ctx context.Context, dir string) *Store {
	s, err := Open(ctx, Config{Dir: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", Logger: testLogger()})
	if err != nil {
		panic(err)
	}
	return s
}

func acquireSoon(ctx context.Context, s *Store, node string) (baton.Lease, error) {
	for {
		lease, err := s.Acquire(ctx, "g", baton.Candidate{NodeID: node, InstanceID: node}, time.Minute)
		if !errors.Is(err, baton.ErrUnavailable) || ctx.Err() != nil {
			return lease, err
		}
	}
}

// fillDisk takes one term after the other, with large changes in between, until one is refused.
func fillDisk(dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := openFullDisk(ctx, dir)
	large := baton.Group{ID: "large"}
	for i := range 1000 {
		large.AllowedNodes = append(large.AllowedNodes, fmt.Sprintf("%0120d", i))
	}
	if _, err := acquireSoon(ctx, s, "first"); err != nil {
		fmt.Println("not begun:", err)
		return
	}
	for i := 0; ; i++ {
		node := fmt.Sprintf("n%d", i)
		lease, err := s.Acquire(ctx, fmt.Sprintf("g%d", i%2+1), baton.Candidate{NodeID: node, InstanceID: node}, time.Minute)
		if err == nil {
			err = s.Release(ctx, lease.ID())
		}
		if err == nil {
			if lease.Group == "g1" {
				fmt.Println("acknowledged g1", lease.Term)
			}
			large, err = s.PutGroup(ctx, large)
		}
		if err != nil {
			fmt.Println("refused:", err)
			return
		}
	}
}
