package raftstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"

	"baton/internal/raftnode"
)

// httpPeers asks other servers: over a line what is asked often, and over HTTP all else.
type httpPeers struct {
	*raftnode.Client
	lines *lines
}

func newHTTPPeers(dial raftnode.Dialer) *httpPeers {
	return &httpPeers{raftnode.NewClient(dial), newLines(dial)}
}

// Close ends all connections. What waits for an answer will not get one.
func (p *httpPeers) Close() {
	p.lines.close()
	p.Client.Close()
}

func (p *httpPeers) term(ctx context.Context, to raftnode.Addressee) (uint64, error) {
	body, err := p.lines.ask(ctx, to, askTerm, nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(body), 10, 64)
}

func (p *httpPeers) call(ctx context.Context, to raftnode.Addressee, q request) (response, error) {
	body, err := p.pass(ctx, to, q)
	var refused *net.OpError
	var unsent *unsent
	switch {
	case errors.As(err, &unsent), errors.As(err, &refused) && refused.Op == "dial", errors.Is(err, raftnode.ErrStarting), errors.Is(err, raftnode.ErrNotMeant):
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

// pass takes a request to the leader. One whose answer may be long has a connection of its own.
func (p *httpPeers) pass(ctx context.Context, to raftnode.Addressee, q request) ([]byte, error) {
	if q.Op == "groups" || q.Op == "history" {
		return p.Ask(ctx, to, "/call", q)
	}
	b, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	return p.lines.ask(ctx, to, askCall, b)
}
