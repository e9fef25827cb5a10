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
	"strconv"
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
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	auth string // a line of every request's head, if not empty

	mu     sync.Mutex
	idle   map[*plainServer][]*exchangeConn // the latest used at the end
	closed bool
	sweep  *time.Timer
}

// plainServer is a server that is reached without TLS, and without a proxy.
type plainServer struct {
	address string
	host    string
	prefix  string // of all paths
}

// newDirect returns nil if the token cannot be sent as it is.
func newDirect(rest *http.Transport, token string) *direct {
	d := &direct{dial: rest.DialContext, idle: map[*plainServer][]*exchangeConn{}}
	if token != "" {
		for _, c := range []byte(token) {
			if c < ' ' || c > '~' {
				return nil
			}
		}
		d.auth = "Authorization: Bearer " + token + "\r\n"
	}
	return d
}

// plain is the server at this base, nil if it is not one that can be asked directly.
func plain(base string, rest *http.Transport) *plainServer {
	req, err := http.NewRequest(http.MethodGet, base, nil) //nolint:noctx // it is not sent
	if err != nil || req.URL.Scheme != "http" {
		return nil
	}
	if rest.Proxy != nil {
		if proxy, err := rest.Proxy(req); proxy != nil || err != nil {
			return nil
		}
	}
	s := &plainServer{address: req.URL.Host, host: req.URL.Host, prefix: req.URL.EscapedPath()}
	if req.URL.Port() == "" {
		s.address = net.JoinHostPort(req.URL.Hostname(), "80")
	}
	return s
}

// exchange sends a request and returns the answer, with its whole body.
func (d *direct) exchange(ctx context.Context, to *plainServer, method, path string, body []byte) (*http.Response, error) {
	c, err := d.connect(ctx, to)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, c.interrupt)
	resp, again, err := c.exchange(method, path, d.auth, body)
	if !stop() {
		again = false // it was interrupted, or is about to be
	}
	if again && err == nil {
		d.keep(c)
	} else {
		_ = c.Close()
	}
	if cause := ctx.Err(); err != nil && cause != nil {
		err = cause
	}
	return resp, err
}

// connect takes a connection that is idle and alive, or makes one.
func (d *direct) connect(ctx context.Context, to *plainServer) (*exchangeConn, error) {
	for {
		c := d.take(to)
		if c == nil {
			break
		}
		if c.alive() {
			return c, nil
		}
		_ = c.Close()
	}
	conn, err := d.dial(ctx, "tcp", to.address)
	if err != nil {
		return nil, err
	}
	c := &exchangeConn{Conn: conn, to: to}
	c.r, c.w = bufio.NewReader(c), bufio.NewWriter(conn)
	return c, nil
}

func (d *direct) take(to *plainServer) *exchangeConn {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.idle[to]
	if len(list) == 0 {
		return nil
	}
	c := list[len(list)-1]
	list[len(list)-1] = nil
	d.idle[to] = list[:len(list)-1]
	return c
}

func (d *direct) keep(c *exchangeConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.idle[c.to]) >= maxIdle {
		_ = c.Close()
		return
	}
	c.since = time.Now()
	d.idle[c.to] = append(d.idle[c.to], c)
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
	for to, list := range d.idle {
		old := 0
		for old < len(list) && time.Since(list[old].since) >= idleTime {
			_ = list[old].Close()
			old++
		}
		d.idle[to] = append(list[:0:0], list[old:]...)
		if left := d.idle[to]; len(left) > 0 && (oldest.IsZero() || left[0].since.Before(oldest)) {
			oldest = left[0].since
		}
	}
	if !oldest.IsZero() && !d.closed {
		d.sweep = time.AfterFunc(max(time.Until(oldest.Add(idleTime)), time.Millisecond), d.drop)
	}
}

// close ends all connections that nobody uses. None is kept from then on.
func (d *direct) close() {
	d.mu.Lock()
	d.closed = true
	for to, list := range d.idle {
		for _, c := range list {
			_ = c.Close()
		}
		delete(d.idle, to)
	}
	if d.sweep != nil {
		d.sweep.Stop()
	}
	d.mu.Unlock()
}

