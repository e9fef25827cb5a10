package remotestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"strconv"
	"time"

	"baton"
	"baton/api"
)

const (
	// rounds is how often a call asks every server.
	rounds = 2
	// maxRetryAfter bounds what a server, or whatever answers in its place, can make us wait.
	maxRetryAfter = 10 * time.Second
	// maxAnswer bounds what is read of an answer. A long list of groups is the largest.
	maxAnswer = 16 << 20
)

var errClosed = errors.New("the client is closed")

// What a request accepts: an answer that comes as a whole, changes one by one, a file.
const (
	typeShort  = "application/json"
	typeStream = "text/event-stream"
	typeFile   = "application/octet-stream"
)

// Values of headers that all requests share, as nobody may change a request that is sent.
var (
	userAgent = []string{"baton-go"}
	typeJSON  = []string{"application/json"}
)

// call is one request of the API, to whichever server answers.
type call struct {
	op     string        // for errors: "renew"
	about  baton.LeaseID // for errors, as far as it is known
	method string
	path   string
	body   any
	has    []string // fields without which an answer is no success: absent is not zero
	// lease is what is asked for, if that is a lease: an answer that takes longer is of little use.
	lease time.Duration
	// wait is how long the server was asked to hold the call.
	wait time.Duration
	// once: must not be repeated after an attempt that may have taken effect.
	once bool
}

// failure is an attempt that brought no answer.
type failure struct {
	server     string
	err        error
	retryAfter time.Duration
	// unsent: it certainly had no effect.
	unsent bool
	// said: it is what somebody answered, and not that nobody did.
	said bool
}

func (f *failure) Error() string { return fmt.Sprintf("%s: %v", f.server, f.err) }
func (f *failure) Unwrap() error { return f.err }

// reason is the one of two that tells a caller more: the later one, unless only the earlier has
// the words of a server.
func reason(earlier, later *failure) *failure {
	if earlier != nil && earlier.said && !later.said {
		return earlier
	}
	return later
}

// scope is a context that also ends when the client is closed.
func (c *Client) scope(ctx context.Context) (context.Context, context.CancelFunc) {
	scoped, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.closing, cancel)
	if c.closing.Err() != nil {
		cancel() // AfterFunc does it too, but in its own time
	}
	return scoped, func() { stop(); cancel() }
}

// ended says why a scope of ctx is over.
func (c *Client) ended(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return &baton.UnavailableError{Op: op, Err: errClosed}
}

// do makes the call and returns what the answer holds, if check has nothing
// against it. unsure reports that an attempt before the last may have taken effect.
func do[T any](ctx context.Context, c *Client, k call, check func(T) error) (out T, unsure bool, err error) {
	var body []byte
	if k.body != nil {
		if body, err = json.Marshal(k.body); err != nil {
			return out, false, fmt.Errorf("%s: encode the request: %w", k.op, err)
		}
	}
	unsure, err = c.tryServers(ctx, k, func(ctx context.Context, srv *server) error {
		data, err := c.attempt(ctx, srv, k, body)
		if err != nil {
			return err
		}
		// Into a value of its own: nothing of an attempt that was not good enough may remain.
		var answer T
		if err := k.decode(data, &answer); err != nil {
			return &failure{server: srv.base, err: err}
		}
		if check != nil {
			if err := check(answer); err != nil {
				return &failure{server: srv.base, err: fmt.Errorf("an answer that makes no sense: %w", err)}
			}
		}
		out = answer
		return nil
	})
	return out, unsure, err
}

// decode reads a success.
func (k call) decode(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("decode the answer: %w", err)
	}
	for _, name := range k.has {
		if !hasField(data, name) {
			return fmt.Errorf("an answer without %q", name)
		}
	}
	return nil
}

