package remotestore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"baton"
	"baton/api"
	"baton/store/remotestore"
)

func encode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// lossy is a server that loses answers: the request takes effect, and then the connection is cut.
type lossy struct {
	http.Handler
	lose atomic.Int64 // how many answers to lose
	seen atomic.Int64 // requests that change something
}

func (l *lossy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		l.Handler.ServeHTTP(w, r)
		return
	}
	l.seen.Add(1)
	if l.lose.Add(-1) < 0 {
		l.Handler.ServeHTTP(w, r)
		return
	}
	l.Handler.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// Requests whose answers are lost after they took effect are repeated, and
// what the repetition is told is read in that light.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	l := &lossy{Handler: newHandler(t, newMemory(t))}
	store := open(t, remotestore.Config{Servers: []string{serve(t, l).URL}})
	ctx := within(t)
	losing := func(f func()) int64 {
		l.seen.Store(0)
		l.lose.Store(1)
		f()
		return l.seen.Load()
	}
	a := candidate("a")
	var lease baton.Lease
	losing(func() {
		var err error
		if lease, err = store.Acquire(ctx, "g", a, time.Minute); err != nil || !lease.HeldBy(a) || lease.Term != 1 {
			t.Fatalf("acquire: %+v, %v: want the lease of the first attempt", lease, err)
		}
	})
	losing(func() {
		if r, err := store.Renew(ctx, lease.ID(), time.Minute); err != nil || r.Term != lease.Term {
			t.Errorf("renew: %+v, %v", r, err)
		}
	})
	losing(func() {
		if err := store.Release(ctx, lease.ID()); err != nil {
			t.Errorf("release: %v: want success", err)
		}
	})
	if err := store.Release(ctx, lease.ID()); !errors.Is(err, baton.ErrNotLeader) {
		t.Errorf("release again, nothing lost: %v: want ErrNotLeader", err)
	}

	b := candidate("b")
	lease, err := store.Acquire(ctx, "g", b, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	ending := baton.Ending{Reason: baton.SteppedDown, Note: "test", Immediate: true}
	losing(func() {
		if err := store.End(ctx, "g", lease.Term, ending); err != nil {
			t.Errorf("end: %v: want success", err)
		}
	})
	if err := store.End(ctx, "g", lease.Term, ending); !errors.Is(err, baton.ErrNotLeader) {
		t.Errorf("end again, nothing lost: %v: want ErrNotLeader", err)
	}

	losing(func() {
		_, err := store.PutGroup(ctx, baton.Group{ID: "p"})
		wantUnavailable(t, "put, and be told of a conflict with oneself", err)
	})
	if _, err := store.PutGroup(ctx, baton.Group{ID: "p"}); !errors.Is(err, baton.ErrConflict) {
		t.Errorf("put with an old version, nothing lost: %v: want ErrConflict", err)
	}
	losing(func() {
		if err := store.DeleteGroup(ctx, "p"); err != nil {
			t.Errorf("delete: %v: want success", err)
		}
	})
	if err := store.DeleteGroup(ctx, "p"); !errors.Is(err, baton.ErrNotFound) {
		t.Errorf("delete again, nothing lost: %v: want ErrNotFound", err)
	}
}

// An attempt may have taken effect, and the next is refused for a reason of its own. That is no
// answer to the request.
func TestRefusedAfterLostAnswer(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{baton.ErrRateLimited, baton.ErrUnauthenticated, baton.ErrNotAllowed, baton.ErrConflict, baton.ErrInvalidTTL} {
		status, body := api.ErrorOf(refusal, time.Now())
		refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = w.Write(encode(body))
		})
		inner := newHandler(t, newMemory(t))
		var refusing, again atomic.Bool
		l := &lossy{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if refusing.Load() && r.Method != http.MethodGet && again.Swap(true) {
				refuse(w, r)
				return
			}
			inner.ServeHTTP(w, r)
		})}
		store := open(t, remotestore.Config{Servers: []string{serve(t, l).URL}})
		ctx := within(t)
		lease, err := store.Acquire(ctx, "g", candidate("a"), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		refusing.Store(true)
		for _, ask := range []struct {
			what string
			of   func() error
		}{
			{"end", func() error {
				return store.End(ctx, "g", lease.Term, baton.Ending{Reason: baton.SteppedDown, Note: "test"})
			}},
			{"release", func() error { return store.Release(ctx, lease.ID()) }},
			{"acquire", func() error { _, err := store.Acquire(ctx, "g", candidate("b"), time.Minute); return err }},
			{"put group", func() error { _, err := store.PutGroup(ctx, baton.Group{ID: "p"}); return err }},
			{"delete group", func() error { return store.DeleteGroup(ctx, "p") }},
		} {
			again.Store(false)
			l.lose.Store(1)
			wantUnavailable(t, fmt.Sprintf("%s, its answer lost and then refused: %v", ask.what, refusal), ask.of())
			again.Store(true)
			if err := ask.of(); !errors.Is(err, refusal) {
				t.Errorf("%s, nothing lost: got %v, want it refused as %v", ask.what, err, refusal)
			}
		}
	}
}

