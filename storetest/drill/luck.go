package drill

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Luck is the bad luck of single requests on their way to a server, those that
// one call of a store is made of.
type Luck struct {
	// Repeats: something on the way, or the client itself, sends again what it
	// hears no answer to, and the caller is told the answer to the second.
	Repeats bool

	oneIn  int
	latest time.Duration
	late   sync.WaitGroup

	mu  sync.Mutex
	rng *rand.Rand
}

// ErrLost is what becomes of a request that nobody answers.
var ErrLost = errors.New("lost on the way")

// NewLuck makes bad luck: each kind of it meets one in so many requests, and
// what comes late does so by up to latest.
func NewLuck(seed uint64, oneIn int, latest time.Duration) *Luck {
	return &Luck{oneIn: oneIn, latest: latest, rng: rand.New(rand.NewPCG(seed, 2))}
}

// Settle waits for all that comes late.
func (l *Luck) Settle() { l.late.Wait() }

func (l *Luck) draw() (fate int, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rng.IntN(l.oneIn), time.Duration(l.rng.Int64N(int64(l.latest)))
}

// Send lets a request meet its fate. send sends it and reads the answer, unread
// sends a copy whose answer nobody reads; it fails if there is none.
//
// A request goes out again only when the one before was answered. Copies come
// late, they do not overtake: one that did would be carried out first, and the
// answer would be that to a request which came second.
func (l *Luck) Send(ctx context.Context, send func() error, unread func(context.Context) error) error {
	fate, after := l.draw()
	later := func() {
		l.late.Go(func() {
			<-time.After(after)
			_ = unread(context.WithoutCancel(ctx))
		})
	}
	switch fate {
	case 0: // the request is lost
		return ErrLost
	case 1: // the answer is lost
		_ = unread(ctx)
		return ErrLost
	case 2: // the request comes when nobody waits for it any more
		later()
		return ErrLost
	case 3: // the request comes again later
		err := send()
		if err == nil {
			later()
		}
		return err
	case 4:
		if l.Repeats && unread(ctx) != nil {
			return ErrLost
		}
	}
	return send()
}

// Transport is a way for HTTP requests on which they have this luck, unless
// they are spared; spared may be nil.
func (l *Luck) Transport(next http.RoundTripper, spared func(*http.Request) bool) http.RoundTripper {
	return &transport{luck: l, next: next, spared: spared}
}

type transport struct {
	luck   *Luck
	next   http.RoundTripper
	spared func(*http.Request) bool
}

// WrappedRoundTripper is how client-go finds the connections to close.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *transport) RoundTrip(request *http.Request) (response *http.Response, err error) {
	if t.spared != nil && t.spared(request) {
		return t.next.RoundTrip(request)
	}
	var body []byte
	if request.Body != nil {
		body, err = io.ReadAll(request.Body)
		_ = request.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	copied := func(ctx context.Context) *http.Request {
		r := request.Clone(ctx)
		if request.Body != nil {
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		return r
	}
	err = t.luck.Send(request.Context(), func() (err error) {
		response, err = t.next.RoundTrip(copied(request.Context())) //nolint:bodyclose // the caller's to close
		return err
	}, func(ctx context.Context) error {
		response, err := t.next.RoundTrip(copied(ctx))
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		return response.Body.Close()
	})
	return response, err
}
