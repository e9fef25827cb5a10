package drill_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"baton/internal/leak"
	"baton/storetest/drill"
)

func TestMain(m *testing.M) { leak.Main(m) }

// server counts the requests that arrive, and when the last one did.
type server struct {
	mu      sync.Mutex // what comes late may come at any time
	arrived int
	last    time.Time
	wrong   string
}

func (s *server) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || string(body) != "hello" {
		s.wrong = string(body)
	}
	s.arrived++
	s.last = time.Now()
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("hi"))}, nil
}

// send sends requests and waits for what is late of each. It counts them by
// how often they arrived, and whether they were answered.
func send(t *testing.T, luck *drill.Luck, spared func(*http.Request) bool) (answered, unanswered [3]int) {
	t.Helper()
	for range 1000 {
		s := &server{}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://server/key", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		sent := time.Now()
		response, err := luck.Transport(s, spared).RoundTrip(request)
		luck.Settle()
		if s.wrong != "" || s.last.Sub(sent) > time.Second {
			t.Fatalf("the server got %q, and the last request after %v", s.wrong, s.last.Sub(sent))
		}
		switch {
		case err == nil:
			_ = response.Body.Close()
			answered[s.arrived]++
		case errors.Is(err, drill.ErrLost):
			unanswered[s.arrived]++
		default:
			t.Fatal(err)
		}
	}
	return answered, unanswered
}

// slow is a server that takes longer for the first request than any copy is late.
type slow struct {
	arrived, answered int
	overtook          bool
}

func (s *slow) RoundTrip(request *http.Request) (*http.Response, error) {
	s.arrived++
	if s.arrived > 1 {
		s.overtook = s.answered == 0
	}
	select {
	case <-time.After(2 * time.Second):
	case <-request.Context().Done():
		return nil, request.Context().Err()
	}
	s.answered++
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("hi"))}, nil
}

// A copy of a request that was not answered could be carried out before it.
func TestNoCopyOvertakes(t *testing.T) {
	for name, patience := range map[string]time.Duration{"answered": time.Hour, "given up": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				luck := drill.NewLuck(1, 20, time.Second)
				luck.Repeats = true
				twice := 0
				for range 1000 {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/key", nil)
					if err != nil {
						t.Fatal(err)
					}
					s := &slow{}
					if response, err := luck.Transport(s, nil).RoundTrip(request); err == nil {
						_ = response.Body.Close()
					}
					luck.Settle()
					cancel()
					if s.overtook {
						t.Fatal("a copy came before the request was answered")
					}
					if s.arrived > 1 {
						twice++
					}
				}
				if patience == time.Hour && !about(twice, 2) {
					t.Errorf("%d requests came twice", twice)
				}
			})
		})
	}
}

// about reports whether n of 1000 is as many as one in twenty, so many times over.
func about(n, times int) bool { return n > 25*times && n < 75*times }

func TestLuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answered, unanswered := send(t, drill.NewLuck(1, 20, time.Second), nil)
		if !about(unanswered[0], 1) || !about(unanswered[1], 2) || !about(answered[2], 1) || unanswered[2] != 0 || answered[0] != 0 {
			t.Errorf("answered, by how often they arrived: %v; not answered: %v", answered, unanswered)
		}
		repeats := drill.NewLuck(1, 20, time.Second)
		repeats.Repeats = true
		if answered, _ := send(t, repeats, nil); !about(answered[2], 2) {
			t.Errorf("by a client that repeats: %v", answered)
		}
		answered, _ = send(t, drill.NewLuck(1, 20, time.Second), func(*http.Request) bool { return true })
		if answered[1] != 1000 {
			t.Errorf("when all are spared: %v", answered)
		}
	})
}
