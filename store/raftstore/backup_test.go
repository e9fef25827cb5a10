package raftstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"baton"
	"baton/internal/testserver"
)

// grant lets a new instance of a node lead a group, and reports its term.
func grant(t *testing.T, s *Store, group, node string) baton.Lease {
	t.Helper()
	lease, err := s.Acquire(t.Context(), group, baton.Candidate{NodeID: node, InstanceID: baton.NewInstanceID()}, time.Minute)
	if err != nil {
		t.Fatalf("acquire %s: %v", group, err)
	}
	return lease
}

// takeBackup grants before and after a backup, and returns it with the highest term of each group.
func takeBackup(t *testing.T) (raw []byte, cluster string, highest map[string]baton.Term) {
	t.Helper()
	c := newCluster(t, 1, nil)
	defer c.stopAll()
	s := c.servers["s1"]
	highest = map[string]baton.Term{}
	again := func(groups ...string) {
		for _, g := range groups {
			lease := grant(t, s, g, "n")
			if err := s.Release(t.Context(), lease.ID()); err != nil {
				t.Fatal(err)
			}
			highest[g] = grant(t, s, g, "n").Term
		}
	}
	again("held", "both")
	if _, err := s.PutGroup(t.Context(), baton.Group{ID: "policy", Policy: baton.Policy{MaxTTL: time.Minute}}); err != nil {
		t.Fatal(err)
	}
	raw, err := s.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Of all this the backup knows nothing.
	if err := s.End(t.Context(), "both", highest["both"], baton.Ending{Reason: baton.SteppedDown, Immediate: true}); err != nil {
		t.Fatal(err)
	}
	again("both", "later")
	return raw, s.cluster, highest
}

