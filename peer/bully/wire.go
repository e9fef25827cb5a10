package bully

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
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
const (
	election  = "election"
	victory   = "victory"
	heartbeat = "heartbeat"
)

// message is what a node says of itself. Left: it leads no longer.
type message struct {
	Node     string
	Term     baton.Term        `json:",omitempty"`
	Instance string            `json:",omitempty"`
	Metadata map[string]string `json:",omitempty"`
	Left     bool              `json:",omitempty"`
}

// wire is this node's door, and its way to those of the others.
type wire struct {
	e      *Elector
	client *http.Client
	mu     sync.Mutex
	sent   map[string]uint64 // by kind
}

// Open listens for the other nodes and takes part.
func Open(cfg Config) (*Elector, error) {
	_, member := cfg.Peers[cfg.NodeID]
	err := errors.Join(baton.ValidateID("Group", cfg.Group), baton.ValidateID("NodeID", cfg.NodeID))
	if err != nil || !member || cfg.ElectionTimeout < 20*time.Millisecond || cfg.Clock == nil || cfg.Logger == nil {
		return nil, errors.Join(err, &baton.InvalidArgumentError{Field: "bully", Value: cfg.NodeID, Want: "peers that name this node, an election timeout of 20ms or more, a clock and a logger"})
	}
	listener, err := net.Listen("tcp", cfg.Peers[cfg.NodeID])
	if err != nil {
		return nil, &baton.InvalidArgumentError{Field: "peers", Value: cfg.Peers[cfg.NodeID], Want: fmt.Sprintf("an address that is free: %v", err)}
	}
	if cfg.transport == nil {
		cfg.transport = &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute}
	}
	e := &Elector{cfg: cfg, feed: feed.New(feed.Config{Store: cfg.NodeID}), kicks: make(chan struct{}, 1)}
	e.closing, e.close = context.WithCancel(context.Background())
	e.wire = &wire{e: e, client: &http.Client{Transport: cfg.transport}, sent: map[string]uint64{}}
	server := &http.Server{Handler: e.wire, ReadHeaderTimeout: 10 * time.Second}
	e.owned.Go(func() { _ = server.Serve(listener) }) // until it is closed
	e.owned.Go(func() {
		e.run()
		_ = server.Close() // whoever is cut off hears nothing, as from a node that died
		e.wire.client.CloseIdleConnections()
	})
	return e, nil
}

// Sent counts the messages that this node has sent, by kind, and the "elections" that it began.
func (e *Elector) Sent() map[string]uint64 {
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	return maps.Clone(e.wire.sent)
}

// ServeHTTP answers 200 for yes and 409 for no.
func (w *wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	var m message
	switch err := json.NewDecoder(http.MaxBytesReader(rw, r.Body, 64<<10)).Decode(&m); {
	case err != nil:
		rw.WriteHeader(http.StatusBadRequest)
	case !w.e.hear(r.URL.Path[1:], m):
		rw.WriteHeader(http.StatusConflict)
	}
}

func (w *wire) count(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent[kind]++
}

// say reports whether a peer answered with yes.
func (w *wire) say(peer, kind string, m message) bool {
	body, _ := json.Marshal(m) // strings and numbers only
	ctx, cancel := context.WithTimeout(context.Background(), w.e.cfg.ElectionTimeout/2)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+cmp.Or(w.e.cfg.Via[peer], w.e.cfg.Peers[peer])+"/"+kind, bytes.NewReader(body))
	if err != nil {
		return false
	}
	w.count(kind)
	resp, err := w.client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // it has none
	return resp.StatusCode == http.StatusOK
}

// anyHigher asks all higher ids at once whether one of them sees to it.
func (w *wire) anyHigher() bool {
	return w.tell(election, message{Node: w.e.cfg.NodeID}, func(peer string) bool { return peer > w.e.cfg.NodeID })
}

func (w *wire) tellAll(kind string, m message) {
	w.tell(kind, m, func(peer string) bool { return peer != w.e.cfg.NodeID })
}

// tell waits for all answers, and reports whether one was yes.
func (w *wire) tell(kind string, m message, whom func(peer string) bool) bool {
	var told sync.WaitGroup
	var one atomic.Bool
	for peer := range w.e.cfg.Peers {
		if whom(peer) {
			told.Go(func() {
				if w.say(peer, kind, m) {
					one.Store(true)
				}
			})
		}
	}
	told.Wait()
	return one.Load()
}