// exchangeConn is a connection that is used for one exchange at a time.
type exchangeConn struct {
	net.Conn
	to    *plainServer
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

// grace is for what has arrived, and was not read because this process did not run.
const grace = 5 * time.Millisecond

// interrupt ends an exchange that is under way.
func (c *exchangeConn) interrupt() { _ = c.SetDeadline(time.Now().Add(grace)) }

// alive reports whether the server has neither closed the connection nor said
// anything that nobody asked for.
func (c *exchangeConn) alive() bool { return c.r.Buffered() == 0 && isQuiet(c.Conn) }

// exchange sends a request and reads its answer, all of it. again tells whether the
// connection can be used for another one.
func (c *exchangeConn) exchange(method, path, auth string, body []byte) (resp *http.Response, again bool, err error) {
	c.left = maxHead + maxAnswer + 1
	// What cannot be written is told by Flush.
	for _, part := range [...]string{
		method, " ", c.to.prefix, path, " HTTP/1.1\r\nHost: ", c.to.host,
		"\r\nUser-Agent: baton-go\r\nAccept: " + typeShort + "\r\n", auth,
	} {
		_, _ = c.w.WriteString(part)
	}
	if body != nil {
		_, _ = c.w.WriteString("Content-Type: " + typeShort + "\r\nContent-Length: ")
		_, _ = c.w.Write(strconv.AppendInt(c.w.AvailableBuffer(), int64(len(body)), 10))
		_, _ = c.w.WriteString("\r\n")
	}
	_, _ = c.w.WriteString("\r\n")
	_, _ = c.w.Write(body)
	if err := c.w.Flush(); err != nil {
		return nil, false, err
	}
	resp, err = c.readHead()
	if err != nil {
		return nil, false, fmt.Errorf("read the answer of %s: %w", c.to.host, err)
	}
	answer, err := readAnswer(resp)
	if err != nil {
		return nil, false, fmt.Errorf("read the answer of %s: %w", c.to.host, err)
	}
	// One that is longer than it says is not to be believed any further.
	again = !resp.Close && len(answer) <= maxAnswer && c.r.Buffered() == 0
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	return resp, again, nil
}

// readHead reads up to the body of an answer.
func (c *exchangeConn) readHead() (*http.Response, error) {
	for range 8 {
		if resp := c.readUsual(); resp != nil {
			return resp, nil
		}
		resp, err := http.ReadResponse(c.r, nil)
		if err != nil || resp.StatusCode >= http.StatusOK {
			return resp, err
		}
	}
	return nil, errors.New("it goes on and on with answers that are none yet")
}

// usual are the headers of an answer as a server of ours writes it. What is
// among them says all that there is to know; nobody changes it.
var usual = http.Header{"Content-Type": typeJSON}

// readUsual reads the head of a success of which all is there, and just as a
// server of ours writes it. Of anything else it reads nothing, and returns nil.
func (c *exchangeConn) readUsual() *http.Response {
	if _, err := c.r.Peek(1); err != nil {
		return nil // it is met again by whoever reads on
	}
	there, _ := c.r.Peek(c.r.Buffered())
	head, _, whole := bytes.Cut(there, []byte("\r\n\r\n"))
	rest, ok := bytes.CutPrefix(head, []byte("HTTP/1.1 200 OK\r\n"))
	if !whole || !ok {
		return nil
	}
	length, typed := int64(-1), false
	for len(rest) > 0 {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		key, value, _ := bytes.Cut(line, []byte(": "))
		switch string(key) {
		case "Content-Length":
			n, err := strconv.ParseUint(string(value), 10, 31)
			if err != nil || length >= 0 {
				return nil
			}
			length = int64(n)
		case "Content-Type":
			if typed || string(value) != typeShort {
				return nil
			}
			typed = true
		case "Cache-Control", "Date", "X-Content-Type-Options":
		default:
			return nil
		}
	}
	if !typed || length < 0 {
		return nil
	}
	_, _ = c.r.Discard(len(head) + 4) // it is there
	return &http.Response{
		StatusCode: http.StatusOK, Header: usual, ContentLength: length,
		Body: io.NopCloser(io.LimitReader(c.r, length)),
	}
}
