package raftpeer

import (
	"sync/atomic"

	"github.com/hashicorp/raft"

	"baton/internal/raftnode"
)

// Traffic is what this peer has sent, by the number of requests; each has one answer.
type Traffic struct {
	// Elections are those that this peer has won in raft.
	Elections uint64
	// Votes asked for, those before a vote among them; Transfers of raft's leadership.
	Votes     uint64
	Transfers uint64
	// Questions are those of confirmations, when there was one last, and whether another peer campaigns.
	Questions uint64
	// Appends are heartbeats and entries.
	Appends uint64
}

// Traffic reads the counters of this peer.
func (e *Elector) Traffic() Traffic {
	t := &e.traffic
	return Traffic{
		Elections: t.elections.Load(), Votes: t.votes.Load(), Transfers: t.transfers.Load(),
		Questions: t.questions.Load(), Appends: t.appends.Load(),
	}
}

type traffic struct{ elections, votes, transfers, questions, appends atomic.Uint64 }

// countedTransport counts what is sent through it, and notes who has all entries.
type countedTransport struct {
	raftnode.Transport
	traffic *traffic
	abreast *abreast
}

func (t *countedTransport) AppendEntries(id raft.ServerID, to raft.ServerAddress, q *raft.AppendEntriesRequest, a *raft.AppendEntriesResponse) error {
	t.traffic.appends.Add(1)
	err := t.Transport.AppendEntries(id, to, q, a)
	if err == nil {
		t.abreast.heard(id, q, a)
	}
	return err
}

func (t *countedTransport) RequestVote(id raft.ServerID, to raft.ServerAddress, q *raft.RequestVoteRequest, a *raft.RequestVoteResponse) error {
	t.traffic.votes.Add(1)
	return t.Transport.RequestVote(id, to, q, a)
}

func (t *countedTransport) RequestPreVote(id raft.ServerID, to raft.ServerAddress, q *raft.RequestPreVoteRequest, a *raft.RequestPreVoteResponse) error {
	t.traffic.votes.Add(1)
	return t.Transport.RequestPreVote(id, to, q, a)
}
