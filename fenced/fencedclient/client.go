// Package fencedclient talks to the protected resource of the fleet, the
// program baton/cmd/fenced.
//
// A leader takes each resource that it will write, before it reads any, and
// then writes in order:
//
//	ticks, err := client.Take(ctx, "ticks") // ctx is the leadership's
//	...
//	_, err = ticks.Tick(ctx, fencedclient.Tick{ScheduledForMS: due})
//
// A refusal comes back as the error of package fence that it is, and one that
// is stale has ended the leadership.
package fencedclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"baton"
	"baton/fence"
	"baton/fence/httpfence"
)

// Client is the ledger of the resources behind one server.
type Client struct {
	base string
	http *http.Client
}

var _ fence.Ledger = (*Client)(nil)

// New returns a client of the server at base, such as http://127.0.0.1:7410.
// Requests are sent as hc does, http.DefaultClient if it is nil.
func New(base string, hc *http.Client) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, &baton.InvalidArgumentError{Field: "server", Value: base, Want: "a URL such as http://127.0.0.1:7410"}
	}
	if hc == nil {
		hc = http.DefaultClient
	}
	fenced := *hc
	fenced.Transport = &httpfence.Transport{Base: hc.Transport}
	fenced.CheckRedirect = sameMethod(hc.CheckRedirect)
	return &Client{base: strings.TrimSuffix(base, "/"), http: &fenced}, nil
}

// sameMethod does not follow a redirect that turns a write into a read, of which
// the answer says nothing about the write. Others are left to next.
func sameMethod(next func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	const most = 10 // as many as http.Client follows by itself
	return func(req *http.Request, via []*http.Request) error {
		switch {
		case req.Method != via[0].Method:
			return http.ErrUseLastResponse
		case next != nil:
			return next(req, via)
		case len(via) >= most:
			return fmt.Errorf("redirected more than %d times", most)
		}
		return nil
	}
}

// Adopt implements fence.Ledger.
func (c *Client) Adopt(ctx context.Context, resource string, t baton.Token) (fence.Record, error) {
	var r httpfence.Record
	if err := c.write(ctx, http.MethodPost, resource, "adopt", fence.Unordered(t), nil, &r); err != nil {
		return fence.Record{}, err
	}
	if adopted := fence.Record(r); adopted.Token() != t {
		return fence.Record{}, fmt.Errorf("adopt resource %q for %v: answered with a record of %v", resource, t, adopted)
	}
	return fence.Record(r), nil
}

// Advance implements fence.Ledger.
func (c *Client) Advance(ctx context.Context, resource string, claim fence.Claim) error {
	if err := fence.RequireOrdered(claim); err != nil {
		return err
	}
	var r httpfence.Record
	if err := c.write(ctx, http.MethodPost, resource, "advance", claim, nil, &r); err != nil {
		return err
	}
	if seq, _ := claim.Seq(); r.LastSeq < seq {
		return fmt.Errorf("advance resource %q to %v: answered with a record of %v", resource, claim, fence.Record(r))
	}
	return nil
}

// Read implements fence.Ledger.
func (c *Client) Read(ctx context.Context, resource string) (fence.Record, error) {
	var r httpfence.Record
	err := c.read(ctx, resource, "", &r)
	return fence.Record(r), err
}

// Tick records a tick.
func (c *Client) Tick(ctx context.Context, resource string, claim fence.Claim, t Tick) error {
	return c.write(ctx, http.MethodPost, resource, "ticks", claim, t, nil)
}

// Numbers takes count numbers. With an ordered claim they are those up to its
// own; without, the server chooses, and commits what many ask for at once.
func (c *Client) Numbers(ctx context.Context, resource string, claim fence.Claim, count int64) (Numbers, error) {
	var n Numbers
	if err := c.write(ctx, http.MethodPost, resource, "sequence", claim, Count{count}, &n); err != nil {
		return Numbers{}, err
	}
	if n.First < 1 || n.Last-n.First+1 != count {
		return Numbers{}, fmt.Errorf("take %d numbers of resource %q: answered with those from %d to %d", count, resource, n.First, n.Last)
	}
	return n, nil
}

// SaveCheckpoint replaces the resource's checkpoint.
func (c *Client) SaveCheckpoint(ctx context.Context, resource string, claim fence.Claim, s Saved) error {
	return c.write(ctx, http.MethodPut, resource, "checkpoint", claim, s, nil)
}

// Checkpoint reads it. baton.ErrNotFound if there is none.
func (c *Client) Checkpoint(ctx context.Context, resource string) (Checkpoint, error) {
	var p Checkpoint
	err := c.read(ctx, resource, "checkpoint", &p)
	if err == nil && p.Term == 0 {
		err = fmt.Errorf("read the checkpoint of resource %q: answered with one that nobody wrote", resource)
	}
	return p, err
}

