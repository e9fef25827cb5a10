package raftstore

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"

	"github.com/hashicorp/raft"

	"baton/internal/raftnode"
)

// peerHandler answers other servers. The store is nil until raft has started.
type peerHandler struct {
	identity  raftnode.Identity
	admission *raftnode.Admission
	begun     bool

	mu sync.Mutex
	s  *Store
}

func (h *peerHandler) set(s *Store) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.s = s
}

func (h *peerHandler) store() *Store {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.s
}

// meant is an error if what is meant for this addressee is not meant for this server.
func (h *peerHandler) meant(to raftnode.Addressee) error {
	return to.Is(h.identity, h.cluster())
}

func (h *peerHandler) cluster() string {
	s := h.store()
	if s == nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster
}

// at is whom this server expects at an address.
func (h *peerHandler) at(address string) (raftnode.Addressee, error) {
	if s := h.store(); s != nil {
		return s.at(address)
	}
	return raftnode.Addressee{}, raftnode.ErrStarting
}

func (h *peerHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.meant(raftnode.AddresseeOf(r.Header)); err != nil {
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
		return
	}
	s := h.store()
	switch {
	case r.URL.Path == raftnode.AdmitPath:
		h.admission.Serve(w, r, h.begun || s != nil)
	case s == nil:
		http.Error(w, "starting", http.StatusServiceUnavailable)
	case r.URL.Path == linePath:
		h.serveLine(w, r, s)
	case r.URL.Path == "/call":
		s.serveCall(w, r)
	case r.URL.Path == "/progress":
		_ = json.NewEncoder(w).Encode(s.progressNow(r.URL.Query().Has("hash")))
	case r.URL.Path == "/identity":
		_ = json.NewEncoder(w).Encode(introduction{ID: h.identity.Server, Mark: h.identity.Mark, Cluster: h.cluster()})
	case r.URL.Path == "/introduce":
		h.introduce(w, r, s)
	default:
		http.NotFound(w, r)
	}
}

// introduction is a server with its mark.
type introduction struct{ ID, Mark, Cluster string }

// introduce takes note of a server that is about to be added.
func (h *peerHandler) introduce(w http.ResponseWriter, r *http.Request, s *Store) {
	var q introduction
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCall)).Decode(&q); err != nil || q.ID == "" || q.Mark == "" {
		http.Error(w, "malformed", http.StatusBadRequest)
		return
	}
	if err := s.introduce(q); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}

// introduce never gives the name of a voter to another one.
func (s *Store) introduce(q introduction) error {
	known := s.admission.MarkOf(q.ID)
	config, err := s.configuration()
	if err != nil {
		return err
	}
	for _, server := range config.Servers {
		if string(server.ID) == q.ID && server.Suffrage == raft.Voter && known != "" && known != q.Mark {
			return raftnode.ErrForgotten
		}
	}
	return s.admission.Introduce(q.ID, q.Mark)
}

// maxCall is far above what a request with all its limits exhausted takes.
const maxCall = 1 << 20

func (s *Store) serveCall(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCall))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = w.Write(s.call(r.Context(), body)) // lost with the connection: the caller's outcome is unknown
}
