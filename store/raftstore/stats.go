package raftstore

import (
	"time"

	"github.com/hashicorp/raft"
)

// Stats is what this server knows of itself, without asking any other.
type Stats struct {
	Server string
	// Leads: this server leads the cluster, as far as it knows.
	Leads    bool
	RaftTerm uint64
	// LastContact is how long ago the leader was heard of; 0 on the leader.
	LastContact time.Duration
	Commit      uint64
	Applied     uint64
	LastLog     uint64
	// Leases are the live ones; only the leader of the cluster counts them.
	Leases    int
	Served    uint64
	Forwarded uint64
	// Rounds confirmed renewals and reads, Commits changed the state; both on the leader.
	Rounds  Steps
	Commits Steps
	// Writes are those to the log, each with an fsync, Requests being entries.
	Writes    Steps
	Snapshots Steps
}

// Stats reads the counters of this server.
func (s *Store) Stats() Stats {
	st := Stats{
		Server: s.cfg.ID, Leads: s.raft.State() == raft.Leader, RaftTerm: s.raft.CurrentTerm(),
		Commit: s.raft.CommitIndex(), LastLog: s.raft.LastIndex(),
		Served: s.metrics.served.Load(), Forwarded: s.metrics.forwarded.Load(),
		Rounds: s.metrics.rounds.read(), Commits: s.metrics.commits.read(),
	}
	if s.disk != nil {
		st.Writes = s.disk.writes.read()
	}
	if s.snapshots != nil {
		st.Snapshots = s.snapshots.written.read()
	}
	if contact := s.raft.LastContact(); !contact.IsZero() && !st.Leads {
		st.LastContact = time.Since(contact)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Applied = s.applied
	if s.reign != nil {
		st.Leases = s.reign.deadlines.Len()
	}
	return st
}
