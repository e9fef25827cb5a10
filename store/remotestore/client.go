package remotestore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"baton"
	"baton/api"
)

// Client speaks a Baton server's API in the API's own words, with fail-over between
// servers. Tools use it; programs that want to lead use [Store].
type Client struct {
	cfg Config
	// transport does no more than is wanted: an http.Client would follow redirects and keep cookies.
	transport http.RoundTripper
	// direct is for short exchanges with servers that are plain; nil if there are none.
	direct  *direct
	servers *servers

	closing context.Context
	close   context.CancelFunc
}

// NewClient returns a client. It sends nothing yet.
func NewClient(cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, transport: cfg.Transport, servers: newServers(cfg.Servers)}
	c.closing, c.close = context.WithCancel(context.Background())
	if rest, ok := cfg.Transport.(*http.Transport); ok && cfg.own {
		if c.direct = newDirect(rest, cfg.Token); c.direct != nil {
			for _, srv := range c.servers.list {
				srv.plain = plain(srv.base, rest)
			}
		}
	}
	return c, nil
}

// Close ends all calls, watches among them, with ErrUnavailable.
func (c *Client) Close() error {
	c.close()
	if c.direct != nil {
		c.direct.close()
	}
	if t, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
	return nil
}

func groupPath(group, rest string) string { return "/v1/groups/" + url.PathEscape(group) + rest }

// Ready asks whether the server's store decides, and what it promises.
func (c *Client) Ready(ctx context.Context) (api.ReadyResponse, error) {
	out, _, err := do(ctx, c, call{op: "ready", method: http.MethodGet, path: "/readyz"}, func(out api.ReadyResponse) error {
		if g := out.Guarantees; g.Store == "" || g.MaxTTL <= 0 {
			return errors.New("it promises nothing")
		}
		return nil
	})
	return out, err
}

// Campaign asks for the group, or waits in line for it. Without an instance id
// it draws one, so that the request can be repeated.
func (c *Client) Campaign(ctx context.Context, group string, req api.CampaignRequest) (api.CampaignResponse, error) {
	if err := baton.ValidateID("group_id", group); err != nil {
		return api.CampaignResponse{}, err
	}
	if req.InstanceID == "" {
		req.InstanceID = baton.NewInstanceID()
	}
	k := call{
		op: "campaign", about: baton.LeaseID{Group: group, NodeID: req.NodeID, InstanceID: req.InstanceID},
		method: http.MethodPost, path: groupPath(group, "/campaign"), body: req, has: []string{"is_leader", "leader"},
		lease: api.Duration(req.LeaseTTL), wait: api.Duration(req.Wait),
	}
	out, unsure, err := do(ctx, c, k, func(out api.CampaignResponse) error {
		switch {
		case out.IsLeader:
			return checkLeader(out.Leader, req.NodeID, req.InstanceID, 0)
		case out.RetryAfter == nil:
			return errors.New("it does not say when to ask again")
		}
		return nil
	})
	// Waiting in line takes nothing that an earlier attempt could have got.
	return out, settle(k.op, unsure && req.Wait == 0, err, nil)
}

// Renew extends a leadership.
func (c *Client) Renew(ctx context.Context, group string, req api.RenewRequest) (api.RenewResponse, error) {
	if err := baton.ValidateID("group_id", group); err != nil {
		return api.RenewResponse{}, err
	}
	k := call{
		op: "renew", about: req.LeaseID(group),
		method: http.MethodPost, path: groupPath(group, "/renew"), body: req,
		lease: api.Duration(req.ExtendBy),
	}
	out, _, err := do(ctx, c, k, func(out api.RenewResponse) error {
		return checkLeader(out.Leader, req.NodeID, req.InstanceID, req.Term)
	})
	return out, err
}

