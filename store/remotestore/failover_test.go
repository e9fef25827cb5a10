package remotestore_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"baton"
	"baton/api"
	"baton/store/remotestore"
	"baton/storetest/drill"
)

// patience is far beyond what anything here takes.
const patience = 30 * time.Second

func candidate(node string) baton.Candidate {
	return baton.Candidate{NodeID: node, InstanceID: baton.NewInstanceID()}
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// open is a store that ends with the test.
func open(t *testing.T, cfg remotestore.Config) *remotestore.Store {
	t.Helper()
	cfg.Logger, cfg.Timeout = quiet(), cmp.Or(cfg.Timeout, patience)
	s, err := remotestore.New(within(t), cfg)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// openClient is a client that ends with the test, at servers that need not be ready.
func openClient(t *testing.T, cfg remotestore.Config) *remotestore.Client {
	t.Helper()
	cfg.Logger, cfg.Timeout = quiet(), cmp.Or(cfg.Timeout, patience)
	c, err := remotestore.NewClient(cfg)
	if err != nil {
		t.Fatalf("new client: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func kill(s *httptest.Server) {
	s.CloseClientConnections()
	s.Close()
}

// deadURL is an address where nobody listens.
func deadURL(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	return s.URL
}

func wantUnavailable(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, baton.ErrUnavailable) || baton.IsAnswer(err) {
		t.Errorf("%s: got %v, want ErrUnavailable and no answer", what, err)
	}
}

// Everything goes on at the second server when the first dies: calls, a watch without a gap, a wait in line.
func TestFailOver(t *testing.T) {
	t.Parallel()
	memory := newMemory(t)
	first, second := serve(t, newHandler(t, memory)), serve(t, newHandler(t, memory))
	store := open(t, remotestore.Config{Servers: []string{first.URL, second.URL}})
	ctx := within(t)

	events := make(chan baton.Event)
	watching, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() {
		for e, err := range store.Watch(watching, "g", "") {
			if err != nil {
				if watching.Err() == nil {
					t.Errorf("watch: %v", err)
				}
				return
			}
			events <- e
		}
	})
	next := func() baton.Event {
		t.Helper()
		select {
		case e := <-events:
			return e
		case <-ctx.Done():
			t.Fatal("no event")
			return baton.Event{}
		}
	}
	next() // vacant
	a, b := candidate("a"), candidate("b")
	lease, err := store.Acquire(ctx, "g", a, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if e := next(); e.Type != baton.LeaderChanged || e.Term != lease.Term {
		t.Fatalf("event %+v: want the election of term %d", e, lease.Term)
	}
	turn := make(chan error, 1)
	background.Go(func() {
		for {
			err := store.Await(ctx, "g", b)
			if !errors.Is(err, baton.ErrUnavailable) { // as an elector does
				turn <- err
				return
			}
		}
	})

	kill(first)
	if renewed, err := store.Renew(ctx, lease.ID(), time.Minute); err != nil || renewed.Term != lease.Term {
		t.Fatalf("renew at the second server: %+v, %v", renewed, err)
	}
	if err := store.Release(ctx, lease.ID()); err != nil {
		t.Fatalf("release at the second server: %v", err)
	}
	if e := next(); e.Type != baton.LeaderLost || e.Reason != baton.Resigned || e.Gap {
		t.Errorf("event %+v: want the resignation, without a gap", e)
	}
	if err := <-turn; err != nil {
		t.Errorf("await at the second server: %v", err)
	}
	if l, err := store.Acquire(ctx, "g", b, time.Minute); err != nil || l.Term != lease.Term+1 {
		t.Errorf("acquire in turn: %+v, %v", l, err)
	}
	next()
	stop()
	background.Wait()
}

// An elector leads on, past the lease that it was first given, when its server dies.
func TestElectorSurvivesFailOver(t *testing.T) {
	t.Parallel()
	memory := newMemory(t)
	first, second := serve(t, newHandler(t, memory)), serve(t, newHandler(t, memory))
	store := open(t, remotestore.Config{Servers: []string{first.URL, second.URL}})
	ctx := within(t)
	// Long, so that it outlasts a machine that stands still, and renewed often.
	const ttl, margin = time.Minute, time.Second
	elector, err := baton.NewElector(store, baton.Config{
		Group: "g", NodeID: "n", TTL: ttl, RenewEvery: 200 * time.Millisecond, Margin: margin, Logger: quiet(),
	})
	if err != nil {
		t.Fatal(err)
	}
	leadership, err := elector.Campaign(ctx)
	if err != nil {
		t.Fatal(err)
	}
	kill(first)
	killed := time.Now()
	// Nothing that was sent before the kill lets it be trusted beyond that.
	for renewed := false; !renewed; {
		select {
		case <-time.After(20 * time.Millisecond):
			now := time.Now()
			renewed = now.Add(leadership.Remaining()).After(killed.Add(ttl - margin))
		case <-leadership.Over():
			t.Fatalf("the leadership was lost: %v", leadership.Cause())
		case <-ctx.Done():
			t.Fatal("the second server is not asked to renew")
		}
	}
	if !leadership.Valid() {
		t.Errorf("the leadership lapsed: %v", leadership.Cause())
	}
	if err := elector.Close(); err != nil {
		t.Errorf("close the elector: %v", err)
	}
	if l, err := memory.Get(ctx, "g"); err != nil || l.Held() {
		t.Errorf("after the elector was closed: %+v, %v", l, err)
	}
}

// A call at a store sticks to the server that answers.
func TestSticksToTheServerThatAnswers(t *testing.T) {
	t.Parallel()
	var firstAsked, secondAsked atomic.Int64
	memory := newMemory(t)
	api := newHandler(t, memory)
	first := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		firstAsked.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	}))
	second := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secondAsked.Add(1)
		api.ServeHTTP(w, r)
	}))
	c := openClient(t, remotestore.Config{Servers: []string{first.URL, second.URL}})
	const calls = 10
	for range calls {
		if _, err := c.Leader(within(t), "g"); err != nil {
			t.Fatal(err)
		}
	}
	if firstAsked.Load() != 1 || secondAsked.Load() != calls {
		t.Errorf("%d calls at the broken server and %d at the other: want 1 and %d", firstAsked.Load(), secondAsked.Load(), calls)
	}
}

