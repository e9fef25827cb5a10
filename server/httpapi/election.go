package httpapi

import (
	"net/http"

	"baton"
	"baton/api"
	"baton/server"
)

func (h *Handler) campaign(x *exchange) (int, any, error) {
	var req api.CampaignRequest
	if err := h.decode(x, &req, api.IgnoreUnknown); err != nil {
		return 0, nil, err
	}
	x.lasts = req.Wait > 0
	out, err := h.svc.Campaign(x.r.Context(), x.group(), server.Campaign{
		Candidate: req.Candidate(),
		TTL:       api.Duration(req.LeaseTTL),
		Wait:      api.Duration(req.Wait),
	})
	if err != nil {
		return 0, nil, err
	}
	answer := api.CampaignResponse{
		IsLeader:   out.Leads,
		YourTurn:   out.Turn,
		Leader:     api.LeaderOf(out.Lease, h.svc.Now()),
		InstanceID: out.InstanceID,
	}
	if answer.Leader == nil {
		answer.Term = uint64(out.Lease.Term)
	}
	if !out.Leads {
		retry := api.MillisUp(out.RetryAfter)
		answer.RetryAfter = &retry
	}
	return http.StatusOK, answer, nil
}

func (h *Handler) renew(x *exchange) (int, any, error) {
	var req api.RenewRequest
	if err := h.decode(x, &req, api.IgnoreUnknown); err != nil {
		return 0, nil, err
	}
	lease, err := h.svc.Renew(x.r.Context(), req.LeaseID(x.group()), api.Duration(req.ExtendBy))
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, api.RenewResponse{OK: true, Leader: api.LeaderOf(lease, h.svc.Now())}, nil
}

func (h *Handler) resign(x *exchange) (int, any, error) {
	var req api.ResignRequest
	if err := h.decode(x, &req, api.IgnoreUnknown); err != nil {
		return 0, nil, err
	}
	if err := h.svc.Resign(x.r.Context(), req.LeaseID(x.group()), req.Successor); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, api.OKResponse{OK: true}, nil
}

func (h *Handler) leader(x *exchange) (int, any, error) {
	lease, err := h.svc.Leader(x.r.Context(), x.group())
	if err != nil {
		return 0, nil, err
	}
	return http.StatusOK, api.LeaderResponse{Leader: api.LeaderOf(lease, h.svc.Now()), Term: uint64(lease.Term)}, nil
}

func (h *Handler) isLeader(x *exchange) (int, any, error) {
	node := x.r.PathValue("node_id")
	if err := baton.ValidateID("node_id", node); err != nil {
		return 0, nil, err
	}
	lease, err := h.svc.Leader(x.r.Context(), x.group())
	if err != nil {
		return 0, nil, err
	}
	answer := api.IsLeaderResponse{IsLeader: lease.NodeID == node && lease.Remaining > 0, Term: uint64(lease.Term)}
	if !answer.IsLeader {
		return http.StatusServiceUnavailable, answer, nil
	}
	return http.StatusOK, answer, nil
}
