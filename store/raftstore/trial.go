package raftstore

import "baton"

// trial is how tests look inside a server, hold it up, and break it. It is nil
// outside of them.
type trial struct {
	// hold is called without locks where a process that is frozen does most harm.
	hold func()
	// answered is told of every answer as it leaves, applied of every event as it is applied.
	answered func(q request, a response, err error)
	applied  func(e baton.Event)

	// What a broken store would do. Each of these has to be caught.
	acknowledgesClosed bool // an extension is acknowledged without a look at whether its lease is being ended
	endsOpen           bool // what is being ended can still be renewed
	armsFirst          bool // a new leader arms and serves before its first entry is committed
	verifiesLeader     bool // raft.VerifyLeader in place of a round
	promisesLatest     bool // an answer acknowledges a deadline that later requests have moved
}

// broken is how programs are built that are to fail: see the files with tags. It is nil in all others.
var broken *trial

func (t *trial) holdUp() {
	if t != nil && t.hold != nil {
		t.hold()
	}
}

func (t *trial) answer(q request, a response, err error) {
	if t != nil && t.answered != nil {
		t.answered(q, a, err)
	}
}

func (t *trial) apply(e baton.Event) {
	if t != nil && t.applied != nil {
		t.applied(e)
	}
}