// hasField reports whether an object has a field of that name. It is given what
// has been decoded before, so it need not ask whether that is JSON, and names
// that a server of ours writes without escapes.
func hasField(object []byte, name string) bool {
	depth, from := 0, -1
	for i := 0; i < len(object); i++ {
		switch c := object[i]; {
		case from >= 0 && c == '\\':
			i++
		case from >= 0 && c == '"':
			if depth == 1 && string(object[from:i]) == name && bytes.HasPrefix(bytes.TrimLeft(object[i+1:], " \t\r\n"), []byte{':'}) {
				return true
			}
			from = -1
		case from >= 0:
		case c == '"':
			from = i + 1
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

// tryServers calls try with one server after the other until it returns
// anything but a *failure.
func (c *Client) tryServers(ctx context.Context, k call, try func(context.Context, *server) error) (unsure bool, err error) {
	asked := ctx
	ctx, cancel := c.scope(ctx)
	defer cancel()
	share := c.share(k) + k.wait
	deadline := c.cfg.Clock.Now() + c.cfg.Timeout + k.wait

	var last, why *failure
	var tried []*server
	for round := 1; ; {
		if ctx.Err() != nil {
			return unsure, c.ended(asked, k.op)
		}
		now := c.cfg.Clock.Now()
		srv, wait := c.servers.next(now, tried)
		if srv == nil {
			if round++; round > rounds {
				return unsure, unavailable(k.op, why, 0)
			}
			tried = tried[:0]
			_, wait = c.servers.next(now, tried)
			wait = max(wait, jitter(100*time.Millisecond))
		}
		if now+wait >= deadline {
			return unsure, unavailable(k.op, why, wait)
		}
		if wait > 0 {
			if c.sleep(ctx, wait) != nil {
				return unsure, c.ended(asked, k.op)
			}
			continue
		}
		tried = append(tried, srv)
		err := c.bounded(ctx, min(share, deadline-now), srv, try)
		if !errors.As(err, &last) {
			return unsure, err
		}
		if ctx.Err() != nil {
			return unsure, c.ended(asked, k.op)
		}
		why = reason(why, last)
		c.cfg.Logger.Debug("baton server failed", "op", k.op, "server", srv.base, "err", last.err)
		c.servers.failed(srv, c.cfg.Clock.Now()+last.retryAfter)
		if !last.unsent {
			unsure = true
			if k.once {
				return unsure, unavailable(k.op, last, 0)
			}
		}
	}
}

// share is the time that one server has to answer. Where there are others, it
// is short enough for them to be asked while the answer is still of use.
func (c *Client) share(k call) time.Duration {
	const least = time.Second
	n := time.Duration(len(c.servers.list))
	if n == 1 {
		return c.cfg.Timeout
	}
	if k.lease > 0 {
		return min(c.cfg.Timeout, max(k.lease, least)) / n
	}
	return c.cfg.Timeout / n
}

// bounded gives one attempt its time.
func (c *Client) bounded(ctx context.Context, d time.Duration, srv *server, try func(context.Context, *server) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := c.cfg.Clock.AfterFunc(d, func() { cancel(fmt.Errorf("no answer within %v", legible(d))) })
	defer stop()
	err := try(ctx, srv)
	var f *failure
	if errors.As(err, &f) && ctx.Err() != nil {
		f.err = context.Cause(ctx)
	}
	return err
}

// legible is a duration without the digits that nobody needs.
func legible(d time.Duration) time.Duration {
	if d >= time.Second {
		return d.Round(10 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

func unavailable(op string, why *failure, wait time.Duration) error {
	e := &baton.UnavailableError{Op: op, RetryAfter: wait}
	if why == nil {
		e.Err = fmt.Errorf("every server asked to be left alone for another %v", legible(wait))
		return e
	}
	// As text: a context's error inside would pass for the caller's own.
	e.Err = errors.New(why.Error())
	e.RetryAfter = max(wait, why.retryAfter)
	return e
}

// attempt sends the request to one server and returns the body of a success.
func (c *Client) attempt(ctx context.Context, srv *server, k call, body []byte) ([]byte, error) {
	resp, err := c.send(ctx, srv, k, body, typeShort)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // all of it was read, or it is not wanted
	data, err := readAnswer(resp)
	switch {
	case err != nil:
		return nil, &failure{server: srv.base, err: fmt.Errorf("read the answer: %w", err)}
	case len(data) > maxAnswer:
		return nil, &failure{server: srv.base, err: fmt.Errorf("an answer of more than %d bytes", maxAnswer)}
	case !isSuccess(resp.StatusCode):
		return nil, refusal(srv, k, resp, data)
	case !hasType(resp, "application/json"):
		return nil, &failure{server: srv.base, err: notBaton(resp)}
	}
	return data, nil
}

// readAnswer reads up to one byte more than an answer may have.
func readAnswer(resp *http.Response) ([]byte, error) {
	if n := resp.ContentLength; n >= 0 && n <= maxAnswer {
		data := make([]byte, n)
		_, err := io.ReadFull(resp.Body, data)
		return data, err
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
}

// send returns the response, or a *failure.
func (c *Client) send(ctx context.Context, srv *server, k call, body []byte, accept string) (*http.Response, error) {
	if srv.plain != nil && accept == typeShort {
		resp, err := c.direct.exchange(ctx, srv.plain, k.method, k.path, body)
		return resp, sendFailure(srv, err)
	}
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, k.method, srv.base+k.path, reader)
	if err != nil {
		return nil, &failure{server: srv.base, err: err, unsent: true}
	}
	req.Header["Accept"] = []string{accept}
	req.Header["User-Agent"] = userAgent
	if body != nil {
		req.Header["Content-Type"] = typeJSON
	}
	if c.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
	resp, err := c.transport.RoundTrip(req)
	return resp, sendFailure(srv, err)
}

// sendFailure is a *failure of what kept a request from being answered, nil if nothing did.
func sendFailure(srv *server, err error) error {
	if err == nil {
		return nil
	}
	var op *net.OpError
	return &failure{server: srv.base, err: err, unsent: errors.As(err, &op) && op.Op == "dial"}
}

// refusal makes an error of an answer that is no success: a server's answer as
// it is, and a *failure of everything that leaves the outcome unknown.
func refusal(srv *server, k call, resp *http.Response, data []byte) error {
	after := retryAfter(resp)
	var body api.Error
	if hasType(resp, "application/json") && json.Unmarshal(data, &body) == nil {
		// Some other program's JSON would not have a code of ours with its status.
		if kind, ok := baton.KindByCode(body.Code); ok && kind.HTTP == resp.StatusCode {
			err := body.Err(k.op, k.about)
			var out *baton.UnavailableError
			if !errors.As(err, &out) {
				return err
			}
			if out.RetryAfter > 0 {
				after = min(out.RetryAfter, maxRetryAfter)
			}
			return &failure{server: srv.base, err: errors.New(body.Message), retryAfter: after, said: true}
		}
	}
	return &failure{server: srv.base, err: notBaton(resp), retryAfter: after, said: true}
}

func notBaton(resp *http.Response) error {
	if to := resp.Header.Get("Location"); resp.StatusCode/100 == 3 && to != "" {
		return errRedirect(to)
	}
	return fmt.Errorf("answered %d with %q, as no Baton server does", resp.StatusCode, resp.Header.Get("Content-Type"))
}

func isSuccess(status int) bool { return status == http.StatusOK || status == http.StatusCreated }

func hasType(resp *http.Response, want string) bool {
	has := resp.Header.Get("Content-Type")
	if has == want {
		return true
	}
	t, _, err := mime.ParseMediaType(has)
	return err == nil && t == want
}

func retryAfter(resp *http.Response) time.Duration {
	s, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || s <= 0 {
		return 0
	}
	return min(time.Duration(min(s, 3600))*time.Second, maxRetryAfter)
}

func (c *Client) sleep(ctx context.Context, d time.Duration) error {
	fired := make(chan struct{})
	stop := c.cfg.Clock.AfterFunc(d, func() { close(fired) })
	defer stop()
	select {
	case <-fired:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// jitter draws from the upper half of d.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}
