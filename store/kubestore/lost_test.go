package kubestore_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"baton"
	"baton/internal/testserver"
	"baton/store/kubestore"
	"baton/storetest"
	"baton/storetest/history"
)

// badLuck is what happens to single requests on their way to the API server,
// the reads and updates that one call of the store is made of.
type badLuck struct {
	mu   sync.Mutex
	rng  *rand.Rand
	late sync.WaitGroup
}

var errLostOnTheWay = errors.New("lost on the way")

func (b *badLuck) draw() (fate int, after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rng.IntN(20), time.Duration(b.rng.Int64N(int64(faultTTL + faultTTL/2)))
}

type unlucky struct {
	*badLuck
	next http.RoundTripper
}

func (u unlucky) WrappedRoundTripper() http.RoundTripper { return u.next }

func (u unlucky) RoundTrip(request *http.Request) (*http.Response, error) {
	var body []byte
	if request.Body != nil {
		var err error
		if body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
		_ = request.Body.Close()
	}
	again := func(ctx context.Context) (*http.Response, error) {
		r := request.Clone(ctx)
		if request.Body != nil {
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		return u.next.RoundTrip(r)
	}
	unread := func(ctx context.Context) {
		if response, err := again(ctx); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
	}
	if request.URL.Query().Get("watch") != "" {
		return again(request.Context())
	}
	fate, after := u.draw()
	later := func() {
		u.late.Go(func() {
			<-time.After(after)
			unread(context.WithoutCancel(request.Context()))
		})
	}
	switch fate {
	case 0: // the request is lost
		return nil, errLostOnTheWay
	case 1: // the answer is lost
		unread(request.Context())
		return nil, errLostOnTheWay
	case 2: // the request comes when nobody waits for it any more
		later()
		return nil, errLostOnTheWay
	case 3: // the request comes twice
		later()
	}
	return again(request.Context())
}

func TestHistoryWithRequestsLostLateAndRepeated(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t, testserver.Kubernetes)
	namespace := freshNamespace(t, client(t, s))
	luck := &badLuck{rng: rand.New(rand.NewPCG(1, 2))}
	f := storetest.StartFleet(t, storetest.FleetConfig{TTL: faultTTL, Patience: patience, Open: func() baton.Store {
		cfg := config(t, s.URL, "admin")
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return unlucky{luck, next} })
		store, err := kubestore.New(kubestore.Config{REST: cfg, Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { luck.late.Wait(); _ = store.Close() })
		return store
	}})
	f.More("grants in spite of bad luck", 40)
	f.Judge(history.Options{})
	luck.late.Wait()
}
