package httpapi

import (
	"net/http"

	"baton/api"
)

func (h *Handler) clusterStatus(x *exchange) (int, any, error) {
	st, err := h.svc.ClusterStatus(x.r.Context())
	if err != nil {
		return 0, nil, err
	}
	answer := api.ClusterResponse{
		ServerID: st.Server, ClusterID: st.Cluster, LeaderID: st.Leader, State: st.State, RaftTerm: st.RaftTerm,
		CommitIndex: st.CommitIndex, AppliedIndex: st.AppliedIndex, LastLogIndex: st.LastLogIndex,
		LastContact: api.Millis(st.LastContact), Leases: st.Leases,
		Servers: make([]api.ClusterServer, 0, len(st.Servers)),
	}
	for _, m := range st.Servers {
		server := api.ClusterServer{
			ServerID: m.ID, Address: m.Address, Voter: m.Voter, Leader: m.Leader,
			Reached: m.Reached, AppliedIndex: m.AppliedIndex, StateHash: m.StateHash,
		}
		if m.Reached && m.AppliedIndex < st.CommitIndex {
			server.Lag = st.CommitIndex - m.AppliedIndex
		}
		answer.Servers = append(answer.Servers, server)
	}
	return http.StatusOK, answer, nil
}

func (h *Handler) addServer(x *exchange) (int, any, error) {
	var req api.AddServerRequest
	if err := h.decode(x, &req, api.IgnoreUnknown); err != nil {
		return 0, nil, err
	}
	if err := h.svc.AddServer(x.acting(), req.ServerID, req.Address); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, api.OKResponse{OK: true}, nil
}

func (h *Handler) removeServer(x *exchange) (int, any, error) {
	if err := h.svc.RemoveServer(x.acting(), x.r.PathValue("server_id")); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, api.OKResponse{OK: true}, nil
}