// checkLeader keeps anything from being concluded from an answer about something else.
// An empty instance or a term of 0 is not compared.
func checkLeader(l *api.Leader, node, instance string, term uint64) error {
	switch {
	case l == nil:
		return errors.New("it names no leader")
	case l.NodeID != node, instance != "" && l.InstanceID != instance, term != 0 && l.Term != term:
		return fmt.Errorf("it is about node %q, instance %q, term %d", l.NodeID, l.InstanceID, l.Term)
	case l.Term == 0 || l.Term > uint64(baton.MaxTerm):
		return fmt.Errorf("term %d", l.Term)
	case l.LeaseRemaining < 0 || l.LeaseRemaining > l.LeaseTTL || api.Duration(l.LeaseTTL) > baton.MaxTTL:
		return fmt.Errorf("%d ms left of a lease of %d ms", l.LeaseRemaining, l.LeaseTTL)
	}
	return nil
}

// Resign gives a leadership up.
func (c *Client) Resign(ctx context.Context, group string, req api.ResignRequest) error {
	if err := baton.ValidateID("group_id", group); err != nil {
		return err
	}
	k := call{
		op: "resign", about: req.LeaseID(group),
		method: http.MethodPost, path: groupPath(group, "/resign"), body: req,
	}
	_, unsure, err := do(ctx, c, k, checkOK)
	return settle(k.op, unsure, err, baton.ErrNotLeader)
}

func checkOK(out api.OKResponse) error {
	if !out.OK {
		return errors.New("neither done nor refused")
	}
	return nil
}

// settle reads an answer that came after an attempt of unknown outcome. done
// says that what was asked for is so; any other refuses the last attempt, and no more.
func settle(op string, unsure bool, err, done error) error {
	switch {
	case !unsure || !baton.IsAnswer(err):
		return err
	case done != nil && errors.Is(err, done):
		return nil
	}
	// As text: this is no answer about the request as the caller knows it.
	return &baton.UnavailableError{Op: op, Err: fmt.Errorf("an earlier attempt may have taken effect; the last was answered: %v", err)}
}

// Leader reads who leads.
func (c *Client) Leader(ctx context.Context, group string) (api.LeaderResponse, error) {
	return read[api.LeaderResponse](ctx, c, "leader", group, "/leader", "leader", "term")
}

// Members reads who takes part, as one server has seen it.
func (c *Client) Members(ctx context.Context, group string) (api.MembersResponse, error) {
	return read[api.MembersResponse](ctx, c, "members", group, "/members", "members")
}

// History reads who led when.
func (c *Client) History(ctx context.Context, group string) (api.HistoryResponse, error) {
	return read[api.HistoryResponse](ctx, c, "history", group, "/history", "terms")
}

// read gets what is at a group's path, which must have these fields.
func read[T any](ctx context.Context, c *Client, op, group, rest string, has ...string) (out T, err error) {
	if err := baton.ValidateID("group_id", group); err != nil {
		return out, err
	}
	k := call{op: op, about: baton.LeaseID{Group: group}, method: http.MethodGet, path: groupPath(group, rest), has: has}
	out, _, err = do[T](ctx, c, k, nil)
	return out, err
}

// StepDown ends a leadership from outside. One that names no term is not
// repeated after an attempt of unknown outcome; but a proxy may repeat it, and
// then it ends the successor, too. One that names its term is safe.
func (c *Client) StepDown(ctx context.Context, group string, req api.StepDownRequest) (api.StepDownResponse, error) {
	if err := baton.ValidateID("group_id", group); err != nil {
		return api.StepDownResponse{}, err
	}
	k := call{
		op: "step down", about: baton.LeaseID{Group: group, Term: baton.Term(req.Term)},
		method: http.MethodPost, path: groupPath(group, "/step-down"), body: req,
		once: req.Term == 0,
	}
	out, unsure, err := do(ctx, c, k, func(out api.StepDownResponse) error { return checkOK(api.OKResponse{OK: out.OK}) })
	if err = settle(k.op, unsure, err, baton.ErrNotLeader); err == nil && !out.OK {
		out = api.StepDownResponse{OK: true, Term: req.Term}
	}
	return out, err
}

// waitChunk is how long one call waits in line. The place outlives the pause
// to the next, and a client that vanished is forgotten soon.
const waitChunk = 15 * time.Second
