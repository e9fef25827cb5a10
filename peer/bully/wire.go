package bully

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"baton"
	"baton/internal/feed"
)

// The kinds of messages.
const election, victory, heartbeat = "election", "victory", "heartbeat"

// message is what a node says of itself. Left: it leads no longer.
type message struct {
	Node     string
	Term     baton.Term        `json:",omitempty"`
	Instance string            `json:",omitempty"`
	Metadata map[string]string `json:",omitempty"`
	Left     bool              `json:",omitempty"`
}

// Open listens for the other nodes and takes part.
func Open(cfg Config) (*Elector, error) {
	_, member := cfg.Peers[cfg.NodeID]
	if err := baton.ValidateID("Group", cfg.Group); err != nil || !member || cfg.ElectionTimeout < 20*time.Millisecond || cfg.Clock == nil || cfg.Logger == nil {
		return nil, &baton.InvalidArgumentError{Field: "bully", Value: cfg.NodeID, Want: "a group, peers that name this node, an election timeout of 20ms or more, a clock and a logger"}
	}
	listener, err := net.Listen("tcp", cfg.Peers[cfg.NodeID])
	if err != nil {
		return nil, &baton.InvalidArgumentError{Field: "peers", Value: cfg.Peers[cfg.NodeID], Want: fmt.Sprintf("an address that is free: %v", err)}
	}
	if cfg.transport == nil {
		cfg.transport = &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute}
	}
	e := &Elector{
		cfg: cfg, client: &http.Client{Transport: cfg.transport, Timeout: cfg.ElectionTimeout / 2},
		feed: feed.New(feed.Config{Store: cfg.NodeID}), kicks: make(chan struct{}, 1), sent: map[string]uint64{},
	}
	e.closing, e.close = context.WithCancel(context.Background())
	server := &http.Server{Handler: http.HandlerFunc(e.serve), ReadHeaderTimeout: 10 * time.Second}
	e.owned.Go(func() { _ = server.Serve(listener) }) // until it is closed
	e.owned.Go(func() {
		e.run()
		_ = server.Close() // whoever is cut off hears nothing, as from a node that died
		e.client.CloseIdleConnections()
	})
	return e, nil
}

// Sent counts the messages that this node has sent, by kind, and the "elections" that it began.
func (e *Elector) Sent() map[string]uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.sent)
}

// serve answers 200 for yes and 409 for no.
func (e *Elector) serve(w http.ResponseWriter, r *http.Request) {
	var m message
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&m); err != nil || !e.hear(r.URL.Path[1:], m) {
		w.WriteHeader(http.StatusConflict)
	}
}

// say reports whether a peer answered with yes.
func (e *Elector) say(peer, kind string, m message) bool {
	e.mu.Lock()
	e.sent[kind]++
	e.mu.Unlock()
	body, _ := json.Marshal(m) // strings and numbers only
	resp, err := e.client.Post("http://"+cmp.Or(e.cfg.Via[peer], e.cfg.Peers[peer])+"/"+kind, "application/json", bytes.NewReader(body))
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // it has none
	return resp.StatusCode == http.StatusOK
}

// tell tells all others with an id above this one, waits for their answers, and reports whether one was yes.
func (e *Elector) tell(kind string, m message, above string) bool {
	var told sync.WaitGroup
	var one atomic.Bool
	for peer := range e.cfg.Peers {
		if peer > above && peer != e.cfg.NodeID {
			told.Go(func() {
				if e.say(peer, kind, m) {
					one.Store(true)
				}
			})
		}
	}
	told.Wait()
	return one.Load()
}
