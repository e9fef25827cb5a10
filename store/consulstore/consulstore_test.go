package consulstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"baton"
	"baton/internal/testserver"
	"baton/store/consulstore"
	"baton/storetest/drill"
)

// The number of Consul's own that counts how often a key was locked begins anew
// when the key is deleted. Terms do not.
func TestTermsSurviveTheLossOfTheRecord(t *testing.T) {
	t.Parallel()
	o := shared(t)
	for n := range 3 {
		drill.Release(t, o, drill.Lead(t, o, "g", fmt.Sprint("i-", n), time.Minute))
	}
	if _, err := o.consul.KV().Delete(o.prefix+"/leases/g", nil); err != nil {
		t.Fatal(err)
	}
	if l, err := o.Get(t.Context(), "g"); err != nil || l.Term != 3 || l.Held() {
		t.Errorf("without its record the group reads %+v, %v: want it vacant after term 3", l, err)
	}
	if l := drill.Lead(t, o, "g", "after", time.Minute); l.Term != 4 {
		t.Errorf("term %d after 3", l.Term)
	}
}

// When a machine leaves Consul its node goes from the catalog, and the sessions
// of that node with it. Leases stay.
func TestLeasesOutliveTheNodeOfTheAgent(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Consul)
	consul := raw(t, server, "")
	s := open(t, consulstore.Config{Address: host(t, server.URL)})
	l := drill.Lead(t, s, "g", "i-1", time.Minute)
	agent, err := consul.Agent().NodeName()
	if err != nil {
		t.Fatal(err)
	}
	control, _, err := consul.Session().CreateNoChecks(&api.SessionEntry{Node: agent, TTL: "60s"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := consul.Catalog().Deregister(&api.CatalogDeregistration{Node: agent}, nil); err != nil {
		t.Fatal(err)
	}
	if info, _, err := consul.Session().Info(control, &api.QueryOptions{RequireConsistent: true}); err != nil || info != nil {
		t.Fatalf("a session of the agent's node is %+v, %v: it was to go with the node", info, err)
	}
	if _, err := s.Acquire(t.Context(), "g", candidate("i-2"), time.Minute); !errors.Is(err, baton.ErrHeld) {
		t.Errorf("acquire: %v, want it held", err)
	}
	if _, err := s.Renew(t.Context(), l.ID(), time.Minute); err != nil {
		t.Errorf("renew: %v", err)
	}
}

// Somebody removed the node of our sessions. That ends leaderships, which is
// said in the caveats; the store registers it again by itself.
func TestTheNodeOfTheSessionsIsRegisteredAgain(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Consul)
	s := open(t, consulstore.Config{Address: host(t, server.URL), Node: "leases"})
	l := drill.Lead(t, s, "g", "i-1", time.Minute)
	if _, err := raw(t, server, "").Catalog().Deregister(&api.CatalogDeregistration{Node: "leases"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Renew(t.Context(), l.ID(), time.Minute); !errors.Is(err, baton.ErrNotLeader) {
		t.Errorf("renew after its session was destroyed: %v", err)
	}
	if next := drill.Lead(t, s, "g", "i-2", time.Minute); next.Term != 2 {
		t.Errorf("term %d after 1", next.Term)
	}
}

// A renewal moves the lock to a new session and leaves nothing of the old one.
func TestARenewalIsANewSession(t *testing.T) {
	t.Parallel()
	o := shared(t)
	group := o.prefix
	l := drill.Lead(t, o, group, "i-1", baton.MaxTTL)
	seen := map[string]bool{o.session(t, group): true}
	for range 3 {
		if _, err := o.Renew(t.Context(), l.ID(), time.Minute); err != nil {
			t.Fatal(err)
		}
		seen[o.session(t, group)] = true
	}
	if len(seen) != 4 || seen[""] {
		t.Errorf("the record was locked by %d sessions: want one for the grant and each renewal: %v", len(seen), seen)
	}
	drill.Eventually(t, "the session of the last renewal alone", func() bool { return len(o.sessions(t, group)) == 1 })
	drill.Release(t, o, l)
	drill.Eventually(t, "no session left", func() bool { return len(o.sessions(t, group)) == 0 })
}

// A lease that ran out is written down by whoever looks first.
func TestExpiryIsWrittenDownByWhoLooks(t *testing.T) {
	t.Parallel()
	o := shared(t)
	drill.Lead(t, o, "g", "i-1", ttl)
	drill.Eventually(t, "Consul to end the session", func() bool { return o.session(t, "g") == "" })
	for range 2 {
		past, err := o.History(t.Context(), "g")
		if err != nil || len(past) != 1 || past[0].Reason != baton.Expired || past[0].EndedAt.IsZero() {
			t.Fatalf("history: %+v, %v: want one term that expired", past, err)
		}
	}
	_, err := o.Acquire(t.Context(), "g", candidate("i-1"), time.Minute)
	var conflict *baton.ConflictError
	if !errors.As(err, &conflict) || conflict.Reason != baton.ConflictInstanceEnded {
		t.Errorf("acquire by the instance that expired: %v", err)
	}
}

// Who looks counts from when it first saw the lease. It never tells that less is
// left than the holder was promised.
func TestWhatIsLeftForThoseWhoLook(t *testing.T) {
	t.Parallel()
	o := shared(t)
	sent := time.Now()
	l := drill.Lead(t, o, "g", "i-1", time.Minute)
	until := sent.Add(l.Remaining)
	for _, s := range []baton.Store{o, o.another(t)} {
		var before time.Duration
		for range 3 {
			now, err := s.Get(t.Context(), "g")
			if err != nil {
				t.Fatal(err)
			}
			if now.Remaining < time.Until(until) || now.Remaining > l.TTL {
				t.Errorf("%v is left for those who look, and %v for the holder", now.Remaining, time.Until(until))
			}
			if before != 0 && now.Remaining >= before {
				t.Errorf("%v left after %v, and nobody renewed", now.Remaining, before)
			}
			before = now.Remaining
		}
	}
}

// A lease that is being ended keeps what its holder was promised, no less and no more.
func TestAnEndingLeaseKeepsItsPromise(t *testing.T) {
	t.Parallel()
	o := shared(t)
	sent := time.Now()
	l := drill.Lead(t, o, "g", "i-1", time.Minute)
	session := o.session(t, "g")
	if err := o.End(t.Context(), "g", l.Term, baton.Ending{Reason: baton.SteppedDown}); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]baton.Store{"the store of the grant": o, "another": o.another(t)} {
		r, err := s.Renew(t.Context(), l.ID(), time.Minute)
		if err != nil || r.Ending == nil {
			t.Fatalf("%s: renewal of a lease that is being ended: %+v, %v", name, r, err)
		}
		if most := time.Until(sent.Add(l.TTL)) + time.Since(sent); r.Remaining > most {
			t.Errorf("%s: %v left, of %v", name, r.Remaining, most)
		}
		if (r.Remaining > 0) != (s == baton.Store(o)) {
			t.Errorf("%s: %v left: want it told only by the store that knows", name, r.Remaining)
		}
	}
	if now := o.session(t, "g"); now != session {
		t.Error("a lease that is being ended was given a new session")
	}
}

func TestHistoryKeepsAHundred(t *testing.T) {
	t.Parallel()
	drill.HistoryKeepsAHundred(t, shared(t))
}

// A cursor lasts as long as the history has its term. Behind it nothing is missing,
// though Consul keeps no changes.
func TestCursors(t *testing.T) {
	t.Parallel()
	o := shared(t)
	first := func(after baton.Cursor, n int) (events []baton.Event) {
		for ev, err := range o.Watch(t.Context(), "g", after) {
			if err != nil {
				t.Fatal(err)
			}
			if events = append(events, ev); len(events) == n {
				break
			}
		}
		return events
	}
	beginning := first("", 1)[0].Cursor
	c := candidate("i-0")
	c.Metadata = map[string]string{"zone": "eu-1"}
	l, err := o.Acquire(t.Context(), "g", c, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	drill.Release(t, o, l)
	for n := range 97 {
		drill.Release(t, o, drill.Lead(t, o, "g", fmt.Sprint("i-", n+1), time.Minute))
	}
	all := first(beginning, 2*98)
	for i, ev := range all {
		if ev.Term != baton.Term(i/2+1) || ev.Gap || (ev.Type == baton.LeaderChanged) != (i%2 == 0) {
			t.Fatalf("event %d is %+v", i, ev)
		}
	}
	if all[0].Metadata["zone"] != "eu-1" {
		t.Errorf("the first leader's metadata is %v", all[0].Metadata)
	}
	for n := range 2 {
		drill.Release(t, o, drill.Lead(t, o, "g", fmt.Sprint("j-", n), time.Minute))
	}
	if ev := first(beginning, 1)[0]; !ev.Gap || ev.Term != 100 {
		t.Errorf("behind a cursor that is forgotten: %+v, want the state after term 100 as a gap", ev)
	}
	if ev := first(all[1].Cursor, 1)[0]; !ev.Gap {
		t.Errorf("behind the end of a term that is overwritten: %+v, want a gap", ev)
	}
	if ev := first(all[3].Cursor, 1)[0]; ev.Gap || ev.Term != 3 {
		t.Errorf("behind the oldest term that is there: %+v", ev)
	}
	if err := o.DeleteGroup(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	if ev := first(all[len(all)-1].Cursor, 1)[0]; !ev.Gap || ev.Type != baton.LeaderLost {
		t.Errorf("a group that was deleted: %+v, want a gap", ev)
	}
}

// An agent takes so many connections from one address and no more. Watches
// beyond what a store lets Consul hold open see changes all the same.
func TestMoreWatchesThanConnections(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Consul, testserver.Setting("limits", "{ http_max_conns_per_client = 80 }"))
	s := open(t, consulstore.Config{Address: host(t, server.URL)})
	const watches = 120
	var watching, saw sync.WaitGroup
	watching.Add(watches)
	for range watches {
		saw.Go(func() {
			n := 0
			for ev, err := range s.Watch(t.Context(), "g", "") {
				if err != nil {
					t.Errorf("watch: %v", err)
				}
				if n++; n == 1 {
					watching.Done()
				}
				if err != nil || ev.Type == baton.LeaderChanged {
					return
				}
			}
		})
	}
	watching.Wait()
	drill.Lead(t, s, "g", "i-1", time.Minute)
	saw.Wait()
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := consulstore.New(t.Context(), consulstore.Config{Address: address, Timeout: time.Second}); !errors.Is(err, baton.ErrUnavailable) {
		t.Errorf("new: %v, want ErrUnavailable", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := consulstore.New(ctx, consulstore.Config{Address: address}); !errors.Is(err, context.Canceled) {
		t.Errorf("new with a context that has ended: %v", err)
	}
}

func TestAnOldConsulIsRefused(t *testing.T) {
	t.Parallel()
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"Config":{"Version":"1.13.9"}}`))
	}))
	defer old.Close()
	_, err := consulstore.Open(t.Context(), "consul://"+strings.TrimPrefix(old.URL, "http://"))
	if err == nil || errors.Is(err, baton.ErrUnavailable) || !strings.Contains(err.Error(), "1.13.9") {
		t.Errorf("open: %v, want an error that tells the version", err)
	}
}
