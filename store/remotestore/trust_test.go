package remotestore_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"baton"
	"baton/store/remotestore"
)

// Attempts that are slow and lost, and the one that gets through: whoever
// counts what was left from before the call never trusts the lease for longer than the store does.
func TestRepetitionNeverStretchesTrust(t *testing.T) {
	t.Parallel()
	memory := newMemory(t)
	inner := newHandler(t, memory)
	var attempts atomic.Int64
	s := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || attempts.Add(1)%2 == 0 {
			inner.ServeHTTP(w, r)
			return
		}
		inner.ServeHTTP(httptest.NewRecorder(), r)
		select { // the answer takes a while to get lost
		case <-time.After(100 * time.Millisecond):
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}))
	store := open(t, remotestore.Config{Servers: []string{s.URL}})
	clock := baton.SystemClock()
	ctx := within(t)
	check := func(what string, sent time.Duration, lease baton.Lease) {
		t.Helper()
		now, err := memory.Get(ctx, "g")
		if err != nil {
			t.Fatal(err)
		}
		// The store's deadline is at the latest what it says is left, from when its answer is here.
		if trusted, deadline := sent+lease.Remaining, clock.Now()+now.Remaining; trusted > deadline {
			t.Errorf("%s: trusted for %v beyond the store's deadline", what, trusted-deadline)
		}
	}
	sent := clock.Now()
	lease, err := store.Acquire(ctx, "g", candidate("n"), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	check("acquire", sent, lease)
	for range 3 {
		sent = clock.Now()
		if lease, err = store.Renew(ctx, lease.ID(), 10*time.Second); err != nil {
			t.Fatal(err)
		}
		check("renew", sent, lease)
	}
	if n := attempts.Load(); n != 8 {
		t.Errorf("%d attempts for 4 calls: want every first one lost", n)
	}
}

// Hundreds that wait in line do not keep the holder from renewing, nor each other from waiting.
func TestManyWaitAndTheHolderRenews(t *testing.T) {
	t.Parallel()
	const waiting = 300
	memory := newMemory(t)
	store := open(t, remotestore.Config{Servers: []string{serve(t, newHandler(t, memory)).URL}})
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	lease, err := store.Acquire(ctx, "g", candidate("leader"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	turns := make(chan baton.Candidate, waiting)
	var all sync.WaitGroup
	for range waiting {
		c := candidate("waiting")
		all.Go(func() {
			switch err := store.Await(ctx, "g", c); {
			case err == nil:
				turns <- c
			case ctx.Err() == nil:
				t.Errorf("await: %v", err)
			}
		})
	}
	for range 50 {
		if _, err := store.Renew(ctx, lease.ID(), time.Minute); err != nil {
			t.Fatalf("renew among %d that wait: %v", waiting, err)
		}
	}
	if err := store.Release(ctx, lease.ID()); err != nil {
		t.Fatal(err)
	}
	select {
	case c := <-turns:
		if _, err := store.Acquire(ctx, "g", c, time.Minute); err != nil {
			t.Logf("the turn had passed: %v", err) // this process may have been held up
		}
	case <-ctx.Done():
		t.Error("nobody was told its turn")
	}
	cancel()
	all.Wait()
}
