package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"baton/internal/leasefsm"
)

// entry is what one raft log entry holds: many commands, and the raft term in
// which they were decided on. An entry that is committed in another term than that was
// decided on by a leader that has been deposed since, and changes nothing.
type entry struct {
	term uint64
	// cluster is set in the first entry of a reign: the name of the cluster, if it has none yet.
	cluster  string
	commands []leasefsm.Command
}

const entryVersion = 1

var errEntry = errors.New("malformed raft entry")

func (e entry) encode() []byte {
	b := []byte{entryVersion}
	b = binary.AppendUvarint(b, e.term)
	b = binary.AppendUvarint(b, uint64(len(e.cluster)))
	b = append(b, e.cluster...)
	b = binary.AppendUvarint(b, uint64(len(e.commands)))
	var one []byte
	for _, c := range e.commands {
		one = leasefsm.AppendCommand(one[:0], c)
		b = binary.AppendUvarint(b, uint64(len(one)))
		b = append(b, one...)
	}
	return b
}

func decodeEntry(b []byte) (entry, error) {
	if len(b) == 0 {
		return entry{}, fmt.Errorf("%w: it is empty", errEntry)
	}
	if b[0] != entryVersion {
		return entry{}, fmt.Errorf("raft entry of version %d: this program knows version %d and needs an upgrade", b[0], entryVersion)
	}
	r := reader{b: b[1:]}
	e := entry{term: r.uint(), cluster: string(r.bytes())}
	n := r.uint()
	for range n {
		if r.bad {
			break
		}
		c, err := leasefsm.DecodeCommand(r.bytes())
		if err != nil {
			return entry{}, fmt.Errorf("raft entry: %w", err)
		}
		e.commands = append(e.commands, c)
	}
	if r.bad || len(r.b) > 0 {
		return entry{}, errEntry
	}
	return e, nil
}

// reader takes apart what encode put together.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes() []byte {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}
