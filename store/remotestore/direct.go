package remotestore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// idleTime is how long a connection is kept that nobody uses: less than a server keeps it.
	idleTime = 60 * time.Second
	// maxIdle bounds how many are kept for each server.
	maxIdle = 512
	// maxHead bounds the head of an answer.
	maxHead = 1 << 20
)

// direct makes short exchanges over plain HTTP/1.1 in the goroutine that asks:
// it writes the request and reads the answer by itself. A transport of
// net/http takes two more goroutines for each connection, and waking them costs more than the
// request does. Whatever is not short or not plain is left to such a transport.
type direct struct {
	rest *http.Transport
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	idle   map[string][]*exchangeConn // by host, the latest used at the end
	plain  map[string]bool            // by host: no proxy is in between
	closed bool
	sweep  *time.Timer
}

func newDirect(rest *http.Transport) *direct {
	return &direct{rest: rest, dial: rest.DialContext, idle: map[string][]*exchangeConn{}, plain: map[string]bool{}}
}

// RoundTrip implements http.RoundTripper.
func (d *direct) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "http" || req.Header.Get("Accept") != typeShort || !d.isPlain(req) {
		return d.rest.RoundTrip(req)
	}
	c, err := d.connect(req)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(req.Context(), c.interrupt)
	resp, again, err := c.exchange(req)
	if !stop() {
		again = false // it was interrupted, or is about to be
	}
	if again && err == nil {
		d.keep(c)
	} else {
		_ = c.Close()
	}
	if cause := req.Context().Err(); err != nil && cause != nil {
		err = cause
	}
	return resp, err
}

// isPlain reports whether the server is reached without a proxy.
func (d *direct) isPlain(req *http.Request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	plain, known := d.plain[req.URL.Host]
	if !known {
		var proxy *url.URL
		var err error
		if d.rest.Proxy != nil {
			proxy, err = d.rest.Proxy(req)
		}
		plain = proxy == nil && err == nil
		d.plain[req.URL.Host] = plain
	}
	return plain
}

// connect takes a connection that is idle and alive, or makes one.
func (d *direct) connect(req *http.Request) (*exchangeConn, error) {
	host := req.URL.Host
	for {
		c := d.take(host)
		if c == nil {
			break
		}
		if c.alive() {
			return c, nil
		}
		_ = c.Close()
	}
	address := host
	if req.URL.Port() == "" {
		address = net.JoinHostPort(req.URL.Hostname(), "80")
	}
	conn, err := d.dial(req.Context(), "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &exchangeConn{Conn: conn, host: host}
	c.r, c.w = bufio.NewReader(c), bufio.NewWriter(conn)
	return c, nil
}

func (d *direct) take(host string) *exchangeConn {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.idle[host]
	if len(list) == 0 {
		return nil
	}
	c := list[len(list)-1]
	list[len(list)-1] = nil
	d.idle[host] = list[:len(list)-1]
	return c
}

func (d *direct) keep(c *exchangeConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.idle[c.host]) >= maxIdle {
		_ = c.Close()
		return
	}
	c.since = time.Now()
	d.idle[c.host] = append(d.idle[c.host], c)
	if d.sweep == nil {
		d.sweep = time.AfterFunc(idleTime, d.drop)
	}
}

// drop closes what has been idle for too long, and comes back if something is left.
func (d *direct) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sweep = nil
	var oldest time.Time
	for host, list := range d.idle {
		old := 0
		for old < len(list) && time.Since(list[old].since) >= idleTime {
			_ = list[old].Close()
			old++
		}
		d.idle[host] = append(list[:0:0], list[old:]...)
		if left := d.idle[host]; len(left) > 0 && (oldest.IsZero() || left[0].since.Before(oldest)) {
			oldest = left[0].since
		}
	}
	if !oldest.IsZero() && !d.closed {
		d.sweep = time.AfterFunc(max(time.Until(oldest.Add(idleTime)), time.Millisecond), d.drop)
	}
}

// CloseIdleConnections is what a client does last: no connection is kept from then on.
func (d *direct) CloseIdleConnections() {
	d.mu.Lock()
	d.closed = true
	for host, list := range d.idle {
		for _, c := range list {
			_ = c.Close()
		}
		delete(d.idle, host)
	}
	if d.sweep != nil {
		d.sweep.Stop()
	}
	d.mu.Unlock()
	d.rest.CloseIdleConnections()
}

// exchangeConn is a connection that is used for one exchange at a time.
type exchangeConn struct {
	net.Conn
	host  string
	r     *bufio.Reader
	w     *bufio.Writer
	left  int64 // how much more may be read in this exchange
	since time.Time
}

var errTooMuch = errors.New("more than an answer may have")

// Read reads no more than an answer may have.
func (c *exchangeConn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooMuch
	}
	n, err := c.Conn.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	return n, err
}

// interrupt ends an exchange that is under way.
func (c *exchangeConn) interrupt() { _ = c.SetDeadline(time.Unix(1, 0)) }

// alive reports whether the server has neither closed the connection nor said
// anything that nobody asked for.
func (c *exchangeConn) alive() bool { return c.r.Buffered() == 0 && isQuiet(c.Conn) }

// exchange sends a request and reads its answer, all of it. again tells whether the
// connection can be used for another one.
func (c *exchangeConn) exchange(req *http.Request) (resp *http.Response, again bool, err error) {
	c.left = maxHead + maxAnswer + 1
	if err := req.Write(c.w); err != nil {
		return nil, false, err
	}
	if err := c.w.Flush(); err != nil {
		return nil, false, err
	}
	for range 8 {
		if resp, err = http.ReadResponse(c.r, req); err != nil {
			return nil, false, fmt.Errorf("read the answer of %s: %w", c.host, err)
		}
		if resp.StatusCode >= http.StatusOK {
			break
		}
	}
	if resp.StatusCode < http.StatusOK {
		return nil, false, fmt.Errorf("%s answers %s again and again", c.host, resp.Status)
	}
	body, err := readAnswer(resp)
	if err != nil {
		return nil, false, fmt.Errorf("read the answer of %s: %w", c.host, err)
	}
	again = !resp.Close && len(body) <= maxAnswer
	if again && resp.ContentLength >= 0 {
		// One that is longer than it says is not to be believed any further.
		again = c.r.Buffered() == 0
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, again, nil
}
