package raftstore

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// addressee is whom something is meant for. An address alone would not do: a
// server of another cluster may listen there, or one whose disk was wiped. What
// is empty is not known.
type addressee struct {
	ID      string `json:",omitempty"`
	Mark    string `json:",omitempty"`
	Cluster string `json:",omitempty"`
	address string
}

// is returns an error unless the addressee is this server.
func (a addressee) is(self identity, cluster string) error {
	switch {
	case a.ID != "" && a.ID != self.Server:
		return fmt.Errorf("%w: this is server %q, not %q", errNotMeant, self.Server, a.ID)
	case a.Cluster != "" && cluster != "" && a.Cluster != cluster:
		return fmt.Errorf("%w: server %q belongs to another cluster (%s, not %s)", errNotMeant, self.Server, cluster, a.Cluster)
	case a.Mark != "" && a.Mark != self.Mark:
		return fmt.Errorf("%w: %w (server %q): take it out of the cluster and add it anew", errNotMeant, errForgotten, self.Server)
	}
	return nil
}

const (
	headerTo      = "Baton-To"
	headerMark    = "Baton-Mark"
	headerCluster = "Baton-Cluster"
)

func (a addressee) put(h http.Header) {
	h[headerTo] = []string{a.ID}
	h[headerMark] = []string{a.Mark}
	h[headerCluster] = []string{a.Cluster}
}

func addresseeOf(h http.Header) addressee {
	return addressee{ID: h.Get(headerTo), Mark: h.Get(headerMark), Cluster: h.Get(headerCluster)}
}

// header is how a raft connection begins.
func (a addressee) header() []byte {
	b, _ := json.Marshal(a) // strings only
	return append(binary.BigEndian.AppendUint16([]byte{raftByte}, uint16(len(b))), b...)
}

func readAddressee(r *bufio.Reader) (a addressee, err error) {
	var start [3]byte
	if _, err := io.ReadFull(r, start[:]); err != nil {
		return addressee{}, fmt.Errorf("read whom it is meant for: %w", err)
	}
	b := make([]byte, binary.BigEndian.Uint16(start[1:]))
	if _, err := io.ReadFull(r, b); err != nil {
		return addressee{}, fmt.Errorf("read whom it is meant for: %w", err)
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return addressee{}, fmt.Errorf("read whom it is meant for: %w", err)
	}
	return a, nil
}
