package raftnode

import (
	"cmp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

const timeout = 800 * time.Millisecond // turns are 100ms

// voters is raft on one side of a ballot, and the network on the other.
type voters struct {
	Transport
	consumer chan raft.RPC
	asked    chan time.Duration // when this server's own questions went out
	began    time.Time
}

func (v *voters) Consumer() <-chan raft.RPC { return v.consumer }

func (v *voters) RequestPreVote(raft.ServerID, raft.ServerAddress, *raft.RequestPreVoteRequest, *raft.RequestPreVoteResponse) error {
	v.asked <- time.Since(v.began)
	return nil
}

// candidate asks after that long, and returns when it has its answer.
func (v *voters) candidate(id string, after time.Duration) <-chan time.Duration {
	told := make(chan time.Duration, 1)
	go func() {
		<-time.After(after)
		answers := make(chan raft.RPCResponse, 1)
		v.consumer <- raft.RPC{Command: &raft.RequestPreVoteRequest{RPCHeader: raft.RPCHeader{ID: []byte(id)}}, RespChan: answers}
		<-answers
		told <- time.Since(v.began)
	}()
	return told
}

// answer is raft: it answers at once, yes to all but those it would not vote for.
func (b *Ballot) answer(no string) {
	for {
		select {
		case rpc := <-b.Consumer():
			q := rpc.Command.(*raft.RequestPreVoteRequest)
			rpc.Respond(&raft.RequestPreVoteResponse{Granted: string(q.ID) != no}, nil)
		case <-b.life.Done():
			return
		}
	}
}

// byLot are servers in the order of the lots that they draw in the first term.
func byLot() []string {
	return slices.SortedFunc(slices.Values([]string{"n1", "n2", "n3", "n4"}), func(a, b string) int {
		return cmp.Compare(drawn(raft.ServerID(a), 0).lot, drawn(raft.ServerID(b), 0).lot)
	})
}

func TestBallot(t *testing.T) {
	const ms = time.Millisecond
	names := byLot()
	for _, tt := range []struct {
		name          string
		first, second string
		want          time.Duration // when the second, which asks at 10ms, has its answer
	}{
		{"another waits until the first has been elected", names[0], names[1], 300 * ms},
		{"one that goes before it waits for less", names[1], names[0], 100 * ms},
		{"one that raft would not vote for is in nobody's way", "old", "n3", 10 * ms},
		{"the same again", "n2", "n2", 10 * ms},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := &voters{consumer: make(chan raft.RPC), began: time.Now()}
				b := NewBallot(v, "n9", timeout)
				go b.answer("old")
				first, second := v.candidate(tt.first, 0), v.candidate(tt.second, 10*ms)
				if at := <-first; at != 0 {
					t.Errorf("the first is answered at %v", at)
				}
				if at := <-second; at != tt.want {
					t.Errorf("the second is answered at %v, want %v", at, tt.want)
				}
				b.End()
			})
		})
	}
}

// A server that has let one ask does not ask itself meanwhile; and while it asks, others wait.
func TestBallotOfACandidate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := &voters{consumer: make(chan raft.RPC), asked: make(chan time.Duration, 1), began: time.Now()}
		names := byLot()
		b := NewBallot(v, raft.ServerID(names[1]), timeout)
		go b.answer("")
		<-v.candidate(names[0], 0)
		if err := b.RequestPreVote("n1", "", &raft.RequestPreVoteRequest{}, nil); err != nil {
			t.Fatal(err)
		}
		if at := <-v.asked; at != 300*time.Millisecond {
			t.Errorf("asked at %v", at)
		}
		if at := <-v.candidate(names[2], 0); at != 600*time.Millisecond {
			t.Errorf("another was answered at %v", at)
		}
		waits := make(chan error, 1)
		go func() { waits <- b.RequestPreVote("n1", "", &raft.RequestPreVoteRequest{}, nil) }()
		synctest.Wait()
		b.End()
		if err := <-waits; err == nil {
			t.Error("asked after the end")
		}
	})
}

// Whose turn it is differs from term to term, or the same would always wait for longer.
func TestLotsAreDrawnAnew(t *testing.T) {
	firsts := map[raft.ServerID]int{}
	for term := range uint64(300) {
		a, b, c := drawn("n1", term), drawn("n2", term), drawn("n3", term)
		firsts[slices.MinFunc([]candidate{a, b, c}, func(x, y candidate) int { return cmp.Compare(x.lot, y.lot) }).id]++
	}
	for _, id := range []raft.ServerID{"n1", "n2", "n3"} {
		if firsts[id] < 50 {
			t.Errorf("%s goes first in %d of 300 terms", id, firsts[id])
		}
	}
}