func readBackup(t *testing.T, raw []byte) *Backup {
	t.Helper()
	b, err := ReadBackup(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// restoredServer opens a server on what a backup becomes.
func restoredServer(t *testing.T, raw []byte, how RestoreConfig, change func(*Config)) (*Store, Config) {
	t.Helper()
	how.Dir, how.Address = filepath.Join(t.TempDir(), "data"), testserver.FreeAddress(t)
	if err := readBackup(t, raw).Restore(how); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Dir: how.Dir, Listen: how.Address, Logger: testLogger()}
	if change != nil {
		change(&cfg)
	}
	return openReady(t, cfg), cfg
}

func openReady(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := (&testCluster{}).awaitReady(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Tokens of a cluster that was restored from an old backup are higher than all that there were.
func TestRestoredTokensNeverRepeat(t *testing.T) {
	raw, cluster, highest := takeBackup(t)
	s, cfg := restoredServer(t, raw, RestoreConfig{IKnow: "it is a test"}, nil)
	if s.cluster == cluster || s.cluster == "" {
		t.Errorf("cluster %q, restored from %q", s.cluster, cluster)
	}
	for _, group := range []string{"held", "both", "policy"} {
		if lease, err := s.Get(t.Context(), group); err != nil || lease.Held() {
			t.Errorf("%s after the restore: %+v, %v", group, lease, err)
		}
	}
	if g, err := s.Group(t.Context(), "policy"); err != nil || g.Policy.MaxTTL != time.Minute {
		t.Errorf("policy: %+v, %v", g, err)
	}
	for _, group := range []string{"held", "both", "later", "new"} {
		if lease := grant(t, s, group, "m"); lease.Term <= highest[group] || lease.Term <= highest["both"] {
			t.Errorf("%s got term %d, and had %d before", group, lease.Term, highest[group])
		}
	}
	if past, err := s.History(t.Context(), "held"); err != nil || len(past) != 3 || past[1].Reason != baton.Expired {
		t.Errorf("history: %+v, %v", past, err)
	}
	// And it is a server like any other from now on: a backup of it can be restored.
	again, err := s.Backup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last, err := s.Get(t.Context(), "held")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if l, err := openReady(t, cfg).Get(t.Context(), "held"); err != nil || l.Term != last.Term || !l.Held() {
		t.Errorf("after a restart: %+v, %v", l, err)
	}
	second, _ := restoredServer(t, again, RestoreConfig{IKnow: "it is a test"}, nil)
	if lease := grant(t, second, "held", "m"); lease.Term <= last.Term {
		t.Errorf("restored again, it got term %d, and had %d before", lease.Term, last.Term)
	}
}

// A restored cluster grants nothing while leases of the old one may stand, a
// restart does not change that, and nobody can be added who would not know.
func TestRestoredServerWaits(t *testing.T) {
	raw, _, _ := takeBackup(t)
	s, cfg := restoredServer(t, raw, RestoreConfig{}, nil)
	refused := func(s *Store) {
		t.Helper()
		var unavailable *baton.UnavailableError
		_, err := s.Acquire(t.Context(), "held", baton.Candidate{NodeID: "n", InstanceID: "i"}, time.Minute)
		if !errors.As(err, &unavailable) || !errors.Is(err, errRestored) || unavailable.RetryAfter > quarantine || unavailable.RetryAfter < quarantine/2 {
			t.Errorf("acquired: %v", err)
		}
	}
	refused(s)
	if err := s.AddServer(t.Context(), "s2", testserver.FreeAddress(t)); !errors.Is(err, errRestored) {
		t.Errorf("added a server: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openReady(t, cfg)
	refused(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.quarantine = time.Millisecond
	s = openReady(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		_, err := s.Acquire(ctx, "held", baton.Candidate{NodeID: "n", InstanceID: "i"}, time.Minute)
		if err == nil {
			break
		}
		if !errors.Is(err, errRestored) {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.quarantine = 0
	grant(t, openReady(t, cfg), "other", "n") // it is over for good
}

// endOfWait holds back what happens when a restored server has waited.
type endOfWait struct {
	baton.Clock
	happen func()
}

func (c *endOfWait) AfterFunc(d time.Duration, f func()) func() bool {
	if d != quarantine {
		return c.Clock.AfterFunc(d, f)
	}
	c.happen = f
	return func() bool { return true }
}

type writing func(line string)

func (w writing) Write(p []byte) (int, error) { w(string(p)); return len(p), nil }

// What says that a server has to wait is gone before it grants: whoever sees a grant, and restarts it, does not wait again.
func TestRestoredServerForgetsBeforeItGrants(t *testing.T) {
	raw, _, _ := takeBackup(t)
	clock := &endOfWait{Clock: baton.SystemClock()}
	var s *Store
	forgot := false
	log := logTo(writing(func(line string) {
		if strings.Contains(line, "it will be waited for again") {
			s.mu.Lock()
			defer s.mu.Unlock()
			if forgot = true; !s.held {
				t.Error("it grants already")
			}
		}
	}))
	s, cfg := restoredServer(t, raw, RestoreConfig{}, func(cfg *Config) { cfg.Clock, cfg.Logger = clock, log })
	// It tells when it finds nothing to forget.
	if err := os.Remove(filepath.Join(cfg.Dir, restoredFile)); err != nil {
		t.Fatal(err)
	}
	clock.happen()
	if !forgot {
		t.Error("it did not forget")
	}
	grant(t, s, "other", "n")
}

func TestBackupThatIsNone(t *testing.T) {
	raw, _, _ := takeBackup(t)
	refused := func(what string, raw []byte) {
		t.Helper()
		if _, err := ReadBackup(bytes.NewReader(raw)); !errors.Is(err, ErrBackup) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for n := range raw {
		refused(fmt.Sprintf("cut to %d of %d bytes", n, len(raw)), raw[:n])
		damaged := bytes.Clone(raw)
		damaged[n] ^= 0x10
		refused(fmt.Sprintf("byte %d changed", n), damaged)
	}
	refused("longer", append(bytes.Clone(raw), 0))
	refused("another version", bytes.Replace(raw, []byte("backup 1"), []byte("backup 2"), 1))
	refused("something else", []byte(strings.Repeat("PK\x03\x04", 100)))
}

func TestRestoreIsRefused(t *testing.T) {
	raw, _, _ := takeBackup(t)
	dir := filepath.Join(t.TempDir(), "data")
	if err := readBackup(t, raw).Restore(RestoreConfig{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if err := readBackup(t, raw).Restore(RestoreConfig{Dir: dir}); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("into a directory in use: %v", err)
	}
	early := RestoreConfig{Dir: filepath.Join(t.TempDir(), "data")}
	for _, early.Now = range []time.Time{time.UnixMilli(0), time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), readBackup(t, raw).TakenAt.Add(-time.Second)} {
		if err := readBackup(t, raw).Restore(early); err == nil || !strings.Contains(err.Error(), "set the clock") {
			t.Errorf("with a clock that says %v: %v", early.Now, err)
		}
	}
	if _, err := os.Stat(early.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was refused left something: %v", err)
	}
	// One that was not finished would be an empty cluster, whose terms begin anew.
	if err := os.RemoveAll(filepath.Join(dir, "snapshots")); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(t.Context(), Config{Dir: dir, Listen: testserver.FreeAddress(t), Logger: testLogger()}); err == nil || !strings.Contains(err.Error(), "not to its end") {
		if err == nil {
			_ = s.Close()
		}
		t.Errorf("a restore that was not finished: %v", err)
	}
}
