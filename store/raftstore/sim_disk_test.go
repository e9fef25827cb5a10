package raftstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"

	"github.com/hashicorp/raft"

	"baton/internal/leasefsm"

	"baton/internal/freeze"
)

// simDisk is what a simulated server has written: log, votes and snapshots.
// A crash leaves a copy of what was written by then, to start from.
type simDisk struct {
	gate *freeze.Gate // a frozen process writes nothing

	mu          sync.Mutex
	first, last uint64
	logs        map[uint64]raft.Log
	kv          map[string][]byte
	numbers     map[string]uint64
	snapshots   []*simSnapshot // the newest last
	fail        error          // what every write ends with
	stored      func(raft.Log) // is told of every entry that was written
}

func newSimDisk(g *freeze.Gate) *simDisk {
	return &simDisk{gate: g, logs: map[uint64]raft.Log{}, kv: map[string][]byte{}, numbers: map[string]uint64{}}
}

// image is the disk as it is now, for whoever starts next.
func (d *simDisk) image(g *freeze.Gate) *simDisk {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &simDisk{
		gate: g, first: d.first, last: d.last, logs: maps.Clone(d.logs), kv: maps.Clone(d.kv),
		numbers: maps.Clone(d.numbers), snapshots: append([]*simSnapshot(nil), d.snapshots...),
	}
}

func (d *simDisk) FirstIndex() (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.first, nil
}

func (d *simDisk) LastIndex() (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last, nil
}

func (d *simDisk) GetLog(index uint64, log *raft.Log) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, ok := d.logs[index]
	if !ok {
		return raft.ErrLogNotFound
	}
	*log = l
	return nil
}

func (d *simDisk) StoreLog(log *raft.Log) error { return d.StoreLogs([]*raft.Log{log}) }

func (d *simDisk) StoreLogs(logs []*raft.Log) error {
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

func (d *simDisk) DeleteRange(from, to uint64) error {
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

func (d *simDisk) Set(key, val []byte) error {
	d.gate.Pass()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kv[string(key)] = bytes.Clone(val)
	return d.fail
}

func (d *simDisk) Get(key []byte) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v, ok := d.kv[string(key)]; ok {
		return v, nil
	}
	return nil, errors.New("not found")
}

func (d *simDisk) SetUint64(key []byte, val uint64) error {
	d.gate.Pass()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.numbers[string(key)] = val
	return nil
}

func (d *simDisk) GetUint64(key []byte) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.numbers[string(key)], nil
}

// whenStored calls f with every command that is written from now on.
func (d *simDisk) whenStored(f func(leasefsm.Command)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stored = func(l raft.Log) {
		if e, err := decodeEntry(l.Data); l.Type == raft.LogCommand && err == nil {
			for _, c := range e.commands {
				f(c)
			}
		}
	}
}

// simSnapshot becomes one of the disk's when it is closed.
type simSnapshot struct {
	bytes.Buffer
	disk *simDisk
	meta raft.SnapshotMeta
}

func (d *simDisk) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration, configIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	return &simSnapshot{disk: d, meta: raft.SnapshotMeta{
		Version: v, ID: fmt.Sprintf("%d-%d", term, index), Index: index, Term: term, Configuration: c, ConfigurationIndex: configIndex,
	}}, nil
}

func (d *simDisk) List() ([]*raft.SnapshotMeta, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.snapshots) == 0 {
		return nil, nil
	}
	meta := d.snapshots[len(d.snapshots)-1].meta
	return []*raft.SnapshotMeta{&meta}, nil
}

func (d *simDisk) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
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

func (s *simSnapshot) ID() string    { return s.meta.ID }
func (s *simSnapshot) Cancel() error { return nil }

func (s *simSnapshot) Close() error {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	s.meta.Size = int64(s.Len())
	s.disk.snapshots = append(s.disk.snapshots, s)
	return nil
}