// Landed reads whether a write under an ordered claim is there.
func (c *Client) Landed(ctx context.Context, resource string, claim fence.Claim) (bool, error) {
	seq, ok := claim.Seq()
	if !ok {
		return false, fence.RequireOrdered(claim)
	}
	found, err := c.list(ctx, resource, "writes/"+strconv.FormatInt(seq, 10))
	if err != nil {
		return false, err
	}
	t := claim.Token()
	for _, w := range found {
		if w.Term == t.Term && w.InstanceID == t.InstanceID {
			return true, nil
		}
	}
	return false, nil
}

// Writes lists accepted writes in their order, from the one after this id on. It
// may return fewer than there are, and none only at the end.
func (c *Client) Writes(ctx context.Context, resource string, after int64) ([]AcceptedWrite, error) {
	return c.list(ctx, resource, "writes?after="+strconv.FormatInt(after, 10))
}

func (c *Client) list(ctx context.Context, resource, what string) ([]AcceptedWrite, error) {
	var found Writes
	err := c.read(ctx, resource, what, &found)
	if err == nil && found.Writes == nil { // absent is not empty
		err = fmt.Errorf("list writes to resource %q: answered without a list", resource)
	}
	return found.Writes, err
}

// Audit has the server look at all accepted writes, or at those of one resource.
func (c *Client) Audit(ctx context.Context, resource string) (Audit, error) {
	path := "/v1/audit"
	if resource != "" {
		path += "?resource=" + url.QueryEscape(resource)
	}
	var a Audit
	return a, c.do(ctx, http.MethodGet, path, nil, &a)
}

// Health asks how the server is. One that is ill is a *baton.UnavailableError.
func (c *Client) Health(ctx context.Context) (Health, error) {
	var h Health
	return h, c.do(ctx, http.MethodGet, "/healthz", nil, &h)
}

func (c *Client) read(ctx context.Context, resource, what string, answer any) error {
	if err := fence.ValidateResource(resource); err != nil {
		return err
	}
	return c.do(ctx, http.MethodGet, path(resource, what), nil, answer)
}

func (c *Client) write(ctx context.Context, method, resource, what string, claim fence.Claim, body, answer any) error {
	if err := fence.ValidateResource(resource); err != nil {
		return err
	}
	if err := claim.Validate(); err != nil {
		return err
	}
	err := c.do(httpfence.WithClaim(ctx, claim), method, path(resource, what), body, answer)
	var unexpected *statusError
	if errors.As(err, &unexpected) && unexpected.refuses() {
		return &fence.AbortedError{Err: err} // to try again would not help
	}
	return err
}

func path(resource, what string) string {
	p := "/v1/resources/" + url.PathEscape(resource)
	if what != "" {
		p += "/" + what
	}
	return p
}

func (c *Client) do(ctx context.Context, method, path string, body, answer any) error {
	err := c.exchange(ctx, method, path, body, answer)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// maxAnswer has room for the longest list of writes.
const maxAnswer = 16 << 20

func (c *Client) exchange(ctx context.Context, method, path string, body, answer any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return &baton.InvalidArgumentError{Field: "body", Value: err.Error(), Want: "JSON"}
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the rest of it is said already
		}
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer: %w", err)
	case resp.StatusCode != http.StatusOK:
		return failure(method+" "+path, resp, text)
	case answer == nil:
		answer = new(nothing)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}

// nothing is the answer to a write that has no other: an empty object, as no page or
// gateway that is merely well would say it.
type nothing struct{}

func (*nothing) UnmarshalJSON(text []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil || fields == nil || len(fields) > 0 {
		return fmt.Errorf("%.200s is not what the server says", text)
	}
	return nil
}

// statusError is an answer that is neither 200 nor a refusal of the ledger's.
type statusError struct {
	status int
	text   string
	kind   error // if it is the server's own word
}

func (e *statusError) Error() string {
	return fmt.Sprintf("answered %d %s: %s", e.status, http.StatusText(e.status), e.text)
}

// Is matches the kind.
func (e *statusError) Is(target error) bool { return e.kind != nil && target == e.kind }

// refuses: the server has said no. Whatever else answers, such as a gateway, may
// have passed the request on before.
func (e *statusError) refuses() bool { return e.kind != nil }

// ownKind is the kind of an error that the server writes beside those of the
// ledger, nil if the answer is not in its words.
func ownKind(resp *http.Response, text []byte) error {
	var body struct {
		Error string `json:"error"`
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || media != "application/json" || json.Unmarshal(text, &body) != nil {
		return nil
	}
	for _, own := range []error{baton.ErrNotFound, baton.ErrTooLarge} {
		if kind, _ := baton.KindOf(own); kind.Code == body.Error && kind.HTTP == resp.StatusCode {
			return own
		}
	}
	return nil
}

func failure(op string, resp *http.Response, text []byte) error {
	err := &statusError{resp.StatusCode, fmt.Sprintf("%.500s", bytes.TrimSpace(text)), ownKind(resp, text)}
	if resp.StatusCode == http.StatusServiceUnavailable {
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return &baton.UnavailableError{Op: op, RetryAfter: time.Duration(after) * time.Second, Err: err}
	}
	return err
}
