package raftnode

import (
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Attendance says in the log, once, that a server is away, and that it is back.
type Attendance struct {
	log  *slog.Logger
	word string
	// patience is how long a server may leave everything unanswered.
	patience time.Duration

	mu sync.Mutex
	// followed is when this server last was one that follows.
	followed time.Time
	calls    map[raft.ServerID]*roll
}

// roll is what is known of one server.
type roll struct {
	answered time.Time // when it last did
	// silent is when the first request after that was sent which came to nothing.
	silent time.Time
	said   bool
}

// NewAttendance begins with nobody missed. The log calls one of them word.
func NewAttendance(log *slog.Logger, word string, patience time.Duration) *Attendance {
	return &Attendance{log: log, word: word, patience: patience, calls: map[raft.ServerID]*roll{}}
}

// Heard takes note of how a request to a server that was sent then came out.
func (a *Attendance) Heard(id raft.ServerID, sent time.Time, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.calls[id]
	if c == nil {
		c = &roll{}
		a.calls[id] = c
	}
	if err == nil {
		if c.said {
			a.log.Info("a "+a.word+" is back", "id", id, "away", time.Since(c.silent).Round(time.Millisecond))
		}
		*c = roll{answered: time.Now()}
		return
	}
	if sent.Before(c.answered) || sent.Before(a.followed) {
		return // old news
	}
	if c.silent.IsZero() {
		c.silent = sent
	}
	if !c.said && time.Since(c.silent) > a.patience {
		c.said = true
		a.log.Warn("a "+a.word+" is away", "id", id, "err", err)
	}
}

// Forget is for a server that follows: it sends nothing, and does not see who is back.
func (a *Attendance) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.followed = time.Now()
	clear(a.calls)
}

// Transport is what raft needs of one, its vote before the vote included.
type Transport interface {
	raft.Transport
	raft.WithPreVote
}

// Attended is a transport that takes note of who answers.
type Attended struct {
	Transport
	By *Attendance
}

// AppendEntries sends a heartbeat, or entries.
func (t Attended) AppendEntries(id raft.ServerID, to raft.ServerAddress, q *raft.AppendEntriesRequest, a *raft.AppendEntriesResponse) error {
	sent := time.Now()
	err := t.Transport.AppendEntries(id, to, q, a)
	t.By.Heard(id, sent, err)
	return err
}

// RequestVote asks for a vote.
func (t Attended) RequestVote(id raft.ServerID, to raft.ServerAddress, q *raft.RequestVoteRequest, a *raft.RequestVoteResponse) error {
	sent := time.Now()
	err := t.Transport.RequestVote(id, to, q, a)
	t.By.Heard(id, sent, err)
	return err
}

// RequestPreVote asks whether there would be one.
func (t Attended) RequestPreVote(id raft.ServerID, to raft.ServerAddress, q *raft.RequestPreVoteRequest, a *raft.RequestPreVoteResponse) error {
	sent := time.Now()
	err := t.Transport.RequestPreVote(id, to, q, a)
	t.By.Heard(id, sent, err)
	return err
}
