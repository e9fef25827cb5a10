package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"baton/internal/fleet"
)

// A client keeps its connections, follows to the leader, and gives up when it is told to.
func TestWires(t *testing.T) {
	release := make(chan struct{})
	var connections sync.Map
	given, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	leader := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connections.Store(r.RemoteAddr, true)
		giveUp() // the first request, which has come this far, and waits for an answer
		select {
		case <-release:
			_, _ = fmt.Fprintln(w, `{"token":7,"seq":9}`)
		case <-r.Context().Done():
		}
	}))
	defer leader.Close()
	follower := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		_, _ = fmt.Fprintf(w, `{"error":"NOT_LEADER","leader":{"node_id":"n1","address":%q}}`, strings.TrimPrefix(leader.URL, "http://"))
	}))
	defer follower.Close()
	l := newWires()
	defer l.close()
	hc := &http.Client{Transport: l}
	address := strings.TrimPrefix(follower.URL, "http://")

	if n, err := fleet.Next(given, hc, address); !errors.Is(err, context.Canceled) {
		t.Errorf("got %+v, %v", n, err)
	}
	close(release)
	for range 3 {
		if n, err := fleet.Next(t.Context(), hc, address); err != nil || n.Token != 7 || n.Seq != 9 {
			t.Errorf("got %+v, %v", n, err)
		}
	}
	count := 0
	connections.Range(func(any, any) bool { count++; return true })
	if count != 2 { // the one that was given up, and the one that was kept
		t.Errorf("%d connections", count)
	}
	leader.Close()
	if n, err := fleet.Next(t.Context(), hc, address); err == nil {
		t.Errorf("nobody is there, and yet %+v", n)
	}
}
