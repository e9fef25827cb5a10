package raftpeer

import (
	"errors"
	"testing"

	"baton"
)

// A raft leader of raft term 5 saw a leadership that began in 6, before it knew that it was deposed itself.
// It decides that this can only be one of its own that is over, is held up, and is raft's leader again, in
// raft term 7, when it proposes the end. The holder trusts its lease meanwhile.
func TestEndDecidedInAnEarlierRaftTerm(t *testing.T) {
	held := record{Term: 9, Node: "n2", Instance: "i9", RaftTerm: 6}
	end := func(raftTerm uint64, reason baton.Reason) command {
		return command{Op: opEnd, RaftTerm: raftTerm, Node: "n2", Instance: "i9", Term: 9, Reason: reason}
	}
	for _, tt := range []struct {
		what      string
		end       command
		committed uint64
		counts    bool
	}{
		{"by a raft leader that was deposed since", end(5, baton.Resigned), 7, false},
		{"expired, by a raft leader that was deposed since", end(5, baton.Expired), 7, false},
		{"expired, by the raft leader that waited for it", end(7, baton.Expired), 7, true},
		{"expired, without a raft leader who waited", end(0, baton.Expired), 7, false},
		{"by the raft leader whose own it was", end(6, baton.Resigned), 6, true},
		{"by its holder, through a later raft leader", end(0, baton.Resigned), 7, true},
	} {
		r := held
		_, err := r.apply("g", tt.end, tt.committed)
		if ended := !r.held(); ended != tt.counts || ended != (err == nil) || err != nil && !errors.Is(err, errDeposed) {
			t.Errorf("%s: ended %v, %v", tt.what, ended, err)
		}
	}
}
