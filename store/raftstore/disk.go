package raftstore

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// disk is the log and the votes of a server, watched: how long writes take,
// and whether one failed. After a failed write nobody knows what the disk
// holds, so a server that saw one is to be stopped, and started again when
// there is room: what was acknowledged is there, or on the other servers.
type disk struct {
	*wal.WAL
	dir    string
	log    *slog.Logger
	writes tally

	mu     sync.Mutex
	err    error
	failed chan struct{}
}

var (
	_ raft.LogStore          = (*disk)(nil)
	_ raft.StableStore       = (*disk)(nil)
	_ raft.MonotonicLogStore = (*disk)(nil)
)

func newDisk(w *wal.WAL, dir string, log *slog.Logger) *disk {
	return &disk{WAL: w, dir: dir, log: log, failed: make(chan struct{})}
}

func (d *disk) watch(began time.Time, entries int, err error) error {
	d.writes.add(time.Since(began), entries, err)
	if err == nil || errors.Is(err, wal.ErrClosed) {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = fmt.Errorf("write to %s: %w", d.dir, err)
		if errors.Is(err, wal.ErrSealed) {
			// What kept the next file of the log from being made is in the log of this program only.
			d.err = fmt.Errorf("write to %s: the log could not be continued, as happens when there is no space left: %w", d.dir, err)
		}
		d.log.Error("the disk failed: this server must be stopped", "err", d.err)
		close(d.failed)
	}
	return err
}

// StoreLog stores one entry.
func (d *disk) StoreLog(log *raft.Log) error { return d.StoreLogs([]*raft.Log{log}) }

// StoreLogs stores entries with one fsync.
func (d *disk) StoreLogs(logs []*raft.Log) error {
	return d.watch(time.Now(), len(logs), d.WAL.StoreLogs(logs))
}

// DeleteRange forgets entries.
func (d *disk) DeleteRange(first, last uint64) error {
	return d.watch(time.Now(), 0, d.WAL.DeleteRange(first, last))
}

// Set stores a value, such as for whom this server voted.
func (d *disk) Set(key, value []byte) error {
	return d.watch(time.Now(), 0, d.WAL.Set(key, value))
}

// SetUint64 stores a value, such as the raft term.
func (d *disk) SetUint64(key []byte, value uint64) error {
	return d.watch(time.Now(), 0, d.WAL.SetUint64(key, value))
}

// Failed is closed when the disk has failed to keep something. From then on
// the server must not be relied upon: end it. Failure says why.
func (s *Store) Failed() <-chan struct{} {
	if s.disk == nil {
		return nil
	}
	return s.disk.failed
}

// Failure is why Failed is closed; nil before.
func (s *Store) Failure() error {
	if s.disk == nil {
		return nil
	}
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	return s.disk.err
}

// snapshots counts what is written to a snapshot store.
type snapshots struct {
	raft.SnapshotStore
	written tally
}

// Create begins a snapshot.
func (s *snapshots) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, configIndex uint64, t raft.Transport) (raft.SnapshotSink, error) {
	began := time.Now()
	sink, err := s.SnapshotStore.Create(version, index, term, c, configIndex, t)
	if err != nil {
		s.written.add(time.Since(began), 0, err)
		return nil, err
	}
	return &countedSink{sink, &s.written, began}, nil
}

type countedSink struct {
	raft.SnapshotSink
	written *tally
	began   time.Time
}

func (s *countedSink) Close() error {
	err := s.SnapshotSink.Close()
	s.written.add(time.Since(s.began), 0, err)
	return err
}

func (s *countedSink) Cancel() error {
	s.written.add(time.Since(s.began), 0, errors.New("cancelled"))
	return s.SnapshotSink.Cancel()
}
