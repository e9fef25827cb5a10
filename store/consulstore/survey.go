package consulstore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/consul/api"
)

// oldest is the version of Consul that is needed at least: transactions read
// keys that may be missing.
var oldest = [2]int{1, 14}

// survey asks the agent which version it is, and Consul whether the token is
// any good.
func (s *Store) survey(ctx context.Context) error {
	const op = "open consul store"
	bounded, cancel := s.calls.Begin(ctx)
	defer cancel()
	agent, err := ask(bounded, s, func(ctx context.Context) (self map[string]map[string]any, err error) {
		_, err = s.consul.Raw().Query("/v1/agent/self", &self, (&api.QueryOptions{}).WithContext(ctx))
		return self, err
	})
	if err != nil && !refused(err) { // not everybody may ask an agent about itself
		return s.calls.Fail(ctx, op, err)
	}
	if version, ok := agent["Config"]["Version"].(string); ok {
		if err := checkVersion(version); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	_, err = s.readTogether(bounded, []string{s.keys.id()})
	return s.calls.Fail(ctx, op, err)
}

// checkVersion refuses a Consul that is too old. One whose version is not
// written as usual is not.
func checkVersion(version string) error {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err := strconv.Atoi(major)
	if err != nil {
		return nil
	}
	b, err := strconv.Atoi(minor)
	if err != nil {
		return nil
	}
	if a < oldest[0] || a == oldest[0] && b < oldest[1] {
		return fmt.Errorf("consul is version %s: want at least %d.%d", version, oldest[0], oldest[1])
	}
	return nil
}

// id tells these keys from those of all other stores, for cursors. Whoever
// needs it first writes it.
func (s *Store) id(ctx context.Context) (string, error) {
	s.mu.Lock()
	known := s.identity
	s.mu.Unlock()
	if known != "" {
		return known, nil
	}
	for {
		f, err := s.readTogether(ctx, []string{s.keys.id()})
		if err != nil {
			return "", err
		}
		if pair := f.keys[s.keys.id()]; pair.ModifyIndex > 0 {
			s.mu.Lock()
			s.identity = string(pair.Value)
			s.mu.Unlock()
			return string(pair.Value), nil
		}
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails, by its contract
		_, _, err = s.commit(ctx, swap(s.keys.id(), []byte(hex.EncodeToString(random[:])), 0))
		if refused(err) {
			return "", nil // who may only read has cursors that last until the end of the watch
		}
		if err != nil {
			return "", err
		}
	}
}
