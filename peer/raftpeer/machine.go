package raftpeer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/hashicorp/raft"

	"baton"
	"baton/internal/feed"
)

// What is replicated: who began to lead, and whether that has ended.

// The operations of a command.
const (
	opBarrier = "barrier"
	opBegin   = "begin"
	opEnd     = "end"
)

// command is one entry of the log.
type command struct {
	Op string `json:"op"`
	// RaftTerm is the one in which a raft leader decided it, and it counts in no
	// other. It is 0 in the end that a holder asks for, whose work has stopped for good.
	RaftTerm uint64            `json:"raft_term"`
	Node     string            `json:"node,omitempty"`
	Instance string            `json:"instance,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Lease    time.Duration     `json:"lease_ns,omitempty"`
	Term     baton.Term        `json:"term,omitempty"`
	Reason   baton.Reason      `json:"reason,omitempty"`
	StampMS  int64             `json:"stamp_ms,omitempty"`
}

// record is the replicated state: the newest begin, and how it ended.
type record struct {
	Term     baton.Term        `json:"term"`
	Node     string            `json:"node"`
	Instance string            `json:"instance"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Lease    time.Duration     `json:"lease_ns"`
	// RaftTerm is that in which it began.
	RaftTerm uint64 `json:"raft_term"`
	// Ended is why it ended; empty while it stands.
	Ended   baton.Reason `json:"ended,omitempty"`
	StampMS int64        `json:"stamp_ms"`
}

// held: somebody began to lead, and did not end.
func (r record) held() bool { return r.Term > 0 && r.Ended == "" }

// errDeposed is the result of what was decided in an earlier raft term than it was committed in.
var errDeposed = errors.New("this node was deposed as raft's leader")

// apply carries out a command that was committed in this raft term.
func (r *record) apply(group string, c command, raftTerm uint64) ([]baton.Event, error) {
	fromHolder := c.Op == opEnd && c.RaftTerm == 0 && c.Reason != baton.Expired
	if c.RaftTerm != raftTerm && !fromHolder {
		return nil, errDeposed
	}
	switch c.Op {
	case opBarrier:
		return nil, nil
	case opBegin:
		return r.begin(group, c)
	case opEnd:
		return r.end(group, c)
	}
	// Replicas that skip what they do not understand stop being replicas.
	panic(fmt.Sprintf("raftpeer: entry with an unknown operation %q", c.Op))
}

func (r *record) begin(group string, c command) ([]baton.Event, error) {
	switch {
	case r.held():
		return nil, &baton.HeldError{Lease: r.lease(group)}
	case r.Term >= baton.MaxTerm:
		return nil, &baton.ConflictError{Reason: baton.ConflictTermsExhausted}
	}
	*r = record{
		Term: r.Term + 1, Node: c.Node, Instance: c.Instance, Metadata: c.Metadata, Lease: c.Lease,
		RaftTerm: c.RaftTerm, StampMS: c.StampMS,
	}
	return []baton.Event{r.event(group)}, nil
}

func (r *record) end(group string, c command) ([]baton.Event, error) {
	current := r.lease(group)
	switch {
	case !r.held() || r.Term != c.Term || r.Instance != c.Instance:
		return nil, &baton.NotLeaderError{ID: baton.LeaseID{Group: group, NodeID: c.Node, InstanceID: c.Instance, Term: c.Term}, Current: &current}
	case c.Reason == baton.Expired && r.RaftTerm >= c.RaftTerm:
		// Only a later raft leader's wait is worth anything.
		return nil, &baton.HeldError{Lease: current}
	}
	r.Ended, r.StampMS = c.Reason, c.StampMS
	return []baton.Event{r.event(group)}, nil
}

func (r *record) lease(group string) baton.Lease {
	l := baton.Lease{Group: group, Term: r.Term}
	if r.held() {
		l.NodeID, l.InstanceID, l.Metadata, l.TTL = r.Node, r.Instance, maps.Clone(r.Metadata), r.Lease
	}
	return l
}

// event is the state as watchers are told it.
func (r *record) event(group string) baton.Event {
	e := baton.Event{Type: baton.LeaderLost, Group: group, Term: r.Term, PreviousNodeID: r.Node, Reason: r.Ended}
	if r.StampMS != 0 {
		e.Time = time.UnixMilli(r.StampMS)
	}
	if r.held() {
		e.Type, e.NodeID, e.InstanceID, e.Metadata, e.PreviousNodeID = baton.LeaderChanged, r.Node, r.Instance, r.Metadata, ""
	}
	return e
}

// machine is the replicated state as raft sees it.
type machine struct{ e *Elector }

var _ raft.FSM = machine{}

// applied is what raft hands back to whoever proposed an entry.
type applied struct {
	record record
	err    error
}

// Apply carries out one entry and returns an applied.
func (m machine) Apply(log *raft.Log) any {
	var c command
	if err := json.Unmarshal(log.Data, &c); err != nil {
		panic(fmt.Sprintf("raftpeer: entry %d: %v", log.Index, err))
	}
	e := m.e
	e.cfg.trial.holdUp()
	e.mu.Lock()
	defer e.mu.Unlock()
	events, err := e.record.apply(e.cfg.Group, c, log.Term)
	for _, event := range events {
		e.publish(log.Index, event)
	}
	return applied{record: e.record, err: err}
}

// Snapshot copies the state.
func (m machine) Snapshot() (raft.FSMSnapshot, error) {
	m.e.mu.Lock()
	defer m.e.mu.Unlock()
	b, err := json.Marshal(m.e.record)
	return snapshot(b), err
}

// Restore replaces the state.
func (m machine) Restore(from io.ReadCloser) error {
	defer func() { _ = from.Close() }() // it was only read
	var r record
	if err := json.NewDecoder(from).Decode(&r); err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	e := m.e
	e.mu.Lock()
	defer e.mu.Unlock()
	e.record = r
	// Positions go on from where this peer was: they are its own.
	e.position.Offset++
	e.feed.Reset(e.cfg.NodeID, e.position)
	e.announce()
	return nil
}

type snapshot []byte

func (b snapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(b); err != nil {
		return errors.Join(fmt.Errorf("write snapshot: %w", err), sink.Cancel())
	}
	return sink.Close()
}

func (snapshot) Release() {}

// publish tells observers, and whoever waits for a change. Called under e.mu.
func (e *Elector) publish(index uint64, event baton.Event) {
	if index > e.position.Index {
		e.position = feed.Position{Index: index}
	}
	e.position.Offset++
	e.feed.Publish(e.position, event)
	e.announce()
}

// announce wakes whoever waits for a change. Called under e.mu.
func (e *Elector) announce() {
	close(e.changed)
	e.changed = make(chan struct{})
}
