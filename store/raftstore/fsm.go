package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"baton"
	"baton/internal/feed"
	"baton/internal/leasefsm"
)

// errDeposed is the result of commands that were committed in a later raft
// term than they were decided in. Nothing was changed.
var errDeposed = errors.New("the raft leader that proposed it was deposed")

// machine is the replicated state as raft sees it. It shares the store's lock,
// so that a reign finds deadlines and record in step.
type machine struct{ s *Store }

var (
	_ raft.FSM                = machine{}
	_ raft.ConfigurationStore = machine{}
)

// applied is what raft hands back to whoever proposed an entry.
type applied struct {
	results []leasefsm.Result // one for each command
	err     error             // errDeposed
}

// Apply carries out one entry and returns an applied.
func (m machine) Apply(log *raft.Log) any {
	e, err := decodeEntry(log.Data)
	if err != nil {
		// Replicas that skip what they do not understand stop being replicas.
		panic(fmt.Sprintf("raftstore: entry %d: %v", log.Index, err))
	}
	s := m.s
	s.cfg.trial.holdUp()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.advance(log.Index)
	s.noteUnsaved(log.Index, len(log.Data))
	if s.reign != nil && s.reign.term < log.Term {
		s.reign.outdated = true
	}
	if e.term != log.Term {
		return applied{err: errDeposed}
	}
	if e.cluster != "" && s.cluster == "" {
		s.cluster = e.cluster
		s.feed.Reset(s.cluster, feed.Position{Index: log.Index})
	}
	results := make([]leasefsm.Result, len(e.commands))
	offset := uint64(0)
	for i, c := range e.commands {
		results[i] = s.record.Apply(c)
		for _, event := range results[i].Events {
			offset++
			s.cfg.trial.apply(event)
			s.feed.Publish(feed.Position{Index: log.Index, Offset: offset}, event)
			if s.reign != nil && s.reign.term == log.Term {
				s.reign.follow(event, results[i].Lease)
			}
		}
	}
	return applied{results: results}
}

// StoreConfiguration is told of every change of the cluster's members. It is
// here so that no entry of a reign goes unnoticed: reads wait for them by index.
func (m machine) StoreConfiguration(index uint64, _ raft.Configuration) {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.advance(index)
}

// advance tells whoever waits for an entry that it has been applied.
func (s *Store) advance(index uint64) {
	s.applied = index
	close(s.progress)
	s.progress = make(chan struct{})
}

const snapshotVersion = 1

// Snapshot begins a copy of the state, which takes no time. It is made while the state goes on changing.
func (m machine) Snapshot() (raft.FSMSnapshot, error) {
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	b := []byte{snapshotVersion}
	b = binary.AppendUvarint(b, s.applied)
	b = binary.AppendUvarint(b, uint64(len(s.cluster)))
	b = append(b, s.cluster...)
	s.unsaved = 0
	return &snapshot{copied: s.copyRecord(), head: b}, nil
}

// bytesPerEntry is what an entry is taken for where entries are counted: one may hold many commands.
const bytesPerEntry = 1 << 10

// noteUnsaved asks for a snapshot when that many bytes have been applied since
// the last one. By itself raft counts entries, and looks every half minute. A
// server that starts has more urgent things to do until it has applied what was there. Called under s.mu.
func (s *Store) noteUnsaved(index uint64, n int) {
	s.unsaved += uint64(n)
	if index <= s.found || s.unsaved < s.cfg.SnapshotEntries*bytesPerEntry {
		return
	}
	select {
	case s.saves <- struct{}{}:
	default:
	}
}

// save takes the snapshots that are asked for.
func (s *Store) save() {
	for {
		select {
		case <-s.saves:
		case <-s.closing.Done():
			return
		}
		s.mu.Lock()
		due := s.unsaved >= s.cfg.SnapshotEntries*bytesPerEntry
		s.mu.Unlock()
		if !due {
			continue // raft has taken one meanwhile
		}
		if err := s.raft.Snapshot().Error(); err != nil {
			s.log.Warn("no snapshot was taken", "err", err)
			s.mu.Lock()
			s.unsaved = 0 // not again at once
			s.mu.Unlock()
		}
	}
}

// copied is a copy of the record that is being made, a little at a time.
type copied struct {
	s    *Store
	copy *leasefsm.Copy
}

// copyRecord begins a copy. Called under s.mu.
func (s *Store) copyRecord() copied { return copied{s, s.record.Copy()} }

// copyStep is how many groups are encoded under the lock at a time: some 100 us.
const copyStep = 128

// bytes makes the copy.
func (c copied) bytes() []byte {
	for more := true; more; {
		c.s.mu.Lock()
		more = c.copy.Next(copyStep)
		c.s.mu.Unlock()
	}
	c.close()
	return c.copy.Bytes()
}

func (c copied) close() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.copy.Close()
}

// Restore replaces the state.
func (m machine) Restore(from io.ReadCloser) error {
	defer from.Close()
	b, err := io.ReadAll(from)
	if err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	if len(b) == 0 || b[0] != snapshotVersion {
		return fmt.Errorf("snapshot of an unknown version: this program knows version %d", snapshotVersion)
	}
	r := reader{b: b[1:]}
	index, cluster := r.uint(), string(r.bytes())
	if r.bad {
		return errors.New("malformed snapshot")
	}
	record, err := leasefsm.Restore(r.b)
	if err != nil {
		return fmt.Errorf("restore snapshot: %w", err)
	}
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record, s.cluster, s.unsaved = record, cluster, 0
	if s.reign != nil {
		s.reign.outdated = true
	}
	s.feed.Reset(cluster, feed.Position{Index: index})
	s.advance(index)
	return nil
}

// snapshot is the state on its way to the disk.
type snapshot struct {
	copied
	head []byte
}

func (n *snapshot) Persist(sink raft.SnapshotSink) error {
	for _, b := range [][]byte{n.head, n.bytes()} {
		if _, err := sink.Write(b); err != nil {
			return errors.Join(fmt.Errorf("write snapshot: %w", err), sink.Cancel())
		}
	}
	return sink.Close()
}

func (n *snapshot) Release() { n.close() }

// follow keeps deadlines and line in step with the record.
func (r *reign) follow(e baton.Event, lease baton.Lease) {
	switch e.Type {
	case baton.LeaderChanged:
		now := r.s.clock.Now()
		// The lease counts from when it was asked for: more is not promised.
		from, ok := r.asked[baton.LeaseID{Group: e.Group, NodeID: e.NodeID, InstanceID: e.InstanceID}]
		if !ok {
			from = now
		}
		r.deadlines.Arm(e.Group, e.Term, lease.TTL, from)
		r.line.Granted(e.Group, baton.Candidate{NodeID: e.NodeID, InstanceID: e.InstanceID})
		r.setAlarm(now)
	case baton.LeaderLost:
		r.deadlines.Drop(e.Group, e.Term)
		if known, ok := r.endings[e.Group]; ok {
			delete(r.endings, e.Group)
			close(known)
		}
		r.line.Open(e.Group, r.s.record.Successor(e.Group), 0)
	}
}
