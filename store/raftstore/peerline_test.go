package raftstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"baton/internal/raftnode"
)

// otherServer accepts lines and hands each of them to serve, which answers what it likes.
type otherServer struct {
	address string
	lines   chan net.Conn // has every line that was accepted
}

func newOtherServer(t *testing.T, serve func(out *frameWriter, f frame)) *otherServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &otherServer{address: l.Addr().String(), lines: make(chan net.Conn, 100)}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				r := bufio.NewReader(conn)
				if _, err := http.ReadRequest(r); err != nil {
					return
				}
				_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\n\r\n"))
				o.lines <- conn
				out := newFrameWriter(conn)
				defer out.close()
				for {
					f, err := readFrame(r)
					if err != nil {
						return
					}
					serve(out, f)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return o
}

func newTestLines(t *testing.T) *lines {
	l := newLines((&net.Dialer{}).DialContext)
	t.Cleanup(l.close)
	return l
}

// Every question gets its own answer, however many are under way and in whatever order they are answered.
func TestLineAnswersEachItsOwn(t *testing.T) {
	var mu sync.Mutex
	var kept []frame
	o := newOtherServer(t, func(out *frameWriter, f frame) {
		mu.Lock()
		defer mu.Unlock()
		if kept = append(kept, f); len(kept) == 50 {
			for i := range kept { // the last comes first
				f := kept[len(kept)-1-i]
				_ = out.send(frame{answered, f.id, f.body})
			}
			kept = nil
		}
	})
	l := newTestLines(t)
	var all sync.WaitGroup
	for i := range 500 {
		all.Go(func() {
			want := fmt.Sprint("question ", i)
			got, err := l.ask(t.Context(), raftnode.Addressee{Address: o.address}, askCall, []byte(want))
			if err != nil || string(got) != want {
				t.Errorf("%q was answered %q, %v", want, got, err)
			}
		})
	}
	all.Wait()
	if n := len(o.lines); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// A question whose line breaks has no answer, and the next one gets a new line.
func TestLineThatBreaks(t *testing.T) {
	asked := make(chan struct{}, 1)
	o := newOtherServer(t, func(out *frameWriter, f frame) {
		if string(f.body) == "hang" {
			asked <- struct{}{}
			return
		}
		_ = out.send(frame{answered, f.id, f.body})
	})
	l := newTestLines(t)
	to := raftnode.Addressee{Address: o.address}
	answer := make(chan error)
	go func() {
		_, err := l.ask(t.Context(), to, askCall, []byte("hang"))
		answer <- err
	}()
	<-asked
	_ = (<-o.lines).Close()
	if err := <-answer; !errors.Is(err, errBroken) {
		t.Errorf("answered %v", err)
	}
	if _, err := l.ask(t.Context(), to, askCall, []byte("again")); err != nil {
		t.Errorf("on a new line: %v", err)
	}
}

// A line on which nothing comes is not waited for twice: after a question that was not
// answered in time, the next one has another.
func TestLineThatIsSilent(t *testing.T) {
	o := newOtherServer(t, func(*frameWriter, frame) {})
	l := newTestLines(t)
	to := raftnode.Addressee{Address: o.address}
	for range 2 {
		line, err := l.line(to)
		if err != nil {
			t.Fatal(err)
		}
		<-line.connected
		for asked := false; !asked; { // one that is too late to be asked says nothing of the line
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			if _, err := l.ask(ctx, to, askTerm, nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("answered %v", err)
			}
			cancel()
			line.mu.Lock()
			asked = line.last > 0
			line.mu.Unlock()
		}
		if next, err := l.line(to); err != nil || next == line {
			t.Errorf("the same line again: %v", err)
		}
	}
}

// A request that never went out, because the line could not be made, is one to take to the next leader.
func TestLineThatIsNotMade(t *testing.T) {
	stranger := httptest.NewServer(http.NotFoundHandler()) // where no lines are made
	defer stranger.Close()
	peers := newHTTPPeers((&net.Dialer{}).DialContext)
	defer peers.Close()
	_, err := peers.call(t.Context(), raftnode.Addressee{Address: stranger.Listener.Addr().String()}, request{Op: "get", Group: "g"})
	var elsewhere *notServing
	if !errors.As(err, &elsewhere) {
		t.Errorf("answered %v", err)
	}
}
