package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"baton"
	"baton/internal/fleet"
	"baton/store/etcdstore"
	"baton/store/remotestore"
)

// opener joins the fleet by one kind of backend. What it returns beside the
// elector is closed after it.
type opener func(ctx context.Context, n *Node) (baton.Elector, io.Closer, error)

// backends are what a fleet can elect with.
var backends = []struct {
	name string
	open opener
}{
	{"etcd", overStore(openEtcd)},
	{"baton", overStore(openBaton)},
}

func backendNames() []string {
	var names []string
	for _, b := range backends {
		names = append(names, b.name)
	}
	return names
}

func findBackend(name string) (opener, error) {
	for _, b := range backends {
		if b.name == name {
			return b.open, nil
		}
	}
	return nil, fmt.Errorf("-backend is %q: want one of %s", name, strings.Join(backendNames(), ", "))
}

// overStore elects by leases of a store.
func overStore(open func(ctx context.Context, o options) (baton.Store, error)) opener {
	return func(ctx context.Context, n *Node) (baton.Elector, io.Closer, error) {
		store, err := open(ctx, n.opt)
		if err != nil {
			return nil, nil, err
		}
		for _, caveat := range store.Guarantees().Caveats {
			n.log.Warn(caveat, "store", store.Guarantees().Store)
		}
		watched := watchStore(store, n)
		if n.opt.unsafeTrust == trustReceipt {
			watched = trustFromReceipt(watched, n.clock, n.opt.margin()+n.opt.stopGrace())
		}
		elector, err := baton.NewElector(watched, n.electorConfig())
		if err != nil {
			return nil, nil, errors.Join(err, store.Close())
		}
		return elector, store, nil
	}
}

func (n *Node) electorConfig() baton.Config {
	cfg := baton.Config{
		Group:      n.opt.group,
		NodeID:     n.opt.nodeID,
		Metadata:   map[string]string{addressKey: n.address},
		TTL:        n.opt.ttl,
		RenewEvery: n.opt.renewEvery,
		StopGrace:  n.opt.stopGrace(),
		OnOverrun:  n.overran,
		Logger:     n.bare,
		Clock:      n.clock,
	}
	if longest := n.opt.electionTimeout; longest > 0 {
		cfg.RetryMin, cfg.RetryMax = min(50*time.Millisecond, longest), longest
	}
	return cfg
}

// openBaton talks to Baton servers. A request of which nothing is heard is
// given up while there is time for another.
func openBaton(ctx context.Context, o options) (baton.Store, error) {
	hosts, err := fleet.StoreHosts(o.store)
	if err != nil {
		return nil, &baton.InvalidArgumentError{Field: "-store", Value: o.store, Want: "a URL such as http://127.0.0.1:7400"}
	}
	scheme, _, _ := strings.Cut(o.store, "://")
	cfg := remotestore.Config{Timeout: max(o.ttl/2, 100*time.Millisecond)}
	for _, host := range hosts {
		cfg.Servers = append(cfg.Servers, scheme+"://"+host)
	}
	return remotestore.New(ctx, cfg)
}

func openEtcd(ctx context.Context, o options) (baton.Store, error) {
	return etcdstore.Open(ctx, o.store)
}
