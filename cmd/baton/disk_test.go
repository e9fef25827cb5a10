package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"baton"
	"baton/store/remotestore"
	"baton/storetest/drill"
)

// A full disk ends the server, with a message. When there is room again it goes
// on with everything that it had acknowledged.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	resize := func(flags uintptr, size string) {
		t.Helper()
		err := syscall.Mount("tmpfs", disk, "tmpfs", flags, "size="+size)
		if errors.Is(err, syscall.EPERM) && os.Getenv("CI") != "true" {
			t.Skip("only root can make a small disk")
		}
		if err != nil {
			t.Fatalf("make a disk of %s: %v", size, err)
		}
	}
	resize(0, "70m") // the log takes 64 MB at a time
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	args := alone(t, filepath.Join(disk, "data"))
	s := started(t, start(t, append(args, "-o", "json")...))
	open := func() *remotestore.Store {
		store, err := remotestore.New(t.Context(), remotestore.Config{Servers: []string{s.url}, Timeout: drill.Unhurried})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}
	store := open()
	lease, err := store.Acquire(t.Context(), "kept", baton.Candidate{NodeID: "n", InstanceID: "i"}, 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	// Registrations are the largest that one can write.
	big := baton.Group{ID: "big"}
	for i := range 400 {
		big.AllowedNodes = append(big.AllowedNodes, fmt.Sprintf("%0120d", i))
	}
	written := 0
	for ; err == nil && written < 5000; written++ {
		var next baton.Group
		if next, err = store.PutGroup(t.Context(), big); err != nil {
			// A server that was only held up is there to be asked what came of it.
			next, err = store.Group(t.Context(), big.ID)
		}
		if err == nil {
			big.Version = next.Version
		}
	}
	if code := s.Wait(); code != 1 || !strings.Contains(s.Errors(), "stopped, because the disk failed") {
		t.Fatalf("after %d writes, the last of which was %v: exit code %d: %s", written, err, code, s.Errors())
	}
	_ = store.Close()
	t.Logf("full after %d writes: %s", written, s.Errors()[strings.LastIndex(s.Errors(), "message"):])
	resize(syscall.MS_REMOUNT, "300m")

	s = started(t, start(t, args...))
	store = open()
	defer func() { _ = store.Close() }()
	if l, err := store.Get(t.Context(), "kept"); err != nil || l.Term != lease.Term || l.InstanceID != "i" {
		t.Errorf("after a full disk: %+v, %v: want term %d", l, err, lease.Term)
	}
	if g, err := store.Group(t.Context(), "big"); err != nil || g.Version < big.Version {
		t.Errorf("after a full disk the group is at version %d, %v: %d was acknowledged", g.Version, err, big.Version)
	}
	if _, err := store.PutGroup(t.Context(), baton.Group{ID: "another"}); err != nil {
		t.Errorf("write after a full disk: %v", err)
	}
}
