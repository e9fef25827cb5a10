package leasefsm

import (
	"crypto/sha256"
	"fmt"

	"baton"
)

// snapshotVersion is the first byte of every snapshot.
const snapshotVersion = 1

// Snapshot encodes the whole record.
func (r *Record) Snapshot() []byte {
	c := r.Copy()
	defer c.Close()
	for c.Next(len(r.groups) + 1) {
	}
	return c.Bytes()
}

// Hash tells one state of the record from another: replicas that applied the
// same commands have the same.
func (r *Record) Hash() [sha256.Size]byte { return sha256.Sum256(r.Snapshot()) }

// Restore reads what Snapshot wrote, all of b. Its errors are of kind
// ErrVersion or ErrMalformed; bytes that would make a record which no commands
// could have made are malformed too.
func Restore(b []byte) (*Record, error) {
	d := &decoder{b: b}
	d.version("snapshot", snapshotVersion)
	r := d.record()
	if err := d.end(); err != nil {
		return nil, fmt.Errorf("restore record: %w", err)
	}
	return r, nil
}

func (g *group) appendTo(b []byte, id string) []byte {
	b = appendGroup(b, baton.Group{ID: id, Policy: g.policy, AllowedNodes: g.allowed, Version: g.version})
	b = appendString(b, g.successor)
	b = appendUint(b, uint64(len(g.past)))
	for i := range g.past {
		b = g.past[i].appendTo(b)
	}
	b = appendBool(b, g.holder != nil)
	if g.holder != nil {
		b = g.holder.appendTo(b)
	}
	return b
}

func (p *pastTerm) appendTo(b []byte) []byte {
	b = appendUint(b, uint64(p.term))
	b = appendString(b, p.nodeID)
	b = appendString(b, p.instanceID)
	b = appendInt(b, p.elected)
	b = appendInt(b, p.ended)
	b = appendInt(b, p.gap)
	b = appendString(b, string(p.reason))
	return appendString(b, p.note)
}

func (h *holder) appendTo(b []byte) []byte {
	b = appendUint(b, uint64(h.term))
	b = appendCandidate(b, baton.Candidate{NodeID: h.nodeID, InstanceID: h.instanceID, Metadata: h.metadata})
	b = appendInt(b, int64(h.ttl))
	b = appendInt(b, h.elected)
	b = appendInt(b, h.gap)
	b = appendBool(b, h.ending != nil)
	if h.ending != nil {
		b = appendEnding(b, *h.ending)
	}
	return b
}

func (d *decoder) record() *Record {
	r := NewRecord()
	r.floor, r.version = d.term(), d.uint()
	d.check(r.floor <= baton.MaxTerm, "a floor of %d", r.floor)
	n := d.count(minGroupBytes)
	last := ""
	for i := 0; i < n && d.err == nil; i++ {
		id, g := d.groupState(r.version)
		d.check(id > last, "groups out of order at %q", id)
		r.groups[id], last = g, id
		if g.holder != nil {
			r.held++
		}
	}
	return r
}

// minGroupBytes is what a group takes at least in a snapshot: an id of one
// byte, seven numbers of one byte each, and no holder.
const minGroupBytes = 10

func (d *decoder) groupState(newest uint64) (string, *group) {
	registered := d.group()
	id := registered.ID
	g := &group{version: registered.Version, policy: registered.Policy, allowed: registered.AllowedNodes, successor: d.string()}
	d.check(g.version <= newest, "group %q at version %d, when the last was %d", id, g.version, newest)
	n := d.count(1)
	d.check(n <= MaxHistory, "group %q with %d past terms", id, n)
	for i := 0; i < n && d.err == nil; i++ {
		p := d.pastTerm()
		d.check(p.term > g.lastTerm(), "group %q goes from term %d to %d", id, g.lastTerm(), p.term)
		g.past = append(g.past, p)
	}
	if d.bool() {
		h := d.holder()
		d.check(h.term > g.lastTerm(), "group %q goes from term %d to %d", id, g.lastTerm(), h.term)
		d.check(g.successor == "", "group %q is held and waits for a successor", id)
		g.holder = &h
	}
	d.check(g.version > 0 || g.lastTerm() > 0, "group %q neither registered nor used", id)
	return id, g
}

func (d *decoder) pastTerm() pastTerm {
	p := pastTerm{
		term:       d.term(),
		nodeID:     d.string(),
		instanceID: d.string(),
		elected:    d.int(),
		ended:      d.int(),
		gap:        d.int(),
		reason:     d.reason(),
		note:       d.string(),
	}
	d.checkLeader(p.term, p.nodeID, p.instanceID)
	d.check(p.elected >= 0 && p.ended >= p.elected && p.gap >= 0, "the times of term %d", p.term)
	return p
}

func (d *decoder) holder() holder {
	h := holder{term: d.term()}
	c := d.candidate()
	h.nodeID, h.instanceID, h.metadata = c.NodeID, c.InstanceID, c.Metadata
	h.ttl, h.elected, h.gap = d.duration(), d.int(), d.int()
	if d.bool() {
		e := d.ending()
		d.check(requireEnding(e) == nil && !e.Immediate, "the ending of term %d", h.term)
		h.ending = &e
	}
	d.checkLeader(h.term, h.nodeID, h.instanceID)
	d.check(h.elected >= 0 && h.gap >= 0, "the times of term %d", h.term)
	d.check(requireTTL("ttl", h.ttl) == nil, "term %d has a ttl of %v", h.term, h.ttl)
	return h
}

// reason returns the constant, so that a history does not hold a copy of the word per term.
func (d *decoder) reason() baton.Reason {
	s := baton.Reason(d.string())
	for _, known := range []baton.Reason{baton.Expired, baton.Resigned, baton.SteppedDown, baton.Transferred} {
		if s == known {
			return known
		}
	}
	d.fail("a leadership that ended by %q", string(s))
	return ""
}

func (d *decoder) checkLeader(term baton.Term, nodeID, instanceID string) {
	d.check(term >= 1 && term <= baton.MaxTerm, "a term of %d", term)
	d.check(nodeID != "" && instanceID != "", "a leader without a name in term %d", term)
}

func (d *decoder) check(ok bool, format string, args ...any) {
	if !ok {
		d.fail(format, args...)
	}
}
