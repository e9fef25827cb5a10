package remotestore

import (
	"context"
	"net/http"

	"baton"
	"baton/api"
)

// Groups lists the groups.
func (c *Client) Groups(ctx context.Context) (api.GroupsResponse, error) {
	k := call{op: "list groups", method: http.MethodGet, path: "/v1/groups", has: []string{"groups"}}
	out, _, err := do[api.GroupsResponse](ctx, c, k, nil)
	return out, err
}

// Group reads one group.
func (c *Client) Group(ctx context.Context, id string) (api.Group, error) {
	return read[api.Group](ctx, c, "read group", id, "", "group_id", "policy")
}

// CreateGroup registers a group that is not registered yet.
func (c *Client) CreateGroup(ctx context.Context, g api.Group) (api.Group, error) {
	if err := baton.ValidateID("group_id", g.GroupID); err != nil {
		return api.Group{}, err
	}
	return c.writeGroup(ctx, "create group", http.MethodPost, "/v1/groups", g)
}

// PutGroup registers a group or changes it; given a version, only that one.
func (c *Client) PutGroup(ctx context.Context, g api.Group) (api.Group, error) {
	if err := baton.ValidateID("group_id", g.GroupID); err != nil {
		return api.Group{}, err
	}
	return c.writeGroup(ctx, "put group", http.MethodPut, groupPath(g.GroupID, ""), g)
}

func (c *Client) writeGroup(ctx context.Context, op, method, path string, g api.Group) (api.Group, error) {
	if g.AllowedNodes == nil {
		g.AllowedNodes = []string{}
	}
	k := call{
		op: op, about: baton.LeaseID{Group: g.GroupID},
		method: method, path: path, body: g, has: []string{"group_id", "policy"},
	}
	out, unsure, err := do[api.Group](ctx, c, k, nil)
	return out, settle(op, unsure, err, nil)
}

// DeleteGroup forgets a vacant group.
func (c *Client) DeleteGroup(ctx context.Context, id string) error {
	if err := baton.ValidateID("group_id", id); err != nil {
		return err
	}
	k := call{
		op: "delete group", about: baton.LeaseID{Group: id},
		method: http.MethodDelete, path: groupPath(id, ""),
	}
	_, unsure, err := do(ctx, c, k, checkOK)
	return settle(k.op, unsure, err, baton.ErrNotFound)
}
