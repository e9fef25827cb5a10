package httpfence

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// grace is how long a handler whose leadership is past may go on reading its
// request and writing its answer.
const grace = 250 * time.Millisecond

// line is the connection of a request whose handler may have to be hurried.
type line struct {
	rc     *http.ResponseController
	header http.Header
	cancel context.CancelCauseFunc

	mu   sync.Mutex
	past bool // the leadership is past
	read bool // all of the request has been read
	done bool // the handler has returned
}

// newLine watches the request's body, which it replaces.
func newLine(w http.ResponseWriter, r *http.Request, cancel context.CancelCauseFunc) *line {
	l := &line{rc: http.NewResponseController(w), cancel: cancel}
	if r.ProtoMajor == 1 {
		l.header = w.Header()
	}
	if l.read = r.Body == nil || r.Body == http.NoBody; !l.read {
		r.Body = &watchedBody{r.Body, l}
	}
	return l
}

// cut ends the handler's context and, soon, its waiting for a client that may
// be frozen. Where the writer cannot do that, the handler is left to its context.
func (l *line) cut(cause error) {
	l.cancel(cause)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done || l.past {
		return
	}
	l.past = true
	at := time.Now().Add(grace)
	_ = l.rc.SetWriteDeadline(at)
	// net/http itself reads on after the end of the request, to notice a client
	// that goes away. A deadline must not hit that: it would cancel the
	// contexts of all later requests on the connection.
	if !l.read {
		_ = l.rc.SetReadDeadline(at)
	}
}

func (l *line) hasRead() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.past && !l.read && !l.done {
		_ = l.rc.SetReadDeadline(time.Time{})
	}
	l.read = true
}

// restore lets the answer of a handler that has returned be sent.
func (l *line) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = true
	if !l.past {
		return
	}
	_ = l.rc.SetReadDeadline(time.Time{})
	_ = l.rc.SetWriteDeadline(time.Time{})
	if l.header != nil {
		l.header.Set("Connection", "close") // unless the answer is on its way already
	}
}

// watchedBody tells its line when it has been read.
type watchedBody struct {
	io.ReadCloser
	line *line
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.line.hasRead()
	}
	return n, err
}
