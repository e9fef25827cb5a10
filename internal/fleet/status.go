package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"baton"
)

// Role is what a node is in its group.
type Role string

const (
	// RoleLeader: it holds a lease that it can trust.
	RoleLeader Role = "leader"
	// RoleFollower: another leads, as far as it knows; it waits for its turn.
	RoleFollower Role = "follower"
	// RoleCandidate: it campaigns and knows of no leader.
	RoleCandidate Role = "candidate"
)

// Roles are all roles.
var Roles = []Role{RoleLeader, RoleFollower, RoleCandidate}

// Status is what a node answers to GET /status.
type Status struct {
	NodeID string `json:"node_id"`
	Role   Role   `json:"role"`
	// FenceToken is the term of the leadership that the node holds, 0 if it holds none.
	FenceToken baton.Term `json:"fence_token"`
	// LeaseTTLRemainingMS is for how long it would trust that leadership without a renewal.
	LeaseTTLRemainingMS int64 `json:"lease_ttl_remaining_ms"`

	Group   string `json:"group"`
	Backend string `json:"backend"`
	PID     int    `json:"pid"`
	// Acting: the leader's work is going on.
	Acting bool `json:"acting"`
	// Leader is who leads, as far as the node knows.
	Leader *Leader `json:"leader"`
	// WallMS is the node's wall clock, with its skew. Nothing depends on it.
	WallMS int64 `json:"wall_ms"`
	// WritesAccepted and WritesRefused count what the resource said to this process.
	WritesAccepted int64 `json:"writes_accepted"`
	WritesRefused  int64 `json:"writes_refused"`
}

// Leader says where to find a leader.
type Leader struct {
	NodeID string `json:"node_id"`
	// Address is where it serves HTTP; empty if it did not say.
	Address string     `json:"address"`
	Term    baton.Term `json:"term"`
}

// Number is what a leader answers to POST /next.
type Number struct {
	Token baton.Term `json:"token"`
	Seq   int64      `json:"seq"`
}

// The codes of a request that was refused.
const (
	// CodeNotLeader, with status 409: ask the leader that is named.
	CodeNotLeader = "NOT_LEADER"
	// CodeNoLeader, with status 503: nobody is known to lead; ask again.
	CodeNoLeader = "NO_LEADER"
	// CodeUnavailable, with status 503: the leader could not commit a number,
	// or stopped leading meanwhile; ask again.
	CodeUnavailable = "UNAVAILABLE"
	// CodeUnknown, with status 503: the leader could not find out whether it
	// committed a number for this request. Nobody gets that number; ask again.
	CodeUnknown = "UNKNOWN"
	// CodeConflict, with status 409: the backend does not hand over to a named
	// node, or not to this one.
	CodeConflict = "CONFLICT"
)

// Refusal is the answer to POST /next without a number, of which none was given
// out, and to POST /resign of a node that goes on.
type Refusal struct {
	Code    string  `json:"error"`
	Message string  `json:"message"`
	Leader  *Leader `json:"leader"`
}

func (r *Refusal) Error() string { return r.Code + ": " + r.Message }

// Resignation is the body of POST /resign.
type Resignation struct {
	// To is the node that goes first; empty for whoever is next.
	To string `json:"to,omitempty"`
}

// maxAnswer is more than any answer of a node has.
const maxAnswer = 64 << 10

// GetStatus asks the node at address.
func GetStatus(ctx context.Context, hc *http.Client, address string) (Status, error) {
	var s Status
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/status", nil)
	if err != nil {
		return s, err
	}
	resp, err := hc.Do(req)
	if err != nil {
		return s, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return s, fmt.Errorf("ask %s for its status: answered %s", address, resp.Status)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&s); err != nil {
		return s, fmt.Errorf("read the status of %s: %w", address, err)
	}
	return s, nil
}

// Statuses asks all nodes at once. One that does not answer, or answers for
// another node, is left out.
func (f *File) Statuses(ctx context.Context, hc *http.Client) map[string]Status {
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		found = map[string]Status{}
	)
	for _, n := range f.Nodes {
		wg.Go(func() {
			s, err := GetStatus(ctx, hc, n.HTTP)
			if err != nil || s.NodeID != n.ID {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			found[n.ID] = s
		})
	}
	wg.Wait()
	return found
}

// Claims are the nodes that say they lead, the highest token first.
func Claims(statuses map[string]Status) []Status {
	var claims []Status
	for _, s := range statuses {
		if s.Role == RoleLeader {
			claims = append(claims, s)
		}
	}
	slices.SortFunc(claims, func(a, b Status) int { return cmp.Compare(b.FenceToken, a.FenceToken) })
	return claims
}

// Next asks the node at address for a number, and the leader that it names
// instead, if it names one. It returns a *Refusal if nobody gave one out.
// After any other error, one may have been given out and lost on its way.
func Next(ctx context.Context, hc *http.Client, address string) (Number, error) {
	const hops = 3
	for hop := 0; ; hop++ {
		n, err := nextFrom(ctx, hc, address)
		var refusal *Refusal
		if hop == hops || !errors.As(err, &refusal) || refusal.Leader == nil || refusal.Leader.Address == "" || refusal.Leader.Address == address {
			return n, err
		}
		address = refusal.Leader.Address
	}
}

func nextFrom(ctx context.Context, hc *http.Client, address string) (Number, error) {
	var n Number
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/next", nil)
	if err != nil {
		return n, err
	}
	resp, err := hc.Do(req)
	if err != nil {
		return n, err
	}
	defer func() { _ = resp.Body.Close() }()
	body := io.LimitReader(resp.Body, maxAnswer)
	switch resp.StatusCode {
	case http.StatusOK:
		if err := json.NewDecoder(body).Decode(&n); err != nil {
			return n, fmt.Errorf("read a number of %s: %w", address, err)
		}
		if n.Token == 0 {
			return n, fmt.Errorf("ask %s for a number: answered with none", address)
		}
		return n, nil
	case http.StatusConflict, http.StatusServiceUnavailable:
		refusal := &Refusal{}
		if err := json.NewDecoder(body).Decode(refusal); err != nil {
			return n, fmt.Errorf("read why %s gave no number: %w", address, err)
		}
		if refusal.Code == "" { // whoever says so is no node
			return n, fmt.Errorf("ask %s for a number: answered %s", address, resp.Status)
		}
		return n, refusal
	}
	return n, fmt.Errorf("ask %s for a number: answered %s", address, resp.Status)
}

// Resign asks the node at address to give up its leadership, in favour of the node to if
// that is not empty. A *Refusal says why it does not.
func Resign(ctx context.Context, hc *http.Client, address, to string) error {
	body, err := json.Marshal(Resignation{To: to})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/resign", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := hc.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	refusal := &Refusal{}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(refusal); err != nil || refusal.Code == "" {
		return fmt.Errorf("ask %s to resign: answered %s", address, resp.Status)
	}
	return refusal
}
