package raftpeer

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"github.com/hashicorp/raft"

	"baton"
	"baton/internal/raftnode"
)

// What peers ask each other beside raft, over HTTP on the same port.

const (
	statePath = "/state"
	endPath   = "/end"
)

// door answers other peers. The elector is nil until raft has started.
type door struct {
	group     string // and its peers
	identity  raftnode.Identity
	admission *raftnode.Admission
	begun     bool
	peers     map[string]string

	mu sync.Mutex
	e  *Elector
}

func (d *door) set(e *Elector) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.e = e
}

func (d *door) elector() *Elector {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.e
}

// meant is an error if what is meant for this addressee is not meant for this peer.
func (d *door) meant(to raftnode.Addressee) error { return to.Is(d.identity, d.group) }

// to is a peer with all that is known of it.
func (d *door) to(id, address string) raftnode.Addressee {
	return raftnode.Addressee{ID: id, Mark: d.admission.MarkOf(id), Cluster: d.group, Address: address}
}

// at is whom this peer expects at an address.
func (d *door) at(address string) (raftnode.Addressee, error) {
	for id, a := range d.peers {
		if a == address {
			return d.to(id, address), nil
		}
	}
	return d.to("", address), nil
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := d.meant(raftnode.AddresseeOf(r.Header)); err != nil {
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
		return
	}
	e := d.elector()
	switch {
	case r.URL.Path == raftnode.AdmitPath:
		d.admission.Serve(w, r, d.begun || e != nil)
	case e == nil:
		http.Error(w, "starting", http.StatusServiceUnavailable)
	case r.URL.Path == statePath:
		e.serveState(w, r)
	case r.URL.Path == endPath:
		e.serveEnd(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (e *Elector) serveState(w http.ResponseWriter, r *http.Request) {
	var q question
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10)).Decode(&q); err != nil {
		http.Error(w, "malformed", http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(e.answer(q)) // lost with the connection: no answer
}

// endAnswer is that of raft's leader. Anything else than an end that took effect,
// or one that has nothing to end, is no answer.
type endAnswer struct {
	Ended bool `json:"ended"`
}

func (e *Elector) serveEnd(w http.ResponseWriter, r *http.Request) {
	var c command
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&c)
	if err != nil || c.Op != opEnd || c.Reason == baton.Expired {
		http.Error(w, "malformed", http.StatusBadRequest)
		return
	}
	_, err = e.commit(c)
	if err != nil && !errors.Is(err, baton.ErrNotLeader) {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_ = json.NewEncoder(w).Encode(endAnswer{Ended: err == nil}) // lost with the connection: the outcome is unknown there
}

// wire asks other peers over HTTP.
type wire struct {
	client *raftnode.Client
	door   *door
}

func (w *wire) state(ctx context.Context, to raft.Server, q question) (s peerState, err error) {
	body, err := w.client.Ask(ctx, w.door.to(string(to.ID), string(to.Address)), statePath, q)
	if err != nil {
		return peerState{}, err
	}
	err = json.Unmarshal(body, &s)
	return s, err
}

func (w *wire) end(ctx context.Context, to raft.Server, c command) error {
	body, err := w.client.Ask(ctx, w.door.to(string(to.ID), string(to.Address)), endPath, c)
	if err != nil {
		return err
	}
	var a endAnswer
	if err := json.Unmarshal(body, &a); err != nil {
		return err
	}
	if !a.Ended {
		return notLeader(c)
	}
	return nil
}

func notLeader(c command) error {
	return &baton.NotLeaderError{ID: baton.LeaseID{NodeID: c.Node, InstanceID: c.Instance, Term: c.Term}}
}
