package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"baton"
	"baton/internal/testserver"
	"baton/store/remotestore"
	"baton/storetest/drill"
)

// A backup of a running server becomes a new cluster: its terms are above all
// that there were, also those that the backup knows nothing of.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, data := filepath.Join(dir, "backup"), filepath.Join(dir, "restored")
	peer := testserver.FreeAddress(t)
	s := started(t, start(t, serverArgs("--data", filepath.Join(dir, "old"), "--peer", peer)...))
	campaign := func(s serverProcess, timeout time.Duration) (baton.Lease, error) {
		t.Helper()
		store, err := remotestore.New(t.Context(), remotestore.Config{Servers: []string{s.url}, Timeout: timeout})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close() }()
		lease, err := store.Acquire(t.Context(), "g", baton.Candidate{NodeID: "n", InstanceID: baton.NewInstanceID()}, time.Minute)
		if err == nil {
			err = store.Release(t.Context(), lease.ID())
		}
		return lease, err
	}
	lead := func(s serverProcess) baton.Lease {
		t.Helper()
		lease, err := campaign(s, drill.Unhurried)
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	lead(s)
	run(t, "backup", file, "--server", s.url).wants(t, 0)
	if r := run(t, "backup", file, "--server", s.url).wants(t, 2); !strings.Contains(r.stderr, "is there already") {
		t.Errorf("over an old one: %v", r)
	}
	last := lead(s)
	s.Signal(syscall.SIGTERM)
	s.Wait()

	run(t, "restore", file, "--data", data, "--peer", peer).wants(t, 0)
	if r := run(t, "restore", file, "--data", data, "--peer", peer).wants(t, 1); !strings.Contains(r.stderr, "not empty") {
		t.Errorf("restored twice: %v", r)
	}
	waits := started(t, start(t, serverArgs("--data", data, "--peer", peer)...))
	eventually(t, "a campaign at once being told why it waits", func() bool {
		_, err := campaign(waits, 0) // the usual timeout, which ends before the server says to come again
		if !errors.Is(err, baton.ErrUnavailable) {
			t.Fatalf("a campaign at once: %v", err)
		}
		return strings.Contains(err.Error(), "restored from a backup")
	})
	waits.kill9()

	known := filepath.Join(dir, "known")
	run(t, "restore", file, "--data", known, "--peer", peer, "--i-know", "all nodes are off").wants(t, 0)
	again := started(t, start(t, serverArgs("--data", known, "--peer", peer)...))
	if lease := lead(again); lease.Term <= last.Term {
		t.Errorf("term %d after the restore, and %d before", lease.Term, last.Term)
	}
	eventually(t, "the reason being in the log", func() bool { return strings.Contains(again.Errors(), "all nodes are off") })

	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(dir, "torn")
	if err := os.WriteFile(torn, raw[:len(raw)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(t, "restore", torn, "--data", filepath.Join(dir, "none")).wants(t, 1); !strings.Contains(r.stderr, "not a whole backup") {
		t.Errorf("a torn one: %v", r)
	}
}
