package raftstore

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// What servers ask each other again and again goes over one connection in each
// direction, on which many questions are under way at once: frames, each with the number
// of its question. What collects while one write is under way is sent with the next.

// frame is one message.
type frame struct {
	kind byte
	id   uint64 // of the question
	body []byte
}

const (
	askTerm  byte = iota + 1 // for the raft term
	askCall                  // a request, to whoever leads the cluster
	giveUp                   // nobody waits for the answer any more
	answered                 // the answer to either
	notMeant                 // the question was meant for another server
)

const (
	frameHead = 4 + 1 + 8
	// maxFrame is far above what a request or an answer with all its limits exhausted takes.
	maxFrame = maxCall
	// maxUnsent is how much may wait for a peer that does not read.
	maxUnsent = 16 << 20
)

var errUnsent = errors.New("the other server does not read")

func readFrame(r *bufio.Reader) (frame, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return frame{}, fmt.Errorf("a message of %d bytes between servers", n)
	}
	f := frame{kind: head[4], id: binary.BigEndian.Uint64(head[5:])}
	if n > 0 {
		f.body = make([]byte, n)
		if _, err := io.ReadFull(r, f.body); err != nil {
			return frame{}, err
		}
	}
	return f, nil
}

// frameWriter sends frames in the order in which they were given to it. Nobody
// who gives it one has to wait for the network.
type frameWriter struct {
	conn net.Conn

	mu      sync.Mutex
	unsent  []byte
	wake    chan struct{} // has room for one
	closed  bool
	stopped chan struct{} // closed when nothing is sent any more
}

func newFrameWriter(conn net.Conn) *frameWriter {
	w := &frameWriter{conn: conn, wake: make(chan struct{}, 1), stopped: make(chan struct{})}
	go w.run() // close waits for it
	return w
}

func (w *frameWriter) send(f frame) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return net.ErrClosed
	case len(w.unsent) > maxUnsent:
		return errUnsent
	case len(f.body) > maxFrame:
		return fmt.Errorf("a message of %d bytes for another server", len(f.body))
	}
	w.unsent = binary.BigEndian.AppendUint32(w.unsent, uint32(len(f.body)))
	w.unsent = append(w.unsent, f.kind)
	w.unsent = binary.BigEndian.AppendUint64(w.unsent, f.id)
	w.unsent = append(w.unsent, f.body...)
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return nil
}

func (w *frameWriter) run() {
	defer close(w.stopped)
	var sending []byte
	for range w.wake {
		w.mu.Lock()
		sending, w.unsent = w.unsent, sending[:0]
		w.mu.Unlock()
		if _, err := w.conn.Write(sending); err != nil {
			_ = w.conn.Close() // whoever reads it learns of it there
			return
		}
	}
}

// close ends the connection.
func (w *frameWriter) close() {
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.wake)
	}
	w.mu.Unlock()
	_ = w.conn.Close()
	<-w.stopped
}
