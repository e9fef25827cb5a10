package remotestore

import (
	"slices"
	"sync"
	"time"
)

// server is one address.
type server struct {
	base string
	// plain is set if it can be asked directly.
	plain *plainServer
	// notBefore is until when it asked to be left alone.
	notBefore time.Duration
}

// servers are the addresses, and which of them is worth asking first.
type servers struct {
	mu      sync.Mutex
	list    []*server
	current int
}

func newServers(bases []string) *servers {
	s := &servers{}
	for _, b := range bases {
		s.list = append(s.list, &server{base: b})
	}
	return s
}

// next returns the server to ask, and how long to wait before: the one that is
// stuck to, else those after it, else the one whose pause ends first. It is nil when all were tried.
func (s *servers) next(now time.Duration, tried []*server) (*server, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var best *server
	var least time.Duration
	for i := range s.list {
		srv := s.list[(s.current+i)%len(s.list)]
		if slices.Contains(tried, srv) {
			continue
		}
		wait := srv.notBefore - now
		if wait <= 0 {
			return srv, 0
		}
		if best == nil || wait < least {
			best, least = srv, wait
		}
	}
	return best, least
}

// failed moves on from srv, and leaves it alone until then if it asked for that.
func (s *servers) failed(srv *server, notBefore time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	srv.notBefore = max(srv.notBefore, notBefore)
	if s.list[s.current] == srv {
		s.current = (s.current + 1) % len(s.list)
	}
}
