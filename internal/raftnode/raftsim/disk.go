package raftsim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"

	"github.com/hashicorp/raft"

	"baton/internal/freeze"
)

// Disk is what a simulated server has written: log, votes and snapshots.
// A crash leaves a copy of what was written by then, to start from.
type Disk struct {
	gate *freeze.Gate // a frozen process writes nothing

	mu          sync.Mutex
	first, last uint64
	logs        map[uint64]raft.Log
	kv          map[string][]byte
	numbers     map[string]uint64
	snapshots   []*snapshot    // the newest last
	fail        error          // what every write ends with
	stored      func(raft.Log) // is told of every entry that was written
}

// NewDisk returns an empty one.
func NewDisk(g *freeze.Gate) *Disk {
	return &Disk{gate: g, logs: map[uint64]raft.Log{}, kv: map[string][]byte{}, numbers: map[string]uint64{}}
}

// Image is the disk as it is now, for whoever starts next.
func (d *Disk) Image(g *freeze.Gate) *Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &Disk{
		gate: g, first: d.first, last: d.last, logs: maps.Clone(d.logs), kv: maps.Clone(d.kv),
		numbers: maps.Clone(d.numbers), snapshots: append([]*snapshot(nil), d.snapshots...),
	}
}

// FirstIndex is that of the oldest entry, 0 if there is none.
func (d *Disk) FirstIndex() (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.first, nil
}

// LastIndex is that of the newest entry, 0 if there is none.
func (d *Disk) LastIndex() (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last, nil
}

// GetLog reads an entry.
func (d *Disk) GetLog(index uint64, log *raft.Log) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, ok := d.logs[index]
	if !ok {
		return raft.ErrLogNotFound
	}
	*log = l
	return nil
}

// StoreLog writes an entry.
func (d *Disk) StoreLog(log *raft.Log) error { return d.StoreLogs([]*raft.Log{log}) }

// StoreLogs writes entries.
func (d *Disk) StoreLogs(logs []*raft.Log) error {
	d.gate.Pass()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return d.fail
	}
	for _, l := range logs {
		d.logs[l.Index] = *l
		if d.first == 0 {
			d.first = l.Index
		}
		d.last = max(d.last, l.Index)
		if d.stored != nil {
			d.stored(*l)
		}
	}
	return nil
}

// DeleteRange forgets entries.
func (d *Disk) DeleteRange(from, to uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := from; i <= to; i++ {
		delete(d.logs, i)
	}
	if from <= d.first {
		d.first = to + 1
	}
	if to >= d.last {
		d.last = from - 1
	}
	if d.first > d.last {
		d.first, d.last = 0, 0
	}
	return nil
}

// Set writes a value.
func (d *Disk) Set(key, val []byte) error {
	d.gate.Pass()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kv[string(key)] = bytes.Clone(val)
	return d.fail
}

// Get reads a value.
func (d *Disk) Get(key []byte) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v, ok := d.kv[string(key)]; ok {
		return v, nil
	}
	return nil, errors.New("not found")
}

// SetUint64 writes a number.
func (d *Disk) SetUint64(key []byte, val uint64) error {
	d.gate.Pass()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.numbers[string(key)] = val
	return nil
}

// GetUint64 reads a number.
func (d *Disk) GetUint64(key []byte) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.numbers[string(key)], nil
}

// WhenStored calls f with every entry that is written from now on.
func (d *Disk) WhenStored(f func(raft.Log)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stored = f
}

// Fail makes every write end with err from now on.
func (d *Disk) Fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
}

// Snapshots is how many there are.
func (d *Disk) Snapshots() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.snapshots)
}

// snapshot becomes one of the disk's when it is closed.
type snapshot struct {
	bytes.Buffer
	disk *Disk
	meta raft.SnapshotMeta
}

// Create begins a snapshot.
func (d *Disk) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, configIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &snapshot{disk: d, meta: raft.SnapshotMeta{
		Version: v, ID: fmt.Sprintf("%d-%d", term, index), Index: index, Term: term, Configuration: c, ConfigurationIndex: configIndex,
	}}, nil
}

// List names the newest snapshot.
func (d *Disk) List() ([]*raft.SnapshotMeta, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.snapshots) == 0 {
		return nil, nil
	}
	meta := d.snapshots[len(d.snapshots)-1].meta
	return []*raft.SnapshotMeta{&meta}, nil
}

// Open reads a snapshot.
func (d *Disk) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.snapshots {
		if s.meta.ID == id {
			meta := s.meta
			return &meta, io.NopCloser(bytes.NewReader(s.Bytes())), nil
		}
	}
	return nil, nil, fmt.Errorf("no snapshot %s", id)
}

func (s *snapshot) ID() string    { return s.meta.ID }
func (s *snapshot) Cancel() error { return nil }

func (s *snapshot) Close() error {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	s.meta.Size = int64(s.Len())
	s.disk.snapshots = append(s.disk.snapshots, s)
	return nil
}
