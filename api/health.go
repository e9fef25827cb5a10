package api

import (
	"slices"

	"baton"
)

// HealthResponse is the answer of GET /healthz: the process runs.
type HealthResponse struct {
	Status string `json:"status"`
}

// ReadyResponse is the answer of GET /readyz: the store decides, and what it promises.
type ReadyResponse struct {
	Status     string     `json:"status"`
	Guarantees Guarantees `json:"guarantees"`
}

// Guarantees is what the server's store promises.
type Guarantees struct {
	Store          string   `json:"store"`
	MinTTL         int64    `json:"min_ttl_ms"`
	MaxTTL         int64    `json:"max_ttl_ms"`
	TTLStep        int64    `json:"ttl_step_ms"`
	ExpiryLag      int64    `json:"expiry_lag_ms"`
	Time           string   `json:"time"`
	QuorumRenewals bool     `json:"quorum_renewals"`
	DurableTerms   bool     `json:"durable_terms"`
	FailoverTerms  bool     `json:"failover_terms"`
	DeletionTerms  bool     `json:"deletion_terms"`
	Extends        bool     `json:"extends"`
	Waiting        string   `json:"waiting"`
	Transfers      bool     `json:"transfers"`
	Caveats        []string `json:"caveats"`
}

// GuaranteesOf shows g. Whole milliseconds are rounded up, so that none promises too much.
func GuaranteesOf(g baton.Guarantees) Guarantees {
	return Guarantees{
		Store:  g.Store,
		MinTTL: MillisUp(g.MinTTL), MaxTTL: Millis(g.MaxTTL), TTLStep: MillisUp(g.TTLStep), ExpiryLag: MillisUp(g.ExpiryLag),
		Time:           string(g.Time),
		QuorumRenewals: g.QuorumRenewals,
		DurableTerms:   g.DurableTerms, FailoverTerms: g.FailoverTerms, DeletionTerms: g.DeletionTerms,
		Extends: g.Extends, Waiting: string(g.Waiting), Transfers: g.Transfers,
		Caveats: append([]string{}, g.Caveats...),
	}
}

// Guarantees is what the server said, in the store's words.
func (g Guarantees) Guarantees() baton.Guarantees {
	return baton.Guarantees{
		Store:  g.Store,
		MinTTL: Duration(g.MinTTL), MaxTTL: Duration(g.MaxTTL), TTLStep: Duration(g.TTLStep), ExpiryLag: Duration(g.ExpiryLag),
		Time:           baton.TimeKept(g.Time),
		QuorumRenewals: g.QuorumRenewals,
		DurableTerms:   g.DurableTerms, FailoverTerms: g.FailoverTerms, DeletionTerms: g.DeletionTerms,
		Extends: g.Extends, Waiting: baton.Waiting(g.Waiting), Transfers: g.Transfers,
		Caveats: slices.Clone(g.Caveats),
	}
}
