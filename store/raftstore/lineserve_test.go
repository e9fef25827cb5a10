package raftstore

import (
	"bufio"
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

// A server that does not read loses answers when too many wait for it, and the
// connection with them. Otherwise whoever waits for one of those would wait for ever.
func TestLostAnswerEndsTheLine(t *testing.T) {
	near, far := net.Pipe()
	l := &servedLine{out: newFrameWriter(near)}
	defer l.out.close()
	answer := make([]byte, maxFrame)
	const sent = 2*(maxUnsent/maxFrame+1) + 2 // more than can be under way and wait
	for id := range uint64(sent) {
		l.reply(answered, id, answer)
	}
	_ = far.SetReadDeadline(time.Now().Add(30 * time.Second))
	r, came := bufio.NewReader(far), 0
	for {
		if _, err := readFrame(r); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d of %d answers came, and nothing more", came, sent)
		} else if err != nil {
			break
		}
		came++
	}
	if came >= sent {
		t.Errorf("all %d answers came: none was lost", came)
	}
}
