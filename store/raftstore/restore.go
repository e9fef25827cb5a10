package raftstore

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"

	"baton"
	"baton/internal/leasefsm"
	"baton/internal/raftnode"
)

// RestoreConfig says what a backup becomes: a new cluster of one server.
type RestoreConfig struct {
	// Dir must not exist, or be empty.
	Dir string
	// ID and Address are those of the server that is to be started on it. Default "s1" and 127.0.0.1:7402.
	ID, Address string
	// IKnow, if set, is why nothing of the old cluster can still be relied upon, in the
	// operator's words: the new one grants at once.
	IKnow string
	// Now is the wall clock. Default: the machine's.
	Now time.Time
}

// quarantine is how long a restored cluster grants nothing: as long as the
// longest lease, which may have been granted after the backup was taken.
const quarantine = baton.MaxTTL

// termsPerMilli is how many terms are left for each millisecond since 1970.
const termsPerMilli = 1 << 10

// Restore makes the data directory of a new cluster out of the backup.
//
// Nobody knows what was granted after the backup was taken. So every
// leadership in it is over; terms go on from what the clock says, which is far beyond what
// any cluster can have granted by now; and nothing is granted before every lease of the old
// cluster has run out. The old cluster must be gone for good: it must not be started again.
func (b *Backup) Restore(cfg RestoreConfig) error {
	c := Config{ID: cfg.ID, Dir: cfg.Dir, Listen: cfg.Address}.withDefaults()
	if err := c.validate(); err != nil {
		return err
	}
	if cfg.Now.IsZero() {
		cfg.Now = time.Now()
	}
	// Terms go on from the clock, so one that was set back could repeat those of a cluster
	// that was restored from this very backup before.
	if cfg.Now.Before(b.TakenAt) {
		return fmt.Errorf("the clock says %s, and the backup was taken at %s, which is later: set the clock first",
			cfg.Now.UTC().Format(time.RFC3339), b.TakenAt.UTC().Format(time.RFC3339))
	}
	floor := baton.Term(max(0, cfg.Now.UnixMilli())) * termsPerMilli
	if highest := b.highest(); floor < highest {
		return fmt.Errorf("the clock says %s, and the backup has terms up to %d, which belong to a later time: set the clock first",
			cfg.Now.UTC().Format(time.RFC3339), highest)
	}
	if err := requireEmpty(cfg.Dir); err != nil {
		return err
	}
	state, err := b.succeed(floor, cfg.Now)
	if err != nil {
		return err
	}
	return c.found(state, restored{From: b.Cluster, At: cfg.Now.UTC(), IKnow: cfg.IKnow})
}

func requireEmpty(dir string) error {
	files, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("data directory: %w", err)
	case len(files) > 0:
		return fmt.Errorf("data directory %s is not empty: a backup is restored into one that is", dir)
	}
	return nil
}

// succeed is the state of the new cluster, as its first snapshot.
func (b *Backup) succeed(floor baton.Term, now time.Time) ([]byte, error) {
	var held []baton.Lease
	for lease := range b.record.Leases() {
		held = append(held, lease)
	}
	for _, lease := range held {
		if err := b.record.Apply(leasefsm.Expire{Group: lease.Group, Term: lease.Term, Stamp: now.UnixMilli()}).Err; err != nil {
			return nil, err
		}
	}
	// Every group goes on from here, those included that are in the backup.
	if err := b.record.Apply(leasefsm.RaiseFloor{Term: floor}).Err; err != nil {
		return nil, err
	}
	cluster := rand.Text()
	state := []byte{snapshotVersion}
	state = binary.AppendUvarint(state, firstIndex)
	state = binary.AppendUvarint(state, uint64(len(cluster)))
	state = append(state, cluster...)
	return append(state, b.record.Snapshot()...), nil
}

// firstIndex and firstTerm are those of the snapshot that a restored cluster begins with.
const firstIndex, firstTerm = 1, 1

