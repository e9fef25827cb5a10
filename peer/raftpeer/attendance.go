package raftpeer

import (
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// attendance says in the log, once, that a peer is away, and that it is back.
type attendance struct {
	log *slog.Logger
	// patience is how long a peer may leave everything unanswered.
	patience time.Duration

	mu sync.Mutex
	// followed is when this peer last was one that follows.
	followed time.Time
	calls    map[raft.ServerID]*call
}

// call is what is known of one peer.
type call struct {
	answered time.Time // when it last did
	// silent is when the first request after that was sent which came to nothing.
	silent time.Time
	said   bool
}

func newAttendance(log *slog.Logger, patience time.Duration) *attendance {
	return &attendance{log: log, patience: patience, calls: map[raft.ServerID]*call{}}
}

// heard takes note of how a request to a peer that was sent then came out.
func (a *attendance) heard(id raft.ServerID, sent time.Time, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.calls[id]
	if c == nil {
		c = &call{}
		a.calls[id] = c
	}
	if err == nil {
		if c.said {
			a.log.Info("a peer is back", "peer", id, "away", time.Since(c.silent).Round(time.Millisecond))
		}
		*c = call{answered: time.Now()}
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
		a.log.Warn("a peer is away", "peer", id, "err", err)
	}
}

// forget is for a peer that follows: it sends nothing, and does not see who is back.
func (a *attendance) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.followed = time.Now()
	clear(a.calls)
}

// calmLog is raft's log without what raft says again and again while a peer is away.
// That is for debugging: the peer itself says once what an operator has to know.
type calmLog struct{ hclog.Logger }

var repeated = map[string]bool{
	"failed to heartbeat to":                                     true,
	"failed to appendEntries to":                                 true,
	"failed to contact":                                          true,
	"failed to make requestVote RPC":                             true,
	"heartbeat timeout reached, starting election":               true,
	"Election timeout reached, restarting election":              true,
	"rejecting pre-vote request since we have a leader":          true,
	"rejecting vote request since we have a leader":              true,
	"rejecting pre-vote request since our last index is greater": true,
}

// Warn demotes what is repeated: raft's info is debug in the program's log.
func (l calmLog) Warn(msg string, args ...any) {
	if repeated[msg] {
		l.Info(msg, args...)
		return
	}
	l.Logger.Warn(msg, args...)
}

// Error is as Warn.
func (l calmLog) Error(msg string, args ...any) {
	if repeated[msg] {
		l.Info(msg, args...)
		return
	}
	l.Logger.Error(msg, args...)
}
