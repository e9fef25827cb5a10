package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"baton"
	"baton/api"
)

const (
	// openWithin is how soon a stream begins even if there is nothing to say
	// yet. Before that an error can still be told by its status.
	openWithin = 250 * time.Millisecond
	// reconnectAfter is what a client that lost its stream is told to wait.
	reconnectAfter = time.Second
	// byeReconnectAfter is the same for a server that shuts down: another one is there.
	byeReconnectAfter = 100 * time.Millisecond
)

// stream sends changes as Server-Sent Events until the client goes, cannot
// keep up, or the server shuts down. It returns an error only before it has begun.
func (h *Handler) stream(w http.ResponseWriter, r *http.Request, f *following) error {
	var first *baton.Event
	opening := time.NewTimer(openWithin)
	defer opening.Stop()
	select {
	case e := <-f.events:
		first = &e
	case err := <-f.failed:
		return err
	case <-opening.C:
		// It may have been over for long: what has come meanwhile is told in its place.
		select {
		case e := <-f.events:
			first = &e
		case err := <-f.failed:
			return err
		default:
			if err := r.Context().Err(); err != nil {
				return err
			}
		}
	case <-r.Context().Done():
		return r.Context().Err()
	}

	s := &sse{h: h, w: w, rc: http.NewResponseController(w)}
	s.open()
	if first != nil {
		s.event(*first)
	}
	s.flush()
	beat := time.NewTicker(h.cfg.Heartbeat)
	defer beat.Stop()
	for s.err == nil {
		select {
		case e := <-f.events:
			s.event(e)
			beat.Reset(h.cfg.Heartbeat)
		case err := <-f.failed:
			if r.Context().Err() != nil {
				return nil
			}
			_, body := api.ErrorOf(err, h.svc.Now())
			s.named(api.SSEError, reconnectAfter, body)
			s.flush()
			return nil
		case <-beat.C:
			s.comment("still here")
		case <-h.closing:
			s.named(api.SSEBye, byeReconnectAfter, struct{}{})
			s.flush()
			return nil
		case <-r.Context().Done():
			return nil
		}
		if len(f.events) == 0 {
			s.flush()
		}
	}
	h.log.Info("watcher dropped: it did not read", "path", r.URL.Path, "from", r.RemoteAddr, "error", s.err)
	return nil
}

// sse writes messages. After the first error it writes nothing.
type sse struct {
	h   *Handler
	w   http.ResponseWriter
	rc  *http.ResponseController
	err error
}

func (s *sse) open() {
	head := s.w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("Cache-Control", "no-store")
	head.Set("X-Accel-Buffering", "no") // nginx would hold messages back
	s.w.WriteHeader(http.StatusOK)
	s.write(fmt.Sprintf("retry: %d\n\n", reconnectAfter.Milliseconds()))
}

// event sends a change: a message without a name, which is what a browser's onmessage gets.
func (s *sse) event(e baton.Event) {
	s.write("id: " + string(e.Cursor) + "\ndata: " + s.data(api.EventOf(e)) + "\n\n")
}

func (s *sse) named(name string, retry time.Duration, body any) {
	s.write(fmt.Sprintf("retry: %d\nevent: %s\ndata: %s\n\n", retry.Milliseconds(), name, s.data(body)))
}

func (s *sse) comment(text string) { s.write(": " + strings.ReplaceAll(text, "\n", " ") + "\n\n") }

func (s *sse) data(v any) string {
	raw, err := json.Marshal(v) // has no line breaks
	if err != nil && s.err == nil {
		s.err = err
	}
	return string(raw)
}

func (s *sse) write(message string) {
	if s.err != nil {
		return
	}
	s.h.allowWrite(s.w)
	_, s.err = s.w.Write([]byte(message))
}

func (s *sse) flush() {
	if s.err != nil {
		return
	}
	s.h.allowWrite(s.w)
	s.err = s.rc.Flush()
	s.h.endWrite(s.w)
}
