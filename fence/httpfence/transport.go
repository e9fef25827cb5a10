package httpfence

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"baton"
	"baton/fence"
)

// Transport makes an http.Client send the claim with every request that may
// change something: the one its context carries, see [ClaimFrom]. A request
// without one is not sent.
//
// A refusal comes back as an error, found with errors.As in what http.Client
// returns, not as a response with a status that may be overlooked. One that is
// stale ends the leadership under which the request's context works.
type Transport struct {
	// Base sends the requests; http.DefaultTransport if nil.
	Base http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if safe(req.Method) {
		return base.RoundTrip(req)
	}
	ctx := req.Context()
	c, err := ClaimFrom(ctx)
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, err
	}
	req = req.Clone(ctx)
	req.Header.Set(fence.Header, fence.FormatHeader(c))
	resp, err := base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if err := ReadError(resp, c); err != nil {
		drain(resp)
		return nil, fence.Report(ctx, err)
	}
	return resp, nil
}

// drain lets the connection be used again.
func drain(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	_ = resp.Body.Close()
}

// Ledger is a Guard as its clients see it.
type Ledger struct {
	client *http.Client
	url    func(resource string) string
}

var _ fence.Ledger = (*Ledger)(nil)

// NewLedger returns the ledger of resources behind a Guard. url returns where a
// resource is. Requests are sent as client does, http.DefaultClient if it is nil.
func NewLedger(client *http.Client, url func(resource string) string) *Ledger {
	if client == nil {
		client = http.DefaultClient
	}
	fenced := *client
	fenced.Transport = &Transport{Base: client.Transport}
	return &Ledger{client: &fenced, url: url}
}

// Do sends a write under c. Its errors are those of the ledger, or leave the
// outcome unknown; a response is the handler's own.
func (l *Ledger) Do(req *http.Request, c fence.Claim) (*http.Response, error) {
	return l.client.Do(req.WithContext(WithClaim(req.Context(), c)))
}

// Adopt implements fence.Ledger.
func (l *Ledger) Adopt(ctx context.Context, resource string, t baton.Token) (fence.Record, error) {
	r, err := l.act(ctx, http.MethodPost, ActAdopt, resource, fence.Unordered(t))
	if err == nil && r.Token() != t {
		return fence.Record{}, fmt.Errorf("adopt resource %q for %v: answered with a record of %v", resource, t, r)
	}
	return r, err
}

// Advance implements fence.Ledger.
func (l *Ledger) Advance(ctx context.Context, resource string, c fence.Claim) error {
	if err := fence.RequireOrdered(c); err != nil {
		return err
	}
	r, err := l.act(ctx, http.MethodPost, ActAdvance, resource, c)
	if seq, _ := c.Seq(); err == nil && r.LastSeq < seq {
		return fmt.Errorf("advance resource %q to %v: answered with a record of %v", resource, c, r)
	}
	return err
}

// Read implements fence.Ledger.
func (l *Ledger) Read(ctx context.Context, resource string) (fence.Record, error) {
	return l.act(ctx, http.MethodGet, ActRead, resource, fence.Claim{})
}

func (l *Ledger) act(ctx context.Context, method, act, resource string, c fence.Claim) (fence.Record, error) {
	if err := fence.ValidateResource(resource); err != nil {
		return fence.Record{}, err
	}
	r, err := l.ask(WithClaim(ctx, c), method, act, resource)
	if err != nil {
		return fence.Record{}, fmt.Errorf("%s resource %q: %w", act, resource, err)
	}
	return r, nil
}

func (l *Ledger) ask(ctx context.Context, method, act, resource string) (fence.Record, error) {
	req, err := http.NewRequestWithContext(ctx, method, l.url(resource), nil)
	if err != nil {
		return fence.Record{}, err
	}
	req.Header.Set(ActHeader, act)
	resp, err := l.client.Do(req)
	if err != nil {
		return fence.Record{}, err
	}
	defer drain(resp)
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fence.Record{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return fence.Record{}, fmt.Errorf("answered %s: %.200s", resp.Status, body)
	}
	var r Record
	if err := json.Unmarshal(body, &r); err != nil {
		return fence.Record{}, fmt.Errorf("read the answer: %w", err)
	}
	return fence.Record(r), nil
}
