package node

import (
	"context"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"baton"
	"baton/internal/fleet"
	"baton/peer/bully"
	"baton/peer/raftpeer"
)

// The backends without a store: the nodes among themselves.
const (
	raftBackend  = "raft"
	bullyBackend = "bully"
)

// peerOptions are the flags of the backends without a store.
type peerOptions struct {
	list string // of all peers
	via  string // where this node reaches others, if not there
	data string

	peers, viaOf map[string]string
}

func (p *peerOptions) flags(flags *flag.FlagSet) {
	flags.StringVar(&p.list, "peers", "", "for raft and bully: all `nodes` of the fleet and where they listen for each other, n1=host:port,n2=host:port,...")
	flags.StringVar(&p.via, "peers-via", "", "where this node reaches `others`, if not at their own address: n2=host:port,...")
	flags.StringVar(&p.data, "data", "", "for raft: `directory` of this node's votes and log; keep it (default \"./NODE-ID.raft\", beside the fleet file if there is one)")
}

// idleFlags are those that were given and have no say without a store.
func idleFlags(backend string, flags *flag.FlagSet) (idle []string) {
	if backend != raftBackend && backend != bullyBackend {
		return nil
	}
	flags.Visit(func(f *flag.Flag) {
		if f.Name == "lease-ttl" || f.Name == "renew-interval" {
			idle = append(idle, "-"+f.Name)
		}
	})
	return idle
}

// fromFleet reads the peers off the hosts of the store, which are those of the nodes in their
// order, and from where this node reaches them.
func (p *peerOptions) fromFleet(f *fleet.File, n fleet.Node, store string) error {
	setString(&p.data, f.Path(n.ID+".raft"))
	if p.list != "" {
		return nil
	}
	hosts, err := fleet.StoreHosts(f.Store)
	if err != nil || len(hosts) != len(f.Nodes) {
		return fmt.Errorf("the fleet file's store is %q: want raft://host:port,... with an address for each of the %d nodes, in their order", f.Store, len(f.Nodes))
	}
	reached, err := fleet.StoreHosts(store)
	if err != nil {
		return err
	}
	p.peers, p.viaOf = map[string]string{}, map[string]string{}
	for i, other := range f.Nodes {
		p.peers[other.ID] = hosts[i]
		if other.ID != n.ID && reached[i] != hosts[i] {
			p.viaOf[other.ID] = reached[i]
		}
	}
	return nil
}

// settlePeers completes what peers need, and makes their lease the one that the work plans with.
func (o *options) settlePeers() (err error) {
	p := &o.peer
	switch o.backend {
	case raftBackend:
		if o.electionTimeout == 0 {
			o.electionTimeout = raftpeer.DefaultElectionTimeout
		}
		o.ttl = raftpeer.DefaultLease(o.electionTimeout)
	case bullyBackend:
		if o.electionTimeout == 0 {
			o.electionTimeout = 500 * time.Millisecond
		}
		o.ttl = bully.Config{ElectionTimeout: o.electionTimeout}.Lease()
	default:
		return nil
	}
	o.renewEvery = 0
	if o.unsafeTrust != "" {
		return fmt.Errorf("-unsafe-trust is %q: want nothing with -backend %s", o.unsafeTrust, o.backend)
	}
	setString(&p.data, filepath.Join(".", o.nodeID+".raft"))
	if p.list != "" {
		if p.peers, err = raftpeer.ParsePeers(p.list); err != nil {
			return fmt.Errorf("-peers: %w", err)
		}
	}
	if p.via != "" {
		if p.viaOf, err = raftpeer.ParsePeers(p.via); err != nil {
			return fmt.Errorf("-peers-via: %w", err)
		}
	}
	if _, ok := p.peers[o.nodeID]; !ok && o.nodeID != "" { // a node without an id is refused for that
		return fmt.Errorf("-peers is %q: want all nodes, %s among them, as id=host:port with commas between", p.list, o.nodeID)
	}
	return nil
}

func openRaft(ctx context.Context, n *Node) (baton.Elector, io.Closer, error) {
	e, err := raftpeer.Open(ctx, raftpeer.Config{
		Group: n.opt.group, NodeID: n.opt.nodeID, Metadata: map[string]string{addressKey: n.address},
		Peers: n.opt.peer.peers, Via: n.opt.peer.viaOf, Dir: n.opt.peer.data,
		ElectionTimeout: n.opt.electionTimeout, Lease: n.opt.ttl, StopGrace: n.opt.stopGrace(),
		OnOverrun: n.overran, Logger: n.bare, Clock: n.clock,
	})
	if err != nil {
		return nil, nil, err
	}
	n.metrics.showTraffic(func() map[string]uint64 {
		t := e.Traffic()
		return map[string]uint64{"elections": t.Elections, "votes": t.Votes, "transfers": t.Transfers, "questions": t.Questions, "appends": t.Appends}
	}, "votes", "transfers", "questions", "appends")
	return e, io.NopCloser(nil), nil
}

func openBully(_ context.Context, n *Node) (baton.Elector, io.Closer, error) {
	e, err := bully.Open(bully.Config{
		Group: n.opt.group, NodeID: n.opt.nodeID, Metadata: map[string]string{addressKey: n.address},
		Peers: n.opt.peer.peers, Via: n.opt.peer.viaOf, ElectionTimeout: n.opt.electionTimeout,
		OnOverrun: n.overran, Logger: n.bare, Clock: n.clock,
	})
	if err != nil {
		return nil, nil, err
	}
	for _, caveat := range bully.Caveats {
		n.log.Warn(caveat, "backend", bullyBackend)
	}
	n.metrics.showTraffic(e.Sent, "election", "victory", "heartbeat")
	return e, io.NopCloser(nil), nil
}

// showTraffic adds what nodes that elect among themselves have sent.
func (m *metrics) showTraffic(read func() map[string]uint64, kinds ...string) {
	for _, kind := range kinds {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "baton_peer_messages_total", Help: "Messages that this node has sent to its peers; each has one answer.",
			ConstLabels: prometheus.Labels{"kind": kind},
		}, func() float64 { return float64(read()[kind]) }))
	}
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "baton_peer_elections_total", Help: "Elections: that this node won, of raft; that it began, of bully.",
	}, func() float64 { return float64(read()["elections"]) }))
}
