package remotestore_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"baton/api"
	"baton/store/remotestore"
)

const vacantGroup = `{"leader":null,"term":7}`

func plainAnswer(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// scripted answers every request with what is next, byte for byte, and closes the connection
// where that is "". It counts connections.
type scripted struct {
	net.Listener
	answers     chan string
	hungUp      chan<- struct{} // if not nil, it hangs up after each answer, and says so here
	connections atomic.Int64
}

func newScripted(t *testing.T, answers ...string) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{Listener: l, answers: make(chan string, len(answers))}
	for _, a := range answers {
		s.answers <- a
	}
	close(s.answers)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.connections.Add(1)
			serving.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return s
}

func (s *scripted) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	for {
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		a := <-s.answers
		if a == "" {
			return
		}
		if _, err := conn.Write([]byte(a)); err != nil {
			return
		}
		if s.hungUp != nil {
			_ = conn.Close()
			s.hungUp <- struct{}{}
			return
		}
		if strings.Contains(a, "Connection: close") {
			return
		}
	}
}

func (s *scripted) client(t *testing.T) *remotestore.Client {
	return openClient(t, remotestore.Config{Servers: []string{s.Addr().String()}})
}

func TestAnswersOfAllShapes(t *testing.T) {
	chunked := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
		fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(vacantGroup), vacantGroup)
	for _, tc := range []struct {
		name        string
		answer      string
		connections int64
	}{
		{"with a length", plainAnswer(vacantGroup), 1},
		{"in chunks", chunked, 1},
		{"after others that are none yet", "HTTP/1.1 103 Early Hints\r\n\r\n" + plainAnswer(vacantGroup), 1},
		{"and it hangs up", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n\r\n" + vacantGroup, 3},
		{"with something nobody asked for", plainAnswer(vacantGroup) + "HTTP/1.1 200 OK\r\n", 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScripted(t, tc.answer, tc.answer, tc.answer)
			c := s.client(t)
			for range 3 {
				if l, err := c.Leader(within(t), "g"); err != nil || l.Term != 7 {
					t.Fatalf("%+v, %v", l, err)
				}
			}
			if n := s.connections.Load(); n != tc.connections {
				t.Errorf("%d connections for 3 requests, want %d", n, tc.connections)
			}
		})
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for name, answer := range map[string]string{
		"cut off":           "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n" + vacantGroup,
		"not HTTP":          "Connection: close\r\n\r\n",
		"a head and no end": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 32<<20) + "Connection: close\r\n\r\n",
		"never the last":    strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100) + "Connection: close",
	} {
		t.Run(name, func(t *testing.T) {
			c := newScripted(t, answer, answer).client(t)
			_, err := c.Leader(within(t), "g")
			wantUnavailable(t, "answered with "+name, err)
		})
	}
}

// A connection that the server has closed since is found out before anything is
// sent on it: afterwards nobody would know what became of it, and what names no term is not repeated.
func TestConnectionThatWasClosedIsNotUsed(t *testing.T) {
	closed := make(chan struct{}, 2)
	stepped := `{"ok":true,"term":3,"node_id":"n"}`
	s := newScripted(t, plainAnswer(stepped), plainAnswer(stepped))
	s.hungUp = closed
	c := s.client(t)
	for range 2 {
		if _, err := c.StepDown(within(t), "g", api.StepDownRequest{Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		<-closed
	}
	if n := s.connections.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// A call that is given up leaves nothing behind that the next one could take for its answer.
func TestAnswerOfACallThatWasGivenUp(t *testing.T) {
	ctx, giveUp := context.WithCancel(within(t))
	var first atomic.Bool
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if first.CompareAndSwap(false, true) {
			giveUp()
			<-r.Context().Done() // the client has hung up
			_, _ = fmt.Fprint(w, `{"leader":null,"term":1}`)
			return
		}
		_, _ = fmt.Fprint(w, vacantGroup)
	}))
	c := openClient(t, remotestore.Config{Servers: []string{server.URL}})
	if _, err := c.Leader(ctx, "g"); !errors.Is(err, context.Canceled) {
		t.Fatalf("given up: %v", err)
	}
	for range 3 {
		if l, err := c.Leader(within(t), "g"); err != nil || l.Term != 7 {
			t.Errorf("%+v, %v", l, err)
		}
	}
}
