package raftnode

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// AdmitPath is where a port is asked for admission.
const AdmitPath = "/admit"

const maxAdmit = 1 << 10

type admitRequest struct{ ID, Mark string }

type admitResponse struct{ Begun, Refused bool }

// Serve answers a server that asks to be admitted. begun: this one has data of a cluster.
func (a *Admission) Serve(w http.ResponseWriter, r *http.Request, begun bool) {
	var q admitRequest
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxAdmit)).Decode(&q); err != nil || q.ID == "" || q.Mark == "" {
		http.Error(w, "malformed", http.StatusBadRequest)
		return
	}
	answer := admitResponse{Begun: begun}
	switch err := a.Admit(q.ID, q.Mark); {
	case errors.Is(err, ErrForgotten):
		answer.Refused = true
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(answer) // the caller asks again if this is lost
}

// Beginning is what an empty server does before it may vote: it is admitted by
// every server of its cluster, under the mark of its directory.
type Beginning struct {
	Identity Identity
	// Cluster are the addresses of all servers, this one's among them.
	Cluster map[string]string
	Client  *Client
	Log     *slog.Logger
	// Word is what messages call one of them; "server" if it is empty.
	Word string
}

// Servers waits until every other server has admitted this one. If none of them
// has begun, the cluster begins with the servers returned; otherwise
// there are none, and its leader will send this one everything. A server that knows
// this one by another mark: ErrForgotten.
func (b Beginning) Servers(ctx context.Context) ([]raft.Server, error) {
	ids := slices.Sorted(maps.Keys(b.Cluster))
	begun := false
	for _, other := range ids {
		if other == b.Identity.Server {
			continue
		}
		has, err := b.admittedBy(ctx, other)
		if err != nil {
			return nil, err
		}
		begun = begun || has
	}
	if begun {
		return nil, nil
	}
	servers := make([]raft.Server, 0, len(ids))
	for _, id := range ids {
		servers = append(servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(b.Cluster[id])})
	}
	return servers, nil
}

// admittedBy asks one server until it answers. Silence means to wait.
func (b Beginning) admittedBy(ctx context.Context, other string) (begun bool, err error) {
	address := b.Cluster[other]
	word := cmp.Or(b.Word, "server")
	var said time.Time
	for {
		begun, err := b.ask(ctx, Addressee{ID: other, Address: address})
		switch {
		case err == nil:
			return begun, nil
		case errors.Is(err, ErrForgotten):
			return false, fmt.Errorf("%w: %s %q knows %q with another data directory", ErrForgotten, word, other, b.Identity.Server)
		case errors.Is(err, ErrNotMeant):
			return false, fmt.Errorf("%s %q at %s: %w", word, other, address, err)
		case ctx.Err() != nil:
			return false, fmt.Errorf("waiting for %s %q at %s: %w", word, other, address, ctx.Err())
		}
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			b.Log.Info("waiting for another "+word+" before taking part", word, b.Identity.Server, "waiting_for", other, "address", address)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (b Beginning) ask(ctx context.Context, to Addressee) (begun bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	body, err := b.Client.Ask(ctx, to, AdmitPath, admitRequest{ID: b.Identity.Server, Mark: b.Identity.Mark})
	if err != nil {
		return false, err
	}
	var a admitResponse
	if err := json.Unmarshal(body, &a); err != nil {
		return false, err
	}
	if a.Refused {
		return false, ErrForgotten
	}
	return a.Begun, nil
}