// A step-down that names no term would end whoever leads by the time it is repeated.
func TestUnnamedStepDownIsNotRepeated(t *testing.T) {
	t.Parallel()
	l := &lossy{Handler: newHandler(t, newMemory(t))}
	store := open(t, remotestore.Config{Servers: []string{serve(t, l).URL}})
	ctx := within(t)
	if _, err := store.Acquire(ctx, "g", candidate("a"), time.Minute); err != nil {
		t.Fatal(err)
	}
	l.seen.Store(0)
	l.lose.Store(1)
	_, err := store.Client().StepDown(ctx, "g", api.StepDownRequest{Reason: "test", Immediate: true})
	wantUnavailable(t, "step down whoever leads, answer lost", err)
	if n := l.seen.Load(); n != 1 {
		t.Errorf("sent %d times: want once", n)
	}
}

// What is no answer of a Baton server is no answer.
func TestGarbage(t *testing.T) {
	t.Parallel()
	const group, node, instance = "g", "n", "i"
	leader := func(change func(*api.Leader)) string {
		l := &api.Leader{NodeID: node, InstanceID: instance, Term: 7, LeaseRemaining: 900, LeaseTTL: 1000}
		change(l)
		return string(encode(api.RenewResponse{OK: true, Leader: l}))
	}
	for name, answer := range map[string]struct {
		status int
		kind   string
		body   string
	}{
		"a web page":                 {200, "text/html", "<html>It works!</html>"},
		"a web page that is missing": {404, "text/html", "<html>Not found</html>"},
		"a proxy's error":            {502, "text/html", "<html>Bad gateway</html>"},
		"truncated":                  {200, "application/json", `{"ok":true,"leader":{"node_id":"n","insta`},
		"not typed as JSON":          {200, "text/plain", leader(func(*api.Leader) {})},
		"no type":                    {200, "", leader(func(*api.Leader) {})},
		"nothing":                    {200, "application/json", ""},
		"no content":                 {204, "", ""},
		"an empty object":            {200, "application/json", `{}`},
		"an array":                   {200, "application/json", `[]`},
		"null":                       {200, "application/json", `null`},
		"no leader":                  {200, "application/json", `{"ok":true}`},
		"a term that is a string":    {200, "application/json", `{"ok":true,"leader":{"term":"7"}}`},
		"another node":               {200, "application/json", leader(func(l *api.Leader) { l.NodeID = "m" })},
		"another instance":           {200, "application/json", leader(func(l *api.Leader) { l.InstanceID = "j" })},
		"another term":               {200, "application/json", leader(func(l *api.Leader) { l.Term = 8 })},
		"more left than there is":    {200, "application/json", leader(func(l *api.Leader) { l.LeaseRemaining = 1001 })},
		"less left than nothing":     {200, "application/json", leader(func(l *api.Leader) { l.LeaseRemaining = -1 })},
		"longer than any lease":      {200, "application/json", leader(func(l *api.Leader) { l.LeaseRemaining, l.LeaseTTL = 1<<50, 1<<50 })},
		"an unknown code":            {409, "application/json", `{"error":"BUSY","message":"come back later"}`},
		"a code with another status": {500, "application/json", `{"error":"NOT_LEADER","message":"no"}`},
		"a code as a success":        {200, "application/json", `{"ok":false,"error":"NOT_LEADER"}`},
		"an error of no code":        {400, "application/json", `{"detail":"some other program's"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{answer.kind}
				w.WriteHeader(answer.status)
				_, _ = w.Write([]byte(answer.body))
			}))
			c := openClient(t, remotestore.Config{Servers: []string{s.URL}})
			_, err := c.Renew(within(t), group, api.RenewRequest{NodeID: node, InstanceID: instance, Term: 7, ExtendBy: 1000})
			wantUnavailable(t, "renew", err)
			_, err = c.Ready(within(t))
			wantUnavailable(t, "ready", err)
			_, err = c.Leader(within(t), group)
			wantUnavailable(t, "leader", err)
			_, err = c.Campaign(within(t), group, api.CampaignRequest{NodeID: node, InstanceID: instance, LeaseTTL: 1000})
			wantUnavailable(t, "campaign", err)
			for _, err := range c.Watch(within(t), group, "") {
				wantUnavailable(t, "watch", err)
			}
		})
	}
}

// Nothing of an answer that was refused is left in the next one.
func TestNothingRemainsOfGarbage(t *testing.T) {
	t.Parallel()
	answer := func(l api.Leader) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(encode(api.RenewResponse{OK: true, Leader: &l}))
		}
	}
	good := api.Leader{NodeID: "n", InstanceID: "i", Term: 7, LeaseRemaining: 900, LeaseTTL: 1000}
	bad := good
	bad.Term, bad.Metadata, bad.Ending = 6, map[string]string{"of": "another"}, &api.Ending{Reason: "STEPPED_DOWN"}
	first, second := serve(t, answer(bad)), serve(t, answer(good))
	c := openClient(t, remotestore.Config{Servers: []string{first.URL, second.URL}})
	got, err := c.Renew(within(t), "g", api.RenewRequest{NodeID: "n", InstanceID: "i", Term: 7, ExtendBy: 1000})
	if err != nil || !reflect.DeepEqual(*got.Leader, good) {
		t.Errorf("got %+v, %v: want %+v", got.Leader, err, good)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Int64
	target := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, target.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	c := openClient(t, remotestore.Config{Servers: []string{s.URL}, Token: "secret"})
	_, err := c.Leader(within(t), "g")
	wantUnavailable(t, "read at a server that redirects", err)
	if err == nil || !strings.Contains(err.Error(), target.URL) {
		t.Errorf("the error %v does not say where it was sent", err)
	}
	if followed.Load() != 0 {
		t.Error("the redirect was followed, with its token")
	}
}

func TestTokenIsSent(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	inner := newHandler(t, newMemory(t))
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header.Get("Authorization")
		inner.ServeHTTP(w, r)
	}))
	c := openClient(t, remotestore.Config{Servers: []string{s.URL}, Token: "secret"})
	if _, err := c.Leader(within(t), "g"); err != nil {
		t.Fatal(err)
	}
	if h := <-got; h != "Bearer secret" {
		t.Errorf("Authorization is %q", h)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, bad := range []remotestore.Config{
		{},
		{Servers: []string{""}},
		{Servers: []string{"ftp://127.0.0.1"}},
		{Servers: []string{"http://"}},
		{Servers: []string{"http://127.0.0.1:7400/?x=y"}},
		{Servers: []string{"http://user:secret@127.0.0.1:7400"}},
		{Servers: []string{"http://127.0.0.1:bad"}},
		{Servers: []string{"127.0.0.1:7400"}, Timeout: -1},
		{Servers: []string{"127.0.0.1:7400"}, WatchIdle: -1},
	} {
		if _, err := remotestore.NewClient(bad); !errors.Is(err, baton.ErrInvalidArgument) {
			t.Errorf("%+v: got %v, want ErrInvalidArgument", bad, err)
		}
	}
	s := serve(t, http.StripPrefix("/behind/a/proxy", newHandler(t, newMemory(t))))
	c := openClient(t, remotestore.Config{Servers: []string{strings.TrimPrefix(s.URL, "http://") + "/behind/a/proxy/"}})
	if _, err := c.Leader(within(t), "g"); err != nil {
		t.Errorf("read at an address without a scheme and with a path: %v", err)
	}
}
