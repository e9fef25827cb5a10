package consulstore_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"baton"
	"baton/store/consulstore"
	"baton/storetest/drill"
)

// scripted is a way to Consul on which transactions that lock something have the fates of a script.
type scripted struct {
	next   *http.Transport
	locks  int
	script func(n int) (*http.Response, error) // nil, nil: it goes through
}

func (s *scripted) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasSuffix(request.URL.Path, "/v1/txn") {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		_ = request.Body.Close()
		request = request.Clone(request.Context())
		request.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(`"lock"`)) {
			s.locks++
			if response, err := s.script(s.locks); response != nil || err != nil {
				return response, err
			}
		}
	}
	return s.next.RoundTrip(request)
}

// scriptedStore is another store on the same keys, on such a way.
func (o *one) scriptedStore(t *testing.T, script func(n int) (*http.Response, error)) *consulstore.Store {
	t.Helper()
	way := &scripted{next: &http.Transport{}, script: script}
	t.Cleanup(way.next.CloseIdleConnections)
	return open(t, consulstore.Config{Address: host(t, o.server.URL), Prefix: o.prefix, Transport: way, Timeout: drill.Patience})
}

func lostThenForbidden(n int) (*http.Response, error) {
	if n == 1 {
		return nil, drill.ErrLost
	}
	return &http.Response{StatusCode: http.StatusForbidden, Body: io.NopCloser(strings.NewReader("Permission denied"))}, nil
}

// A request that was lost may come yet: that its repetition was refused is no
// answer to it.
func TestARefusedRepetitionIsNoAnswer(t *testing.T) {
	t.Parallel()
	o := shared(t)
	l, err := o.scriptedStore(t, lostThenForbidden).Acquire(t.Context(), "g", candidate("i-1"), ttl)
	if !errors.Is(err, baton.ErrUnavailable) || baton.IsAnswer(err) {
		t.Errorf("acquire: %+v, %v", l, err)
	}
	l = drill.Lead(t, o, "g", "i-1", ttl)
	r, err := o.scriptedStore(t, lostThenForbidden).Renew(t.Context(), l.ID(), ttl)
	if !errors.Is(err, baton.ErrUnavailable) || baton.IsAnswer(err) {
		t.Errorf("renew: %+v, %v", r, err)
	}
}

// Nor is it that it is somebody else's turn by now.
func TestATurnThatCameMeanwhileIsNoAnswer(t *testing.T) {
	t.Parallel()
	o := shared(t)
	first := drill.Lead(t, o, "g", "i-1", ttl)
	session, _, err := o.consul.Session().CreateNoChecks(&api.SessionEntry{Node: "baton", TTL: "10s"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := o.scriptedStore(t, func(n int) (*http.Response, error) {
		if n > 1 {
			return nil, nil
		}
		place := &api.KVPair{Key: o.prefix + "/line/g/other/i-1", Session: session}
		if ok, _, err := o.consul.KV().Acquire(place, nil); err != nil || !ok {
			t.Errorf("take a place: %t, %v", ok, err)
		}
		return nil, drill.ErrLost
	})
	drill.Release(t, o, first)
	ended := time.Now()
	l, err := s.Acquire(t.Context(), "g", candidate("i-2"), ttl)
	if errors.Is(err, baton.ErrHeld) {
		t.Errorf("acquire: %+v, %v, while the first attempt may come yet", l, err)
	}
	t.Logf("%v after %v", err, time.Since(ended)) // when a second has passed it is granted
}
