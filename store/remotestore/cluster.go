package remotestore

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"baton"
	"baton/api"
)

// Cluster reads the cluster of servers that keeps the leases.
func (c *Client) Cluster(ctx context.Context) (api.ClusterResponse, error) {
	k := call{op: "look at the cluster", method: http.MethodGet, path: "/v1/cluster", has: []string{"server_id", "servers"}}
	out, _, err := do[api.ClusterResponse](ctx, c, k, nil)
	return out, err
}

// changeWait is what a server needs to see a change of the cluster through, or to give it up.
const changeWait = 6 * time.Second

// AddServer makes a server part of the cluster. ErrUnavailable says that it
// has no vote yet, or that this is not known; the same call goes on from there.
func (c *Client) AddServer(ctx context.Context, req api.AddServerRequest) error {
	if err := baton.ValidateID("server_id", req.ServerID); err != nil {
		return err
	}
	k := call{op: "add server", method: http.MethodPost, path: "/v1/cluster/servers", body: req, wait: changeWait}
	_, unsure, err := do(ctx, c, k, checkOK)
	return settle(k.op, unsure, err, nil)
}

// RemoveServer takes a server out of the cluster.
func (c *Client) RemoveServer(ctx context.Context, id string) error {
	if err := baton.ValidateID("server_id", id); err != nil {
		return err
	}
	k := call{op: "remove server", method: http.MethodDelete, path: "/v1/cluster/servers/" + url.PathEscape(id), wait: changeWait}
	_, unsure, err := do(ctx, c, k, checkOK)
	return settle(k.op, unsure, err, baton.ErrNotFound)
}
