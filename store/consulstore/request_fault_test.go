package consulstore_test

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
	"baton/store/consulstore"
)

// badLuck is what happens to single requests on their way to Consul, the
// sessions and transactions that one call of the store is made of.
type badLuck struct {
	next *http.Transport
	mu   sync.Mutex
	rng  *rand.Rand
	late sync.WaitGroup
}

var errLostOnTheWay = errors.New("lost on the way")

func (b *badLuck) draw() (fate int, after time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rng.IntN(25), time.Duration(b.rng.Int64N(int64(ttl + ttl/2)))
}

func (b *badLuck) RoundTrip(request *http.Request) (*http.Response, error) {
	var body []byte
	if request.Body != nil {
		var err error
		if body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
		_ = request.Body.Close()
	}
	send := func(ctx context.Context) (*http.Response, error) {
		copied := request.Clone(ctx)
		copied.Body = io.NopCloser(bytes.NewReader(body))
		return b.next.RoundTrip(copied)
	}
	unread := func(ctx context.Context) {
		if response, err := send(ctx); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
	}
	fate, after := b.draw()
	later := func() {
		b.late.Go(func() {
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
	return send(request.Context())
}

func TestHistoryWithRequestsLostLateAndRepeated(t *testing.T) {
	t.Parallel()
	server := testserver.Start(t, testserver.Consul)
	var stores []baton.Store
	var all []*badLuck
	for i := range 3 {
		luck := &badLuck{next: &http.Transport{MaxIdleConnsPerHost: 10}, rng: rand.New(rand.NewPCG(uint64(i), 2))}
		t.Cleanup(func() { luck.late.Wait(); luck.next.CloseIdleConnections() })
		all = append(all, luck)
		stores = append(stores, open(t, consulstore.Config{Address: host(t, server.URL), Transport: luck}))
	}
	f := startFleet(t, stores...)
	f.more("grants in spite of bad luck", 25)
	f.judge()
	for _, luck := range all {
		luck.late.Wait()
	}
}
