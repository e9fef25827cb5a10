package raftnode

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// dataVersion is the format of a data directory. A newer one is not touched.
const dataVersion = 1

// Identity is who a data directory belongs to.
type Identity struct {
	Version int    `json:"version"`
	Server  string `json:"server"`
	// Mark tells this directory from another one of the same name.
	Mark string `json:"mark"`
}

// OpenDir locks a data directory for this process and reads whose it is. A
// new one is marked.
func OpenDir(dir, server string) (Identity, func() error, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Identity{}, nil, fmt.Errorf("data directory: %w", err)
	}
	unlock, err := LockDir(dir)
	if err != nil {
		return Identity{}, nil, err
	}
	id, err := readIdentity(dir, server)
	if err != nil {
		return Identity{}, nil, errors.Join(err, unlock())
	}
	return id, unlock, nil
}

// LockDir keeps other processes out of a data directory.
func LockDir(dir string) (unlock func() error, err error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("data directory %s is in use by another process", dir)
	}
	return f.Close, nil
}

func readIdentity(dir, server string) (Identity, error) {
	path := filepath.Join(dir, "identity.json")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		id := Identity{Version: dataVersion, Server: server, Mark: rand.Text()}
		b, err := json.MarshalIndent(id, "", "  ")
		if err != nil {
			return Identity{}, err
		}
		return id, WriteFile(path, b)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("data directory: %w", err)
	}
	var id Identity
	if err := json.Unmarshal(b, &id); err != nil || id.Mark == "" {
		return Identity{}, fmt.Errorf("data directory: %s is not readable as an identity: %w", path, errors.Join(err))
	}
	if id.Version > dataVersion {
		return Identity{}, fmt.Errorf("data directory %s has format %d: this program knows %d and needs an upgrade", dir, id.Version, dataVersion)
	}
	if id.Server != server {
		return Identity{}, fmt.Errorf("data directory %s belongs to server %q, not to %q", dir, id.Server, server)
	}
	return id, nil
}

// WriteFile replaces a file so that after a crash it is the old one or the new one, whole.
func WriteFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // after the rename there is nothing left to remove
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
