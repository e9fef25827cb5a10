package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
)

// Backends are what fleets can elect with here.
var Backends = []string{"baton", "etcd"}

// backend is a server that keeps leases, shared by all experiments of a run:
// each arm has a group of its own.
type backend struct {
	name string
	// store is its URL, as nodes take it.
	store string
	// version says what it is, for the result.
	version string
	stop    func() error
}

func (o *Options) startBackend(ctx context.Context, name, dir string, p programs) (*backend, error) {
	switch name {
	case "baton":
		return startBaton(ctx, dir, p)
	case "etcd":
		if o.Etcd != "" {
			return &backend{name: name, store: o.Etcd, version: "etcd " + etcdVersion(ctx, o.Etcd) + " at " + o.Etcd, stop: func() error { return nil }}, nil
		}
		return startEtcd(ctx, dir, o.checkout)
	}
	return nil, fmt.Errorf("backend %q is not known: want one of %s", name, strings.Join(Backends, ", "))
}

func startBaton(ctx context.Context, dir string, p programs) (*backend, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	address := ports[0]
	server, line, err := startProcess(ctx, dir, "baton-server", p.path("baton"), "server", "--store", "memory", "--http", address)
	if err != nil {
		return nil, err
	}
	return &backend{name: "baton", store: "http://" + address, version: line, stop: server.stop}, nil
}

// portsMu keeps two arms of one process from choosing the same port.
var (
	portsMu   sync.Mutex
	portsUsed = map[string]bool{}
)

// freePorts are addresses on loopback that nobody listens at, none of them
// handed out before.
func freePorts(n int) ([]string, error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	var (
		found []string
		held  []net.Listener
		err   error
	)
	for err == nil && len(found) < n {
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			break
		}
		held = append(held, l)
		if a := l.Addr().String(); !portsUsed[a] {
			portsUsed[a] = true
			found = append(found, a)
		}
	}
	for _, l := range held {
		err = errors.Join(err, l.Close())
	}
	return slices.Clip(found), err
}
