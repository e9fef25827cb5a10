package raftnode

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// ErrNotMeant: what was said is meant for somebody else.
var ErrNotMeant = errors.New("not meant for this server")

// Addressee is whom something is meant for. An address alone would not do: a
// server of another cluster may listen there, or one whose disk was wiped. What
// is empty is not known.
type Addressee struct {
	ID      string `json:",omitempty"`
	Mark    string `json:",omitempty"`
	Cluster string `json:",omitempty"`
	// Address is where it listens, and not said to it.
	Address string `json:"-"`
}

// Is returns an error unless the addressee is this server.
func (a Addressee) Is(self Identity, cluster string) error {
	switch {
	case a.ID != "" && a.ID != self.Server:
		return fmt.Errorf("%w: this is server %q, not %q", ErrNotMeant, self.Server, a.ID)
	case a.Cluster != "" && cluster != "" && a.Cluster != cluster:
		return fmt.Errorf("%w: server %q belongs to another cluster (%s, not %s)", ErrNotMeant, self.Server, cluster, a.Cluster)
	case a.Mark != "" && a.Mark != self.Mark:
		return fmt.Errorf("%w: %w (server %q): take it out of the cluster and add it anew", ErrNotMeant, ErrForgotten, self.Server)
	}
	return nil
}

const (
	headerTo      = "Baton-To"
	headerMark    = "Baton-Mark"
	headerCluster = "Baton-Cluster"
)

// Put says in the headers of a request whom it is meant for.
func (a Addressee) Put(h http.Header) {
	h[headerTo] = []string{a.ID}
	h[headerMark] = []string{a.Mark}
	h[headerCluster] = []string{a.Cluster}
}

// AddresseeOf is whom a request with these headers is meant for.
func AddresseeOf(h http.Header) Addressee {
	return Addressee{ID: h.Get(headerTo), Mark: h.Get(headerMark), Cluster: h.Get(headerCluster)}
}

// Header is how a raft connection begins.
func (a Addressee) Header() []byte {
	b, _ := json.Marshal(a) // strings only
	return append(binary.BigEndian.AppendUint16([]byte{raftByte}, uint16(len(b))), b...)
}

func readAddressee(r *bufio.Reader) (a Addressee, err error) {
	var start [3]byte
	if _, err := io.ReadFull(r, start[:]); err != nil {
		return Addressee{}, fmt.Errorf("read whom it is meant for: %w", err)
	}
	b := make([]byte, binary.BigEndian.Uint16(start[1:]))
	if _, err := io.ReadFull(r, b); err != nil {
		return Addressee{}, fmt.Errorf("read whom it is meant for: %w", err)
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return Addressee{}, fmt.Errorf("read whom it is meant for: %w", err)
	}
	return a, nil
}
