package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// wires send the requests of one client, one at a time, over a connection to each
// node that it keeps. The transport of net/http has two goroutines for each connection, and
// with hundreds of clients on the same machine as the fleet that is what would be measured.
type wires struct {
	open map[string]*wire
}

type wire struct {
	net.Conn
	in  *bufio.Reader
	out *bufio.Writer
}

func newWires() *wires { return &wires{open: map[string]*wire{}} }

// RoundTrip implements http.RoundTripper. The answer has been read in full when it
// returns; a connection on which something failed is given up.
func (l *wires) RoundTrip(req *http.Request) (*http.Response, error) {
	k, err := l.to(req.Context(), req.URL.Host)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(req.Context(), func() { _ = k.SetDeadline(time.Unix(1, 0)) })
	resp, err := k.exchange(req)
	if !stop() || err != nil || resp.Close {
		delete(l.open, req.URL.Host)
		_ = k.Close()
	}
	if ctx := req.Context(); err != nil && ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	return resp, err
}

func (l *wires) to(ctx context.Context, host string) (*wire, error) {
	if k := l.open[host]; k != nil {
		return k, nil
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", host)
	if err != nil {
		return nil, err
	}
	k := &wire{conn, bufio.NewReader(conn), bufio.NewWriter(conn)}
	l.open[host] = k
	return k, nil
}

func (k *wire) exchange(req *http.Request) (*http.Response, error) {
	if err := errors.Join(req.Write(k.out), k.out.Flush()); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(k.in, req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

func (l *wires) close() {
	for _, k := range l.open {
		_ = k.Close()
	}
}
