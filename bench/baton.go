package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"baton"
	"baton/store/remotestore"
)

// holdTTL outlives a measurement, so that nothing has to be renewed for it.
const holdTTL = 10 * time.Minute

// batonServers is a Baton server, or a cluster of them, over HTTP with the Go client.
type batonServers struct {
	name, rival string
	urls        []string
	processes   []*process
	shared      bool

	mu   sync.Mutex
	open [2][]*remotestore.Store // by kind and number of the client
}

// clientKind is through whose connections a client talks.
type clientKind int

const (
	ownConnections  clientKind = iota // those of store/remotestore, as programs have it
	httpConnections                   // those of a transport of net/http
)

func (b *batonServers) Name() string  { return b.name }
func (b *batonServers) Rival() string { return b.rival }

func (b *batonServers) PIDs() []int {
	var pids []int
	for _, p := range b.processes {
		pids = append(pids, p.pid())
	}
	return pids
}

func (b *batonServers) Describe(context.Context) string {
	return fmt.Sprintf("baton server --store raft, %d of it, HTTP and JSON, through store/remotestore", len(b.urls))
}

// client is the one of this number. In a cluster they begin at different servers.
func (b *batonServers) client(ctx context.Context, kind clientKind, number int) (*remotestore.Store, error) {
	if b.shared {
		number = 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	open := &b.open[kind]
	for len(*open) <= number {
		at := len(*open) % len(b.urls)
		cfg := remotestore.Config{
			Servers: slices.Concat(b.urls[at:], b.urls[:at]),
			Logger:  slog.New(slog.NewTextHandler(io.Discard, nil)),
		}
		if kind == httpConnections {
			cfg.Transport = &http.Transport{MaxIdleConnsPerHost: 512}
		}
		s, err := remotestore.New(ctx, cfg)
		if err != nil {
			return nil, err
		}
		*open = append(*open, s)
	}
	return (*open)[number], nil
}

func (b *batonServers) Close() error {
	var errs []error
	for _, s := range slices.Concat(b.open[:]...) {
		errs = append(errs, s.Close())
	}
	for _, p := range b.processes {
		errs = append(errs, p.stop())
	}
	return errors.Join(errs...)
}

func newCandidate(client int) baton.Candidate {
	return baton.Candidate{NodeID: fmt.Sprintf("node-%d", client), InstanceID: baton.NewInstanceID()}
}

func (b *batonServers) Renewals() []load {
	return []load{b.renewals("", ownConnections), b.renewals("net/http", httpConnections)}
}

func (b *batonServers) renewals(way string, kind clientKind) load {
	return load{
		way:     way,
		counted: "POST renew of a lease that is held, each client its own",
		open: func(ctx context.Context, client int) (operation, error) {
			s, err := b.client(ctx, kind, client)
			if err != nil {
				return nil, err
			}
			lease, err := s.Acquire(ctx, fmt.Sprintf("renew-%d-%d", kind, client), newCandidate(client), holdTTL)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) error {
				_, err := s.Renew(ctx, lease.ID(), holdTTL)
				return err
			}, nil
		},
	}
}

func (b *batonServers) Cycles() []load {
	return []load{{
		counted: "POST campaign and POST resign, each client in a group of its own",
		open: func(ctx context.Context, client int) (operation, error) {
			s, err := b.client(ctx, ownConnections, client)
			if err != nil {
				return nil, err
			}
			group := fmt.Sprintf("cycle-%d", client)
			return func(ctx context.Context) error {
				lease, err := s.Acquire(ctx, group, newCandidate(client), time.Minute)
				if err != nil {
					return err
				}
				return s.Release(ctx, lease.ID())
			}, nil
		},
	}}
}

func (b *batonServers) Reads() []load {
	return []load{b.reads("", ownConnections), b.reads("net/http", httpConnections)}
}

func (b *batonServers) reads(way string, kind clientKind) load {
	return load{
		way:     way,
		counted: "GET leader of a group that is held, each client its own",
		open: func(ctx context.Context, client int) (operation, error) {
			s, err := b.client(ctx, kind, client)
			if err != nil {
				return nil, err
			}
			group := fmt.Sprintf("read-%d-%d", kind, client)
			if _, err := s.Acquire(ctx, group, newCandidate(client), holdTTL); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error {
				lease, err := s.Get(ctx, group)
				if err == nil && !lease.Held() {
					err = errors.New("nobody leads")
				}
				return err
			}, nil
		},
	}
}

// batonCandidate waits in line, then acquires, as the elector does.
type batonCandidate struct {
	store *remotestore.Store
	group string
	node  int
	lease baton.Lease
}

func (b *batonServers) Candidate(ctx context.Context, group string, client int) (candidate, error) {
	s, err := b.client(ctx, ownConnections, client)
	if err != nil {
		return nil, err
	}
	return &batonCandidate{store: s, group: group, node: client}, nil
}

func (c *batonCandidate) Campaign(ctx context.Context) error {
	me := newCandidate(c.node)
	for {
		if err := c.store.Await(ctx, c.group, me); err != nil {
			return err
		}
		lease, err := c.store.Acquire(ctx, c.group, me, holdTTL)
		if err == nil {
			c.lease = lease
			return nil
		}
		if !errors.Is(err, baton.ErrHeld) {
			return err
		}
	}
}

func (c *batonCandidate) Resign(ctx context.Context) error {
	return c.store.Release(ctx, c.lease.ID())
}

func (c *batonCandidate) Close() error { return nil } // its client is the contender's

type batonHolder struct {
	store *remotestore.Store
	lease baton.Lease
}

func (b *batonServers) Hold(ctx context.Context, group string, client int, ttl time.Duration) (holder, error) {
	s, err := b.client(ctx, ownConnections, client)
	if err != nil {
		return nil, err
	}
	lease, err := s.Acquire(ctx, group, newCandidate(client), ttl)
	return &batonHolder{store: s, lease: lease}, err
}

func (h *batonHolder) Renew(ctx context.Context) (time.Time, error) {
	sent := time.Now()
	_, err := h.store.Renew(ctx, h.lease.ID(), h.lease.TTL)
	return sent.Add(h.lease.TTL), err
}
