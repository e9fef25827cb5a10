package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcdServers is etcd, one member or several, through its own Go client.
type etcdServers struct {
	name      string
	endpoints []string
	members   []*testServer
	shared    bool

	mu   sync.Mutex
	open []*etcd.Client // by number of the client
}

func (e *etcdServers) Name() string  { return e.name }
func (e *etcdServers) Rival() string { return "" }

func (e *etcdServers) PIDs() []int {
	var pids []int
	for _, m := range e.members {
		pids = append(pids, m.pid)
	}
	return pids
}

func (e *etcdServers) Describe(ctx context.Context) string {
	version := "of unknown version"
	if c, err := e.client(0); err == nil {
		if status, err := c.Status(ctx, e.endpoints[0]); err == nil {
			version = status.Version
		}
	}
	return fmt.Sprintf("etcd %s, %d of it, gRPC, through clientv3", version, len(e.endpoints))
}

// client is the one of this number.
func (e *etcdServers) client(number int) (*etcd.Client, error) {
	if e.shared {
		number = 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.open) <= number {
		c, err := etcd.New(etcd.Config{Endpoints: e.endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
		if err != nil {
			return nil, err
		}
		e.open = append(e.open, c)
	}
	return e.open[number], nil
}

func (e *etcdServers) Close() error {
	var errs []error
	for _, c := range e.open {
		errs = append(errs, c.Close())
	}
	// All at once: one that is left alone takes its time to end.
	stopped := make([]error, len(e.members))
	var stopping sync.WaitGroup
	for i, m := range e.members {
		stopping.Go(func() { stopped[i] = m.stop() })
	}
	stopping.Wait()
	return errors.Join(append(errs, stopped...)...)
}

func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// granted returns a client that holds a lease.
func (e *etcdServers) granted(ctx context.Context, client int, ttl time.Duration) (*etcd.Client, etcd.LeaseID, error) {
	c, err := e.client(client)
	if err != nil {
		return nil, 0, err
	}
	lease, err := c.Grant(ctx, seconds(ttl))
	if err != nil {
		return nil, 0, err
	}
	return c, lease.ID, nil
}

func (e *etcdServers) Renewals() []load {
	return []load{{
		way:     "KeepAliveOnce",
		counted: "KeepAliveOnce of a lease, each client its own",
		open: func(ctx context.Context, client int) (operation, error) {
			c, id, err := e.granted(ctx, client, holdTTL)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) error {
				_, err := c.KeepAliveOnce(ctx, id)
				return err
			}, nil
		},
	}, {
		way:     "stream",
		counted: "one message and its answer on a LeaseKeepAlive stream that stays open, each client its own",
		open: func(ctx context.Context, client int) (operation, error) {
			c, id, err := e.granted(ctx, client, holdTTL)
			if err != nil {
				return nil, err
			}
			// It ends with the client.
			stream, err := etcdserverpb.NewLeaseClient(c.ActiveConnection()).LeaseKeepAlive(context.WithoutCancel(ctx))
			if err != nil {
				return nil, err
			}
			return func(context.Context) error {
				if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
					return err
				}
				answer, err := stream.Recv()
				if err == nil && answer.TTL <= 0 {
					err = errors.New("the lease is over")
				}
				return err
			}, nil
		},
	}}
}

// create puts the key if it is not there.
func create(ctx context.Context, c *etcd.Client, key string, lease etcd.LeaseID) error {
	answer, err := c.Txn(ctx).
		If(etcd.Compare(etcd.CreateRevision(key), "=", 0)).
		Then(etcd.OpPut(key, "node", etcd.WithLease(lease))).
		Commit()
	if err == nil && !answer.Succeeded {
		err = errors.New("held by another")
	}
	return err
}

func (e *etcdServers) Cycles() []load {
	return []load{{
		way:     "lease each",
		counted: "lease grant, transaction that creates the key if it is not there, lease revoke, which deletes it; each client its own key",
		open: func(_ context.Context, client int) (operation, error) {
			c, err := e.client(client)
			if err != nil {
				return nil, err
			}
			key := fmt.Sprintf("cycle/%d", client)
			return func(ctx context.Context) error {
				lease, err := c.Grant(ctx, 60)
				if err != nil {
					return err
				}
				if err := create(ctx, c, key, lease.ID); err != nil {
					return err
				}
				_, err = c.Revoke(ctx, lease.ID)
				return err
			}, nil
		},
	}, {
		way:     "standing lease",
		counted: "transaction that creates the key if it is not there, delete; all under one lease of the client's that stays",
		open: func(ctx context.Context, client int) (operation, error) {
			c, id, err := e.granted(ctx, client, holdTTL)
			if err != nil {
				return nil, err
			}
			key := fmt.Sprintf("cycle-standing/%d", client)
			return func(ctx context.Context) error {
				if err := create(ctx, c, key, id); err != nil {
					return err
				}
				_, err := c.Delete(ctx, key)
				return err
			}, nil
		},
	}}
}

func (e *etcdServers) Reads() []load {
	return []load{{
		counted: "linearizable Get of a key, each client its own",
		open: func(ctx context.Context, client int) (operation, error) {
			c, id, err := e.granted(ctx, client, holdTTL)
			if err != nil {
				return nil, err
			}
			key := fmt.Sprintf("read/%d", client)
			if _, err := c.Put(ctx, key, fmt.Sprintf("node-%d", client), etcd.WithLease(id)); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error {
				answer, err := c.Get(ctx, key)
				if err == nil && len(answer.Kvs) != 1 {
					err = errors.New("nobody leads")
				}
				return err
			}, nil
		},
	}}
}

// etcdCandidate is concurrency.Election.
type etcdCandidate struct {
	session  *concurrency.Session
	election *concurrency.Election
}

func (e *etcdServers) Candidate(ctx context.Context, group string, client int) (candidate, error) {
	c, err := e.client(client)
	if err != nil {
		return nil, err
	}
	session, err := concurrency.NewSession(c, concurrency.WithTTL(60), concurrency.WithContext(context.WithoutCancel(ctx)))
	if err != nil {
		return nil, err
	}
	return &etcdCandidate{session: session, election: concurrency.NewElection(session, group)}, nil
}

func (c *etcdCandidate) Campaign(ctx context.Context) error { return c.election.Campaign(ctx, "node") }
func (c *etcdCandidate) Resign(ctx context.Context) error   { return c.election.Resign(ctx) }
func (c *etcdCandidate) Close() error                       { return c.session.Close() }

// etcdHolder has the key by which an election knows its leader, and nobody
// who keeps the lease alive, as a Session would.
type etcdHolder struct {
	client *etcd.Client
	lease  etcd.LeaseID
}

func (e *etcdServers) Hold(ctx context.Context, group string, client int, ttl time.Duration) (holder, error) {
	c, id, err := e.granted(ctx, client, ttl)
	if err != nil {
		return nil, err
	}
	return &etcdHolder{client: c, lease: id}, create(ctx, c, fmt.Sprintf("%s/%x", group, id), id)
}

func (h *etcdHolder) Renew(ctx context.Context) (time.Time, error) {
	sent := time.Now()
	answer, err := h.client.KeepAliveOnce(ctx, h.lease)
	if err != nil {
		return time.Time{}, err
	}
	return sent.Add(time.Duration(answer.TTL) * time.Second), nil
}
