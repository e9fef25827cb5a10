package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"baton/api"
)

// message is one Server-Sent Event.
type message struct {
	id, name, data, comment string
	retry                   string
	event                   api.Event // of messages without a name
}

// stream is an open watch.
type stream struct {
	t      testing.TB
	cancel context.CancelFunc
	body   io.ReadCloser
	in     *bufio.Reader
	docs   *documents
}

// watch opens a stream after a cursor, "" for the present state.
func (r *rig) watch(group, cursor string) *stream {
	r.t.Helper()
	s, err := r.tryWatch(group, cursor)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *rig) tryWatch(group, cursor string) (*stream, error) {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	req, err := http.NewRequestWithContext(ctx, "GET", r.url+"/v1/groups/"+group+"/watch", nil)
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if cursor != "" {
		req.Header.Set("Last-Event-ID", cursor)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		_ = resp.Body.Close()
		cancel()
		return nil, fmt.Errorf("watch: %s, %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	docs, err := loadDocuments()
	if err != nil {
		cancel()
		return nil, err
	}
	return &stream{t: r.t, cancel: cancel, body: resp.Body, in: bufio.NewReader(resp.Body), docs: docs}, nil
}

func (s *stream) close() {
	s.cancel()
	_ = s.body.Close()
}

// next reads one message, whatever it is.
func (s *stream) next() (m message, err error) {
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return m, err
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			break
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			m.id = value
		case "event":
			m.name = value
		case "data":
			m.data = value
		case "retry":
			m.retry = value
		case "":
			m.comment = value
		}
	}
	if m.data != "" && m.name == "" {
		if err := json.Unmarshal([]byte(m.data), &m.event); err != nil {
			return m, err
		}
		if err := s.docs.event.VisitJSON(decoded([]byte(m.data))); err != nil {
			return m, fmt.Errorf("event %s against the OpenAPI document: %w", m.data, err)
		}
		if m.id != m.event.Cursor {
			return m, fmt.Errorf("id %q, cursor %q", m.id, m.event.Cursor)
		}
	}
	return m, nil
}

// event reads on to the next change.
func (s *stream) event() api.Event {
	s.t.Helper()
	e, err := s.tryEvent()
	if err != nil {
		s.t.Fatalf("watch: %v", err)
	}
	return e
}

func (s *stream) tryEvent() (api.Event, error) {
	for {
		m, err := s.next()
		if err != nil {
			return api.Event{}, err
		}
		if m.name != "" {
			return api.Event{}, fmt.Errorf("message %s: %s", m.name, m.data)
		}
		if m.data != "" {
			return m.event, nil
		}
	}
}

func (s *stream) wantEvent(kind string, term int64, node string) api.Event {
	s.t.Helper()
	e := s.event()
	if e.Type != kind || e.Term != uint64(term) || e.LeaderNodeID != node || e.Gap {
		s.t.Fatalf("event %+v, want %s of term %d, leader %q", e, kind, term, node)
	}
	return e
}
