package leasefsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"baton"
)

// The encoding is canonical: what is read without an error was written by
// these functions, byte for byte, so equal records have equal snapshots and
// their hashes can be compared. Numbers are varints of the shortest form, strings are
// prefixed by their length, maps are sorted by key.

var (
	// ErrVersion: the bytes were written by a newer version of this program.
	ErrVersion = errors.New("written by a newer version")
	// ErrMalformed: the bytes are not an encoding at all.
	ErrMalformed = errors.New("malformed encoding")
)

func appendUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

func appendInt(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendString(b []byte, s string) []byte {
	return append(appendUint(b, uint64(len(s))), s...)
}

func appendStrings(b []byte, list []string) []byte {
	b = appendUint(b, uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

func appendMap(b []byte, m map[string]string) []byte {
	b = appendUint(b, uint64(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = appendString(appendString(b, k), m[k])
	}
	return b
}

func appendCandidate(b []byte, c baton.Candidate) []byte {
	b = appendString(b, c.NodeID)
	b = appendString(b, c.InstanceID)
	return appendMap(b, c.Metadata)
}

func appendLeaseID(b []byte, id baton.LeaseID) []byte {
	b = appendString(b, id.Group)
	b = appendString(b, id.NodeID)
	b = appendString(b, id.InstanceID)
	return appendUint(b, uint64(id.Term))
}

func appendEnding(b []byte, e baton.Ending) []byte {
	b = appendString(b, string(e.Reason))
	b = appendString(b, e.Note)
	b = appendString(b, e.Successor)
	return appendBool(b, e.Immediate)
}

func appendGroup(b []byte, g baton.Group) []byte {
	b = appendString(b, g.ID)
	b = appendInt(b, int64(g.Policy.MinTTL))
	b = appendInt(b, int64(g.Policy.MaxTTL))
	b = appendInt(b, int64(g.Policy.RetryAfter))
	b = appendStrings(b, g.AllowedNodes)
	return appendUint(b, g.Version)
}

// decoder reads fields off the front of b. After the first error it reads
// zeros, so callers look at err once, at the end; loops over a count that was read
// look at it in every turn.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
		d.b = nil
	}
}

// end is the error, if anything was wrong or is left over.
func (d *decoder) end() error {
	if n := len(d.b); n > 0 {
		d.fail("%d bytes after the end", n)
	}
	return d.err
}

// version reads the first byte of an encoding of what.
func (d *decoder) version(what string, newest byte) {
	v := d.byte()
	switch {
	case d.err != nil:
	case v == 0:
		d.fail("%s of version 0", what)
	case v > newest:
		d.err = fmt.Errorf("%w: this %s has version %d, and %d is the newest known here", ErrVersion, what, v, newest)
		d.b = nil
	}
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail("it ends early")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) bool() bool {
	v := d.byte()
	if v > 1 {
		d.fail("a boolean of %d", v)
	}
	return v == 1
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 {
		d.fail("a bad number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 {
		d.fail("a bad number")
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) term() baton.Term { return baton.Term(d.uint()) }

func (d *decoder) string() string {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail("a string of %d bytes where %d are left", n, len(d.b))
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

// count reads how many items follow, each of at least size bytes, so that a
// hostile count cannot make anyone allocate more than the input's own size warrants.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > uint64(len(d.b)/size) {
		d.fail("%d items where %d bytes are left", n, len(d.b))
		return 0
	}
	return int(n)
}

func (d *decoder) strings() []string {
	n := d.count(1)
	if n == 0 {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, d.string())
	}
	return list
}

func (d *decoder) stringMap() map[string]string {
	n := d.count(2)
	if n == 0 {
		return nil
	}
	m := make(map[string]string, n)
	last := ""
	for i := range n {
		k := d.string()
		if i > 0 && k <= last {
			d.fail("keys out of order")
			return nil
		}
		m[k], last = d.string(), k
	}
	return m
}

func (d *decoder) candidate() baton.Candidate {
	return baton.Candidate{NodeID: d.string(), InstanceID: d.string(), Metadata: d.stringMap()}
}

func (d *decoder) leaseID() baton.LeaseID {
	return baton.LeaseID{Group: d.string(), NodeID: d.string(), InstanceID: d.string(), Term: d.term()}
}

func (d *decoder) ending() baton.Ending {
	return baton.Ending{Reason: baton.Reason(d.string()), Note: d.string(), Successor: d.string(), Immediate: d.bool()}
}