// found writes a data directory that begins with this state. Until the
// snapshot is whole there is nothing for raft to find, and what is there says that it was to be.
func (c Config) found(state []byte, how restored) (err error) {
	_, unlock, err := raftnode.OpenDir(c.Dir, c.ID)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := how.save(c.Dir); err != nil {
		return err
	}
	logger := raftnode.Logger(c.Logger)
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(filepath.Join(c.Dir, "snapshots"), 2, logger)
	if err != nil {
		return fmt.Errorf("begin the snapshots: %w", err)
	}
	config := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(c.ID), Address: raft.ServerAddress(c.address())}}}
	_, encoder := raft.NewInmemTransport(raft.ServerAddress(c.address())) // a snapshot names peers as a transport does
	sink, err := snapshots.Create(1, firstIndex, firstTerm, config, firstIndex, encoder)
	if err != nil {
		return fmt.Errorf("write the snapshot: %w", err)
	}
	if _, err := sink.Write(state); err != nil {
		return errors.Join(fmt.Errorf("write the snapshot: %w", err), sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return fmt.Errorf("write the snapshot: %w", err)
	}
	files, err := wal.Open(c.Dir, wal.WithLogger(logger))
	if err != nil {
		return fmt.Errorf("begin the log in %s: %w", c.Dir, err)
	}
	return errors.Join(files.SetUint64([]byte("CurrentTerm"), firstTerm), files.Close())
}

// restored is left in a data directory that was made of a backup, until its
// server may grant.
type restored struct {
	From  string    `json:"from_cluster"`
	At    time.Time `json:"at"`
	IKnow string    `json:"i_know,omitempty"`
}

const restoredFile = "restored.json"

func (r restored) save(dir string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return raftnode.WriteFile(filepath.Join(dir, restoredFile), b)
}

// readRestored returns how a data directory was made of a backup; nil if it was
// not, or has granted since. One that was not finished must not be used: there is nothing in
// it, so its terms would begin anew.
func readRestored(dir string, snapshots raft.SnapshotStore) (*restored, error) {
	b, err := os.ReadFile(filepath.Join(dir, restoredFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is nothing to tell
	}
	r := &restored{}
	if err == nil {
		err = json.Unmarshal(b, r)
	}
	if err != nil {
		return nil, fmt.Errorf("data directory: read %s: %w", restoredFile, err)
	}
	kept, err := snapshots.List()
	if err != nil {
		return nil, fmt.Errorf("read the snapshots: %w", err)
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("data directory %s: a backup was to be restored into it, and was not to its end: remove it, and restore again", dir)
	}
	return r, nil
}

// hold keeps a server that was made of a backup from granting, until the last
// lease of the old cluster has run out. Nobody measured the time while the server was
// not running, so each start begins it anew.
func (s *Store) hold(r restored) {
	if r.IKnow != "" {
		s.log.Warn("restored from a backup, and grants at once by the operator's word", "from_cluster", r.From, "restored", r.At, "because", r.IKnow)
		s.forgetRestored()
		return
	}
	wait := s.cfg.quarantine
	if wait == 0 {
		wait = quarantine
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.Warn("restored from a backup: nothing is granted until every lease of the old cluster has run out", "from_cluster", r.From, "restored", r.At, "wait", wait)
	s.held, s.heldUntil = true, s.clock.Now()+wait
	s.stopHold = s.clock.AfterFunc(wait, func() {
		// First: whoever sees a grant and restarts the server does not wait again.
		s.forgetRestored()
		s.mu.Lock()
		s.held = false
		s.mu.Unlock()
		s.log.Info("restored from a backup: leases are granted from now on")
	})
}

// endHold stops the clock, not the hold.
func (s *Store) endHold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopHold != nil {
		s.stopHold()
	}
}

func (s *Store) forgetRestored() {
	if err := os.Remove(filepath.Join(s.cfg.Dir, restoredFile)); err != nil {
		s.log.Warn("it will be waited for again after a restart", "err", err)
	}
}

var errRestored = errors.New("restored from a backup: nothing is granted until every lease of the old cluster has run out")

// holding is why nothing is granted; nil if it is. Called under s.mu.
func (s *Store) holding(op string, now time.Duration) error {
	if !s.held {
		return nil
	}
	return &baton.UnavailableError{Op: op, RetryAfter: max(0, s.heldUntil-now), Err: errRestored}
}
