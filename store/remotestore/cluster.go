package remotestore

import (
	"context"
	"io"
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

// Backup reads the state of the cluster, as a file that can be restored. What
// is read is only a backup when all of it has been, and was found to be whole.
func (c *Client) Backup(ctx context.Context) (io.ReadCloser, error) {
	scoped, cancel := c.scope(ctx)
	k := call{op: "back up", method: http.MethodGet, path: "/v1/cluster/backup", wait: backupWait}
	_, resp, err := c.openStream(scoped, k, typeFile) //nolint:bodyclose // whoever gets it closes it
	if err != nil {
		cancel()
		return nil, err
	}
	return &scopedBody{resp.Body, cancel}, nil
}

// backupWait is what a server may take to make a backup, before it sends any of it.
const backupWait = time.Minute

// scopedBody is an answer that is read at leisure.
type scopedBody struct {
	io.ReadCloser
	end context.CancelFunc
}

func (b *scopedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
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
