package api

// ClusterResponse is the answer of GET /v1/cluster: the servers that keep the
// leases, as the one that answers sees them.
type ClusterResponse struct {
	// ServerID is the one that answers; State, indexes and LastContact are its own.
	ServerID  string `json:"server_id"`
	ClusterID string `json:"cluster_id"`
	// LeaderID leads the cluster; empty if none is known.
	LeaderID string `json:"leader_id"`
	// State is "leader", "follower", "candidate" or "shutdown".
	State        string `json:"state"`
	RaftTerm     uint64 `json:"raft_term"`
	CommitIndex  uint64 `json:"commit_index"`
	AppliedIndex uint64 `json:"applied_index"`
	LastLogIndex uint64 `json:"last_log_index"`
	// LastContact is how long ago this server heard of the leader; 0 on the leader.
	LastContact int64           `json:"last_contact_ms"`
	Leases      int             `json:"leases"`
	Servers     []ClusterServer `json:"servers"`
}

// ClusterServer is one server of the cluster.
type ClusterServer struct {
	ServerID string `json:"server_id"`
	// Address is that of its peer port.
	Address string `json:"address"`
	Voter   bool   `json:"voter"`
	Leader  bool   `json:"leader"`
	// Reached tells whether it answered; if not, what follows is absent.
	Reached      bool   `json:"reached"`
	AppliedIndex uint64 `json:"applied_index,omitempty"`
	// Lag is how many entries it has yet to apply, as far as the one that answers knows.
	Lag uint64 `json:"lag,omitempty"`
	// StateHash is equal on all servers that have applied the same entries.
	StateHash string `json:"state_hash,omitempty"`
}

// AddServerRequest is the body of POST /v1/cluster/servers.
type AddServerRequest struct {
	ServerID string `json:"server_id"`
	// Address is that of its peer port, as the other servers reach it.
	Address string `json:"address"`
}
