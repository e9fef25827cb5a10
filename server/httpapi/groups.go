package httpapi

import (
	"net/http"

	"baton"
	"baton/api"
)

func (h *Handler) listGroups(x *exchange) (int, any, error) {
	groups, err := h.svc.Groups(x.r.Context())
	if err != nil {
		return 0, nil, err
	}
	answer := api.GroupsResponse{Groups: make([]api.Group, 0, len(groups))}
	for _, g := range groups {
		answer.Groups = append(answer.Groups, api.GroupOf(g))
	}
	return http.StatusOK, answer, nil
}

func (h *Handler) getGroup(x *exchange) (int, any, error) {
	g, err := h.svc.Group(x.r.Context(), x.group())
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, api.GroupOf(g), nil
}

func (h *Handler) createGroup(x *exchange) (int, any, error) {
	var req api.Group
	if err := h.decode(x, &req, api.RefuseUnknown); err != nil {
		return 0, nil, err
	}
	if req.Version != nil && *req.Version != 0 {
		return 0, nil, &baton.InvalidArgumentError{Field: "version", Value: *req.Version, Want: "none: a new group has no version yet"}
	}
	g, err := h.svc.CreateGroup(x.acting(), req.Group())
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, api.GroupOf(g), nil
}

func (h *Handler) putGroup(x *exchange) (int, any, error) {
	var req api.Group
	if err := h.decode(x, &req, api.RefuseUnknown); err != nil {
		return 0, nil, err
	}
	id := x.group()
	if req.GroupID != "" && req.GroupID != id {
		return 0, nil, &baton.InvalidArgumentError{Field: "group_id", Value: req.GroupID, Want: "the path's, or none"}
	}
	req.GroupID = id
	g, err := h.svc.PutGroup(x.acting(), req.Group(), req.Version)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, api.GroupOf(g), nil
}

func (h *Handler) deleteGroup(x *exchange) (int, any, error) {
	if err := h.svc.DeleteGroup(x.acting(), x.group()); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, api.OKResponse{OK: true}, nil
}

func (h *Handler) stepDown(x *exchange) (int, any, error) {
	var req api.StepDownRequest
	if err := h.decode(x, &req, api.IgnoreUnknown); err != nil {
		return 0, nil, err
	}
	lease, err := h.svc.StepDown(x.acting(), x.group(), baton.Term(req.Term), req.Ending())
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, api.StepDownResponse{OK: true, Term: uint64(lease.Term), NodeID: lease.NodeID}, nil
}

func (h *Handler) members(x *exchange) (int, any, error) {
	members, err := h.svc.Members(x.r.Context(), x.group())
	if err != nil {
		return 0, nil, err
	}
	answer := api.MembersResponse{Members: make([]api.Member, 0, len(members))}
	for _, m := range members {
		role := api.RoleCandidate
		if m.Leads {
			role = api.RoleLeader
		}
		answer.Members = append(answer.Members, api.Member{
			NodeID: m.NodeID, InstanceID: m.InstanceID, Role: role,
			LastSeen: m.LastSeen.UnixMilli(), Metadata: m.Metadata,
		})
	}
	return http.StatusOK, answer, nil
}

func (h *Handler) history(x *exchange) (int, any, error) {
	terms, err := h.svc.History(x.r.Context(), x.group())
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, api.HistoryOf(terms), nil
}
