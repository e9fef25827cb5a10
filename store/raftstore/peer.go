package raftstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"baton/internal/raftnode"
)

// httpPeers asks other servers over HTTP.
type httpPeers struct{ client *http.Client }

func newHTTPPeers(dial raftnode.Dialer) *httpPeers {
	return &httpPeers{&http.Client{Transport: &http.Transport{
		DialContext:           dial,
		MaxIdleConnsPerHost:   1024,
		IdleConnTimeout:       time.Minute,
		ResponseHeaderTimeout: 0, // a wait in line takes as long as it takes
		DisableCompression:    true,
	}}}
}

func (p *httpPeers) close() { p.client.CloseIdleConnections() }

func (p *httpPeers) term(ctx context.Context, to raftnode.Addressee) (uint64, error) {
	body, err := p.post(ctx, to, "/term", nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(body), 10, 64)
}

func (p *httpPeers) call(ctx context.Context, to raftnode.Addressee, q request) (response, error) {
	body, err := p.ask(ctx, to, "/call", q)
	var refused *net.OpError
	switch {
	case errors.As(err, &refused) && refused.Op == "dial", errors.Is(err, errStarting), errors.Is(err, raftnode.ErrNotMeant):
		return response{}, &notServing{unavailable(q.Op, fmt.Errorf("the leader of the cluster does not answer: %w", err))}
	case err != nil:
		return response{}, unavailable(q.Op, err)
	}
	var a response
	if err := json.Unmarshal(body, &a); err != nil {
		return response{}, unavailable(q.Op, fmt.Errorf("answer of the cluster's leader: %w", err))
	}
	if a.Error != nil {
		return response{}, a.Error.err(q.Op)
	}
	return a, nil
}

// admit asks a server to admit this one. begun tells whether the other one has data of a cluster.
func (p *httpPeers) admit(ctx context.Context, to raftnode.Addressee, q admitRequest) (begun bool, err error) {
	body, err := p.ask(ctx, to, "/admit", q)
	if err != nil {
		return false, err
	}
	var a admitResponse
	if err := json.Unmarshal(body, &a); err != nil {
		return false, err
	}
	if a.Refused {
		return false, raftnode.ErrForgotten
	}
	return a.Begun, nil
}

type admitRequest struct{ ID, Mark string }

type admitResponse struct{ Begun, Refused bool }

func (p *httpPeers) ask(ctx context.Context, to raftnode.Addressee, path string, question any) ([]byte, error) {
	b, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	return p.post(ctx, to, path, b)
}

var errStarting = errors.New("the server is starting")

func (p *httpPeers) post(ctx context.Context, to raftnode.Addressee, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to.Address+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	to.Put(req.Header)
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusServiceUnavailable:
		return nil, errStarting
	case resp.StatusCode == http.StatusMisdirectedRequest:
		return nil, fmt.Errorf("%w: %s", raftnode.ErrNotMeant, bytes.TrimSpace(answer))
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answered %s: %s", to.Address, resp.Status, bytes.TrimSpace(answer))
	}
	return answer, nil
}
