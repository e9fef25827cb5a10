package raftstore

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"sync"

	"baton/internal/raftnode"
)

// serveLine answers the questions of another server until it hangs up.
func (h *peerHandler) serveLine(w http.ResponseWriter, r *http.Request, s *Store) {
	if r.Header.Get("Upgrade") != lineProtocol {
		http.Error(w, "another protocol", http.StatusBadRequest)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	hello := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + lineProtocol + "\r\n\r\n"
	if _, err := conn.Write([]byte(hello)); err != nil {
		_ = conn.Close()
		return
	}
	(&servedLine{h: h, s: s, to: raftnode.AddresseeOf(r.Header)}).run(conn, buffered.Reader)
}

// servedLine is one connection of another server.
type servedLine struct {
	h  *peerHandler
	s  *Store
	to raftnode.Addressee // whom the other one means

	out   *frameWriter
	calls sync.WaitGroup
	mu    sync.Mutex
	under map[uint64]context.CancelFunc // calls that are under way
}

func (l *servedLine) run(conn net.Conn, r *bufio.Reader) {
	l.under = map[uint64]context.CancelFunc{}
	l.out = newFrameWriter(conn)
	life, end := context.WithCancel(context.Background())
	for {
		f, err := readFrame(r)
		if err != nil {
			break
		}
		l.serve(life, f)
	}
	end()
	l.out.close()
	l.calls.Wait()
}

func (l *servedLine) serve(life context.Context, f frame) {
	// Each time: who this is may have become clear since.
	if err := l.h.meant(l.to); err != nil && f.kind != giveUp {
		l.reply(notMeant, f.id, []byte(err.Error()))
		return
	}
	switch f.kind {
	case askTerm:
		l.reply(answered, f.id, strconv.AppendUint(nil, l.s.raft.CurrentTerm(), 10))
	case askCall:
		ctx, cancel := context.WithCancel(life)
		l.mu.Lock()
		l.under[f.id] = cancel
		l.mu.Unlock()
		l.calls.Go(func() {
			body := l.s.call(ctx, f.body)
			cancel()
			l.mu.Lock()
			delete(l.under, f.id)
			l.mu.Unlock()
			l.reply(answered, f.id, body)
		})
	case giveUp:
		l.mu.Lock()
		defer l.mu.Unlock()
		if cancel := l.under[f.id]; cancel != nil {
			cancel()
		}
	}
}

// reply is lost with the connection: the caller's outcome is unknown then. And the
// connection is lost with a reply: nobody else would tell those who wait for it.
func (l *servedLine) reply(kind byte, id uint64, body []byte) {
	if l.out.send(frame{kind, id, body}) != nil {
		_ = l.out.conn.Close()
	}
}

// call answers a request that was passed on.
func (s *Store) call(ctx context.Context, body []byte) []byte {
	var q request
	a := response{}
	err := json.Unmarshal(body, &q)
	if err == nil {
		a, err = s.serve(ctx, q)
	}
	if err != nil {
		a = response{Error: wireErrorOf(err)}
	}
	b, err := json.Marshal(a)
	if err != nil {
		b, _ = json.Marshal(response{Error: wireErrorOf(unavailable(q.Op, err))})
	}
	return b
}
