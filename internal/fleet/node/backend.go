package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"baton"
	"baton/internal/fleet"
	_ "baton/store/all" // so that openKind knows them
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
	{"etcd", overStore(openKind("etcd"))},
	{"consul", overStore(openKind("consul"))},
	{"redis", overStore(openKind("redis"))},
	{"zookeeper", overStore(openKind("zookeeper"))},
	{"postgres", overStore(openKind("postgres"))},
	{"kubernetes", overStore(openKind("kubernetes"))},
	{"baton", overStore(openBaton)},
	{raftBackend, openRaft},
	{bullyBackend, openBully},
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

// openKind opens a store of this kind and no other.
func openKind(name string) func(ctx context.Context, o options) (baton.Store, error) {
	return func(ctx context.Context, o options) (baton.Store, error) {
		scheme, _, _ := strings.Cut(o.store, "://")
		for _, kind := range baton.StoreKinds() {
			switch {
			case kind.Name != name:
			case slices.Contains(kind.Schemes, scheme):
				logging.Disable() // Redis' client says on stderr what is logged here
				return kind.Open(ctx, o.store)
			default:
				return nil, &baton.InvalidArgumentError{Field: "-store URL's scheme", Value: scheme, Want: "a URL such as " + kind.Form}
			}
		}
		return nil, &baton.InvalidArgumentError{Field: "-backend", Value: name, Want: "a store that this program has"}
	}
}
