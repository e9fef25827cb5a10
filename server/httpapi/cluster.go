package httpapi

import (
	"net/http"
	"slices"
	"strconv"

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

// backup sends a file, in pieces: whoever takes them slowly has WriteTimeout for each.
func (h *Handler) backup(x *exchange) (int, any, error) {
	x.lasts = true
	file, err := h.svc.Backup(x.acting())
	if err != nil {
		return 0, nil, err
	}
	head := x.w.Header()
	head.Set("Content-Type", "application/octet-stream")
	head.Set("Content-Length", strconv.Itoa(len(file)))
	head["Cache-Control"] = noStore
	for piece := range slices.Chunk(file, 64<<10) {
		h.allowWrite(x.w)
		if _, err := x.w.Write(piece); err != nil {
			h.log.Info("backup cut off: it was not read", "from", x.r.RemoteAddr, "error", err)
			break
		}
	}
	return 0, nil, nil
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
