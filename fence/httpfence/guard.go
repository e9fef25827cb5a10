package httpfence

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"baton"
	"baton/fence"
)

// Config is what a Guard is made of. The zero Config is good.
type Config struct {
	// Ledger remembers the records over a restart of this process; without it
	// they are forgotten, and a leader of the past could adopt again. It is
	// written by every Adopt and every ordered write, before the handler is
	// called. No other process may use it for the same resources.
	Ledger fence.Ledger
	// AdoptWait bounds how long an Adopt over HTTP waits for handlers of the
	// past to return; 30 s if zero.
	AdoptWait time.Duration
}

// Guard is the ledger of resources that live in this process.
type Guard struct {
	cfg   Config
	mu    sync.Mutex
	gates map[string]*gate // of resources that were adopted
}

var _ fence.Ledger = (*Guard)(nil)

// New returns a guard.
func New(cfg Config) *Guard {
	if cfg.AdoptWait <= 0 {
		cfg.AdoptWait = 30 * time.Second
	}
	return &Guard{cfg: cfg, gates: make(map[string]*gate)}
}

// gate returns the way into a resource. One that nobody has adopted has none,
// so that names which are only asked for do not pile up.
func (g *Guard) gate(ctx context.Context, resource string, create bool) (*gate, error) {
	g.mu.Lock()
	known := g.gates[resource]
	g.mu.Unlock()
	if known != nil {
		return known, nil
	}
	var r fence.Record
	if g.cfg.Ledger != nil {
		var err error
		if r, err = g.cfg.Ledger.Read(ctx, resource); err != nil {
			return nil, err
		}
	}
	if !r.Adopted() && !create {
		return nil, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.gates[resource]; known != nil {
		return known, nil
	}
	way := newGate(resource, g.cfg.Ledger, r)
	g.gates[resource] = way
	return way, nil
}

// Adopt implements fence.Ledger, for use inside this process.
func (g *Guard) Adopt(ctx context.Context, resource string, t baton.Token) (fence.Record, error) {
	if _, err := (fence.Record{}).Adopt(resource, t); err != nil {
		return fence.Record{}, err
	}
	way, err := g.gate(ctx, resource, true)
	if err != nil {
		return fence.Record{}, err
	}
	r, err := way.adopt(ctx, t)
	return r, fence.Report(ctx, err)
}

// Advance implements fence.Ledger, for use inside this process.
func (g *Guard) Advance(ctx context.Context, resource string, c fence.Claim) error {
	if err := fence.RequireOrdered(c); err != nil {
		return err
	}
	return g.Write(ctx, resource, c, func(context.Context) error { return nil })
}

// Read implements fence.Ledger.
func (g *Guard) Read(ctx context.Context, resource string) (fence.Record, error) {
	if err := fence.ValidateResource(resource); err != nil {
		return fence.Record{}, err
	}
	way, err := g.gate(ctx, resource, false)
	if way == nil {
		return fence.Record{}, err
	}
	return way.read(), nil
}

// Write calls effect if c is let in, and returns what it returns. It is what
// Protect does for handlers, for use inside this process. The context that
// effect is given ends when a later leadership adopts; until effect has
// returned that one waits.
func (g *Guard) Write(ctx context.Context, resource string, c fence.Claim, effect func(ctx context.Context) error) error {
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	leave, err := g.enter(ctx, resource, c, cancel)
	if err != nil {
		return fence.Report(ctx, err)
	}
	defer leave()
	return effect(within)
}

func (g *Guard) enter(ctx context.Context, resource string, c fence.Claim, pass func(error)) (leave func(), err error) {
	if err := fence.ValidateResource(resource); err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	way, err := g.gate(ctx, resource, false)
	if err != nil {
		return nil, err
	}
	if way == nil {
		return nil, &fence.NotAdoptedError{Resource: resource, Offered: c}
	}
	v := &visit{claim: c, pass: pass}
	if err := way.enter(ctx, v); err != nil {
		return nil, err
	}
	return func() { way.leave(v) }, nil
}

// Fixed is for handlers that serve one resource.
func Fixed(resource string) func(*http.Request) string {
	return func(*http.Request) string { return resource }
}

// Protect returns a handler that calls next for requests that are let in, and
// speaks the ledger's part of the protocol. resource names the resource that a
// request is for. next finds the claim with [ClaimFrom], and its context carries the token.
func (g *Guard) Protect(resource func(*http.Request) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := r.Header.Get(ActHeader)
		switch {
		case act != "":
			g.act(w, r, act, resource(r))
		case safe(r.Method):
			next.ServeHTTP(w, r)
		default:
			g.serve(w, r, resource(r), next)
		}
	})
}

func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

func (g *Guard) serve(w http.ResponseWriter, r *http.Request, resource string, next http.Handler) {
	c, err := ReadClaim(r)
	if err != nil {
		WriteError(w, err)
		return
	}
	ctx, cancel := context.WithCancelCause(WithClaim(r.Context(), c))
	defer cancel(nil)
	r = r.WithContext(ctx)
	line := newLine(w, r, cancel)
	leave, err := g.enter(ctx, resource, c, line.cut)
	if err != nil {
		WriteError(w, err)
		return
	}
	defer leave()
	defer line.restore()
	next.ServeHTTP(w, r)
}

// act does what a request asks of the ledger itself.
func (g *Guard) act(w http.ResponseWriter, r *http.Request, act, resource string) {
	method := http.MethodPost
	if act == ActRead {
		method = http.MethodGet
	}
	if r.Method != method {
		w.Header().Set("Allow", method)
		http.Error(w, fmt.Sprintf("%s %s is asked for with %s", ActHeader, act, method), http.StatusMethodNotAllowed)
		return
	}
	record, err := g.answer(r, act, resource)
	if err != nil {
		WriteError(w, err)
		return
	}
	WriteRecord(w, record)
}

func (g *Guard) answer(r *http.Request, act, resource string) (fence.Record, error) {
	ctx := r.Context()
	if act == ActRead {
		return g.Read(ctx, resource)
	}
	c, err := ReadClaim(r)
	if err != nil {
		return fence.Record{}, err
	}
	switch act {
	case ActAdopt:
		ctx, cancel := context.WithTimeout(ctx, g.cfg.AdoptWait)
		defer cancel()
		return g.Adopt(ctx, resource, c.Token())
	case ActAdvance:
		if err := g.Advance(ctx, resource, c); err != nil {
			return fence.Record{}, err
		}
		return g.Read(ctx, resource)
	}
	return fence.Record{}, &baton.InvalidArgumentError{Field: ActHeader, Value: act, Want: "adopt, advance or read"}
}

type claimKey struct{}

// WithClaim returns a context whose requests are made under c. It carries c's
// token too, as fence.TokenFrom finds it.
func WithClaim(ctx context.Context, c fence.Claim) context.Context {
	return context.WithValue(fence.WithToken(ctx, c.Token()), claimKey{}, c)
}

// ClaimFrom returns the claim that ctx carries: the one given to WithClaim, else
// an unordered one of its token. Without either it is a *baton.InvalidArgumentError.
func ClaimFrom(ctx context.Context) (fence.Claim, error) {
	if c, ok := ctx.Value(claimKey{}).(fence.Claim); ok {
		return c, nil
	}
	t, err := fence.TokenFrom(ctx)
	return fence.Unordered(t), err
}
