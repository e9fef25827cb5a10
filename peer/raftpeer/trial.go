package raftpeer

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"baton"
)

// trial is how tests look inside a peer, hold it up, and break it. It is nil
// outside of them.
type trial struct {
	// hold is called without locks where a process that is frozen does most harm.
	hold func()
	// trust is told until when, on the peer's clock, a term is trusted; ended that its work has stopped.
	trust func(term baton.Term, until time.Duration)
	ended func(term baton.Term)
	// raftLog stands between raft and its log.
	raftLog func(hclog.Logger) hclog.Logger

	flaws flaws
	ch    atomic.Bool // the last that LeaderCh said
}

// flaws are what a broken peer would do. Each of these has to be caught; the last is slow, and not wrong.
type flaws struct {
	noWait         bool // a new raft leader begins without a wait
	fromReceipt    bool // trust counts from when the answers came
	verifiesLeader bool // raft.VerifyLeader in place of the own round
	believesCh     bool // LeaderCh in place of the own round
	trustsBegin    bool // the commit of a begin is the first round
	forgets        bool // a new process takes it that the one before has not vouched for long
	recallsAlone   bool // a new raft leader asks nobody when they vouched
	ownUnnoted     bool // a leader that counts itself does not note that it vouched
	splitsVotes    bool // candidates ask for votes whoever else does
}

func (t *trial) holdUp() {
	if t != nil && t.hold != nil {
		t.hold()
	}
}

func (t *trial) logOf(l hclog.Logger) hclog.Logger {
	if t != nil && t.raftLog != nil {
		return t.raftLog(l)
	}
	return l
}

func (t *trial) trusts(term baton.Term, until time.Duration) {
	if t != nil && t.trust != nil {
		t.trust(term, until)
	}
}

func (t *trial) over(term baton.Term) {
	if t != nil && t.ended != nil {
		t.ended(term)
	}
}

func (t *trial) leaderCh(leader bool) {
	if t != nil {
		t.ch.Store(leader)
	}
}

func (t *trial) startsAtOnce() bool  { return t != nil && t.flaws.noWait }
func (t *trial) trustsReceipt() bool { return t != nil && t.flaws.fromReceipt }
func (t *trial) trustsBegin() bool   { return t != nil && t.flaws.trustsBegin }
func (t *trial) asksNobody() bool    { return t != nil && t.flaws.recallsAlone }
func (t *trial) splits() bool        { return t != nil && t.flaws.splitsVotes }
func (t *trial) forgetsItself() bool { return t != nil && t.flaws.ownUnnoted }

// startedAt is when a process began, as far as it remembers.
func (t *trial) startedAt(now time.Duration) time.Duration {
	if t != nil && t.flaws.forgets {
		return now - time.Hour
	}
	return now
}

// confirmation is what a broken peer does in place of a round; nil for the others.
func (t *trial) confirmation(r *raft.Raft) func() error {
	switch {
	case t == nil:
		return nil
	case t.flaws.verifiesLeader:
		return func() error { return r.VerifyLeader().Error() }
	case t.flaws.believesCh:
		return func() error {
			if !t.ch.Load() {
				return errors.New("not the leader, as the channel has it")
			}
			return nil
		}
	}
	return nil
}