// refuse answers 503 as a server does whose store cannot decide.
func refuse(w http.ResponseWriter, retryAfter time.Duration) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, body := api.ErrorOf(&baton.UnavailableError{Op: "test", RetryAfter: retryAfter}, time.Now())
	_, _ = w.Write(encode(body))
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	const pause = 400 * time.Millisecond
	var mu sync.Mutex
	var asked []time.Time
	memory := newMemory(t)
	inner := newHandler(t, memory)
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, time.Now())
		n := len(asked)
		mu.Unlock()
		if n == 1 {
			refuse(w, pause)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	c := openClient(t, remotestore.Config{Servers: []string{s.URL}, Timeout: patience})
	if _, err := c.Leader(within(t), "g"); err != nil {
		t.Fatalf("after the pause that the server asked for: %v", err)
	}
	if len(asked) != 2 || asked[1].Sub(asked[0]) < pause {
		t.Errorf("asked at %v: want twice, %v apart", asked, pause)
	}
}

// A pause beyond the time of the call is the caller's to wait, and the server is left alone meanwhile.
func TestLongRetryAfterIsReported(t *testing.T) {
	t.Parallel()
	const pause, timeout = 10 * time.Second, 5 * time.Second // and as much is left for a machine that stands still
	var asked atomic.Int64
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		refuse(w, pause)
	}))
	c := openClient(t, remotestore.Config{Servers: []string{s.URL}, Timeout: timeout})
	for range 3 {
		_, err := c.Leader(within(t), "g")
		wantUnavailable(t, "read at a server that asked for a pause", err)
		var unavailable *baton.UnavailableError
		if !errors.As(err, &unavailable) || unavailable.RetryAfter <= timeout || unavailable.RetryAfter > pause {
			t.Errorf("the error %v does not tell how long to wait", err)
		}
	}
	if asked.Load() != 1 {
		t.Errorf("the server was asked %d times: want once", asked.Load())
	}
}

// What a server has said is told, also if nobody answers any more when it is asked again; and how
// long nobody answered is told in round figures.
func TestWordsOfAServerOutlastSilence(t *testing.T) {
	t.Parallel()
	silent := make(chan struct{})
	var asked atomic.Int64
	talks := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			refuse(w, time.Millisecond)
			return
		}
		<-silent
	}))
	hangs := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-silent }))
	t.Cleanup(func() { close(silent) }) // before the servers are closed, which wait for it
	for _, tt := range []struct {
		what    string
		servers []string
		want    string
	}{
		{"one that answers once, then not", []string{talks.URL}, `test: store unavailable$`},
		{"one that never answers", []string{hangs.URL}, `no answer within \d{3}ms$`},
		{"nobody", []string{deadURL(t)}, `connection refused$`},
	} {
		said := false
		var err error
		for try := 0; try < 10 && !said; try++ { // this machine may stand still for as long as a call lasts
			asked.Store(0)
			_, err = openClient(t, remotestore.Config{Servers: tt.servers, Timeout: 500 * time.Millisecond}).Leader(within(t), "g")
			wantUnavailable(t, tt.what, err)
			said = err != nil && regexp.MustCompile(tt.want).MatchString(err.Error())
		}
		if !said {
			t.Errorf("%s: %v: want %s", tt.what, err, tt.want)
		}
	}
}

