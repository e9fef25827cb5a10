package node

import (
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"baton/internal/fleet"
)

// sent takes note of when the last request had left that was to change something.
type sent struct{ last atomic.Int64 }

func (s *sent) through(base http.RoundTripper) http.RoundTripper { return &noted{s, base} }

type noted struct {
	*sent
	base http.RoundTripper
}

func (n *noted) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		return n.base.RoundTrip(r)
	}
	left := func(httptrace.WroteRequestInfo) { n.last.Store(fleet.Now()) }
	return n.base.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{WroteRequest: left})))
}
