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

// script is the fate of the nth transaction that locks something.
type script func(n int, send func() (*http.Response, error)) (*http.Response, error)

// scripted is a way to Consul on which such transactions have the fates of a script.
type scripted struct {
	next   *http.Transport
	locks  int
	script script
}

func (s *scripted) RoundTrip(request *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(request.URL.Path, "/v1/txn") {
		return s.next.RoundTrip(request)
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	_ = request.Body.Close()
	send := func() (*http.Response, error) {
		r := request.Clone(request.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
		return s.next.RoundTrip(r)
	}
	if !bytes.Contains(body, []byte(`"lock"`)) {
		return send()
	}
	s.locks++
	return s.script(s.locks, send)
}

// scriptedStore is another store on the same keys, on such a way.
func (o *one) scriptedStore(t *testing.T, fates script) *consulstore.Store {
	t.Helper()
	way := &scripted{next: &http.Transport{}, script: fates}
	t.Cleanup(way.next.CloseIdleConnections)
	return open(t, consulstore.Config{Address: host(t, o.server.URL), Prefix: o.prefix, Transport: way, Timeout: drill.Patience})
}

func forbidden() (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusForbidden, Body: io.NopCloser(strings.NewReader("Permission denied"))}, nil
}

func lostThenForbidden(n int, _ func() (*http.Response, error)) (*http.Response, error) {
	if n == 1 {
		return nil, drill.ErrLost
	}
	return forbidden()
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
	s := o.scriptedStore(t, func(n int, send func() (*http.Response, error)) (*http.Response, error) {
		if n > 1 {
			return send()
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

// Of a grant or a renewal that was done and repeated on the way, the copy is
// refused. The leadership stands, and so does the session that it rests on.
func TestARefusedCopy(t *testing.T) {
	t.Parallel()
	for name, repeat := range map[string]func(send func() (*http.Response, error)) (*http.Response, error){
		"for what the first has done": func(send func() (*http.Response, error)) (*http.Response, error) { return send() },
		"for rights that were taken":  func(func() (*http.Response, error)) (*http.Response, error) { return forbidden() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := shared(t)
			group := o.prefix
			s := o.scriptedStore(t, func(_ int, send func() (*http.Response, error)) (*http.Response, error) {
				first, err := send()
				if err != nil {
					return nil, err
				}
				_ = first.Body.Close()
				return repeat(send)
			})
			l, err := s.Acquire(t.Context(), group, candidate("i-1"), baton.MaxTTL)
			if err != nil || l.Remaining <= 0 || o.session(t, group) == "" {
				t.Fatalf("acquire: %+v, %v; locked by %q", l, err, o.session(t, group))
			}
			granted := o.session(t, group)
			r, err := s.Renew(t.Context(), l.ID(), baton.MaxTTL)
			if err != nil || r.Remaining <= 0 || o.session(t, group) == granted {
				t.Errorf("renew: %+v, %v; locked by %q", r, err, o.session(t, group))
			}
			if err := s.Close(); err != nil { // it waits for what is given back
				t.Fatal(err)
			}
			if now, err := o.Get(t.Context(), group); err != nil || now.ID() != l.ID() || o.session(t, group) == "" {
				t.Errorf("granted %s, and now there is %+v, %v", l.ID(), now, err)
			}
		})
	}
}

// An attempt that can take effect no more leaves no session.
func TestALostGrantIsGivenBack(t *testing.T) {
	t.Parallel()
	o := shared(t)
	group := o.prefix
	s := o.scriptedStore(t, func(n int, send func() (*http.Response, error)) (*http.Response, error) {
		if n > 1 {
			return send()
		}
		drill.Lead(t, o, group, "other", baton.MaxTTL)
		return nil, drill.ErrLost
	})
	if _, err := s.Acquire(t.Context(), group, candidate("i-1"), baton.MaxTTL); !errors.Is(err, baton.ErrHeld) {
		t.Errorf("acquire: %v, want ErrHeld", err)
	}
	drill.Eventually(t, "the session of the leadership alone", func() bool { return len(o.sessions(t, group)) == 1 })
}

// forgetful is a way to Consul on which one read is answered by a server that was
// frozen before the last changes: with the first answer that there was to it.
type forgetful struct {
	next  http.RoundTripper
	first []byte // the answer to the first read of a group
	stale bool   // the next read is answered with it
}

func (f *forgetful) RoundTrip(request *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(request.URL.Path, "/v1/txn") || !request.URL.Query().Has("consistent") {
		return f.next.RoundTrip(request)
	}
	response, err := f.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	switch {
	case !bytes.Contains(body, []byte("/leases/")): // the store looks around as it begins
	case f.first == nil:
		f.first = body
	case f.stale:
		f.stale, body = false, f.first
	}
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return response, err
}

// What a server says that was frozen before a renewal is no proof that the
// renewal came to nothing: the holder trusts the leadership, which rests on its session.
func TestTheDistantPastEndsNoLeadership(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func() (*http.Response, error){
		"of a renewal that was lost":    func() (*http.Response, error) { return nil, drill.ErrLost },
		"of one whose copy was refused": forbidden,
		"of one whose copy came too late": func() (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusConflict, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"Errors":[{"OpIndex":0,"What":"index is stale"}]}`))}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := shared(t)
			group := o.prefix
			l := drill.Lead(t, o, group, "i-1", baton.MaxTTL)
			carrier := &http.Transport{}
			t.Cleanup(carrier.CloseIdleConnections)
			past := &forgetful{}
			past.next = &scripted{next: carrier, script: func(n int, send func() (*http.Response, error)) (*http.Response, error) {
				response, err := send()
				if n > 1 || err != nil {
					return response, err
				}
				_ = response.Body.Close()
				past.stale = true
				return answer()
			}}
			s := open(t, consulstore.Config{Address: host(t, o.server.URL), Prefix: o.prefix, Transport: past, Timeout: drill.Patience})
			if _, err := s.Get(t.Context(), group); err != nil {
				t.Fatal(err)
			}
			if _, err := o.Renew(t.Context(), l.ID(), baton.MaxTTL); err != nil {
				t.Fatal(err)
			}
			r, err := s.Renew(t.Context(), l.ID(), baton.MaxTTL)
			t.Logf("renew: %+v, %v", r, err)
			if baton.IsAnswer(err) && !errors.Is(err, baton.ErrNotAllowed) {
				t.Errorf("renew: %v", err)
			}
			if err := s.Close(); err != nil { // it waits for what is given back
				t.Fatal(err)
			}
			if now, err := o.Get(t.Context(), group); err != nil || now.ID() != l.ID() || o.session(t, group) == "" {
				t.Errorf("%s was renewed, and now there is %+v, %v", l.ID(), now, err)
			}
		})
	}
}
