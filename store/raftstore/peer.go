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

// httpPeers asks other servers over HTTP.
type httpPeers struct{ *raftnode.Client }

func newHTTPPeers(dial raftnode.Dialer) *httpPeers { return &httpPeers{raftnode.NewClient(dial)} }

func (p *httpPeers) term(ctx context.Context, to raftnode.Addressee) (uint64, error) {
	body, err := p.Post(ctx, to, "/term", nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(string(body), 10, 64)
}

func (p *httpPeers) call(ctx context.Context, to raftnode.Addressee, q request) (response, error) {
	body, err := p.Ask(ctx, to, "/call", q)
	var refused *net.OpError
	switch {
	case errors.As(err, &refused) && refused.Op == "dial", errors.Is(err, raftnode.ErrStarting), errors.Is(err, raftnode.ErrNotMeant):
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
