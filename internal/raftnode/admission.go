package raftnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
)

// Admission keeps a server from voting that has forgotten its votes.
//
// A server whose disk was wiped may have voted before, and may have confirmed
// entries that it no longer has. If it came back under its name, a
// majority could be made of servers that have forgotten what a majority decided. So every
// server has, beside its name, a mark that it drew when its directory was
// made; and every other one remembers the mark under which it admitted that
// name, from before it can count its first vote. The same name with another mark is
// refused when it starts; and whatever a server says to another, votes among it, is said
// to a name and a mark, and not listened to by anyone else.
type Admission struct {
	path string

	mu       sync.Mutex
	admitted map[string]string // server id -> mark
}

// ErrForgotten: the name is taken by a server that had another disk.
var ErrForgotten = errors.New("this server was part of the cluster before, with data that it no longer has")

// OpenAdmission reads who was admitted before, from a data directory.
func OpenAdmission(dir string) (*Admission, error) {
	a := &Admission{path: filepath.Join(dir, "admitted.json"), admitted: map[string]string{}}
	b, err := os.ReadFile(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read who was admitted: %w", err)
	}
	if err := json.Unmarshal(b, &a.admitted); err != nil {
		return nil, fmt.Errorf("read who was admitted, %s: %w", a.path, err)
	}
	return a, nil
}

// Admit records the mark of a server, durably, before it returns nil.
func (a *Admission) Admit(id, mark string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch known, ok := a.admitted[id]; {
	case ok && known == mark:
		return nil
	case ok:
		return ErrForgotten
	}
	a.admitted[id] = mark
	if err := a.save(); err != nil {
		delete(a.admitted, id)
		return err
	}
	return nil
}

// Introduce replaces the mark of a server that is about to be added, durably.
func (a *Admission) Introduce(id, mark string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, had := a.admitted[id]
	if had && before == mark {
		return nil
	}
	a.admitted[id] = mark
	if err := a.save(); err != nil {
		delete(a.admitted, id)
		if had {
			a.admitted[id] = before
		}
		return err
	}
	return nil
}

// MarkOf is the mark under which a server is known here; empty if it is not.
func (a *Admission) MarkOf(id string) string {
	if a == nil {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.admitted[id]
}

// All are the marks that are known here.
func (a *Admission) All() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.admitted)
}

func (a *Admission) save() error {
	b, err := json.MarshalIndent(a.admitted, "", "  ")
	if err != nil {
		return err
	}
	return WriteFile(a.path, b)
}