func TestDeadServer(t *testing.T) {
	t.Parallel()
	dead := deadURL(t)
	_, err := remotestore.New(within(t), remotestore.Config{Servers: []string{dead}, Logger: quiet()})
	wantUnavailable(t, "connect to nobody", err)
	c := openClient(t, remotestore.Config{Servers: []string{dead}})
	wantUnavailable(t, "resign at nobody", c.Resign(within(t), "g", api.ResignRequest{NodeID: "n", InstanceID: "i", Term: 1}))
	for _, err := range c.Watch(within(t), "g", "") {
		wantUnavailable(t, "watch at nobody", err)
	}
	s := serve(t, newHandler(t, newMemory(t)))
	if _, err := openClient(t, remotestore.Config{Servers: []string{dead, s.URL}}).Leader(within(t), "g"); err != nil {
		t.Errorf("read with one of two servers dead: %v", err)
	}
	// What was refused at the door had no effect, so the next answer is one.
	version := uint64(5)
	_, err = openClient(t, remotestore.Config{Servers: []string{dead, s.URL}}).PutGroup(within(t), api.Group{GroupID: "g", Version: &version})
	if !errors.Is(err, baton.ErrConflict) {
		t.Errorf("put an unknown version with one of two servers dead: got %v, want ErrConflict", err)
	}
}

// counting is a transport that counts what is sent.
type counting struct{ sent atomic.Int64 }

func (c *counting) RoundTrip(*http.Request) (*http.Response, error) {
	c.sent.Add(1)
	return nil, errors.New("not connected")
}

// From when Close has returned, nothing is sent any more.
func TestNothingIsSentAfterClose(t *testing.T) {
	t.Parallel()
	wire := &counting{}
	for range 100 {
		c := openClient(t, remotestore.Config{Servers: []string{"127.0.0.1:1"}, Transport: wire})
		_ = c.Close()
		_, err := c.Leader(within(t), "g")
		wantUnavailable(t, "read after close", err)
		for _, err := range c.Watch(within(t), "g", "") {
			wantUnavailable(t, "watch after close", err)
		}
	}
	if n := wire.sent.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// hang answers nothing until the client goes, which shows only once its body was read.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func TestSlowServer(t *testing.T) {
	t.Parallel()
	slow := serve(t, http.HandlerFunc(hang))
	good := serve(t, newHandler(t, newMemory(t)))
	both := openClient(t, remotestore.Config{Servers: []string{slow.URL, good.URL}, Timeout: 2 * time.Second})
	// What is left for the other is little: this machine may be held up for longer.
	if err := drill.Answer(func() error { _, err := both.Leader(within(t), "g"); return err }); err != nil {
		t.Errorf("read with one of two servers slow: %v", err)
	}
	// A renewal leaves the slow server in time for its lease, however patient the client.
	renewing := openClient(t, remotestore.Config{Servers: []string{slow.URL, good.URL}, Timeout: 10 * patience})
	err := drill.Answer(func() error {
		_, err := renewing.Renew(within(t), "g", api.RenewRequest{NodeID: "n", InstanceID: "i", Term: 1, ExtendBy: 1000})
		return err
	})
	if !errors.Is(err, baton.ErrNotLeader) {
		t.Errorf("renew with one of two servers slow: got %v, want the other's answer", err)
	}
	alone := openClient(t, remotestore.Config{Servers: []string{slow.URL}, Timeout: 100 * time.Millisecond})
	_, err = alone.Leader(within(t), "g")
	wantUnavailable(t, "read at a slow server", err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Errorf("the client's own time limit passes for the caller's: %v", err)
	}
	for _, err := range alone.Watch(within(t), "g", "") {
		wantUnavailable(t, "watch at a slow server", err)
	}

	patient := openClient(t, remotestore.Config{Servers: []string{slow.URL}, Timeout: patience})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := patient.Leader(ctx, "g"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read whose context ended: got %v, want its error", err)
	}
	closed := make(chan error, 1)
	go func() {
		_, err := patient.Leader(within(t), "g")
		closed <- err
	}()
	_ = patient.Close()
	wantUnavailable(t, "read at a client that was closed", <-closed)
}

// Over TLS, calls, waits and watches share a connection.
func TestTLS(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(newHandler(t, newMemory(t)))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.StartTLS()
	t.Cleanup(func() { kill(s) })
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	store := open(t, remotestore.Config{Servers: []string{s.URL}, TLS: &tls.Config{RootCAs: roots}})
	ctx := within(t)
	lease, err := store.Acquire(ctx, "g", candidate("a"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	b, turn := candidate("b"), make(chan error, 1)
	go func() { turn <- store.Await(ctx, "g", b) }()
	released := false
	for e, err := range store.Watch(ctx, "g", "") {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == baton.LeaderLost {
			break
		}
		if !released {
			released = true
			if err := store.Release(ctx, lease.ID()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := <-turn; err != nil {
		t.Errorf("await: %v", err)
	}

	_, err = remotestore.New(ctx, remotestore.Config{Servers: []string{s.URL}, Logger: quiet()})
	wantUnavailable(t, "connect to a server whose certificate is not trusted", err)
}
