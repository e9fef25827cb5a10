package lab

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Backend is a kind of backend: what a fleet elects with, and what the lab has
// to know about it.
type Backend struct {
	Name string
	// Peers: the nodes elect among themselves. There is no server, and no lease
	// with a TTL that could run out at one.
	Peers bool
	// Floor is the shortest TTL that it grants; shorter ones are raised to it.
	Floor time.Duration
	// Lapse is after how many TTLs without a renewal a lease ends at the latest; 1 if it is 0.
	Lapse int
	// Answers is how many answers of its server a renewal waits for.
	Answers int
	// Transfers: a leader can name its successor.
	Transfers bool
	// Unguarded: two nodes may lead at once without any fault of theirs, because nothing
	// like a quorum stands behind the election. What keeps the work safe is
	// the fence alone.
	Unguarded bool
	// ElectionTimeout is how long a leader among peers may be silent: half of
	// its lease, and twice the time between two confirmations.
	ElectionTimeout time.Duration

	start func(ctx context.Context, s starter) (*server, error)
}

// Backends are what fleets can elect with here.
var Backends = []Backend{
	{Name: "baton", Answers: 1, Transfers: true, start: startBaton},
	{Name: "etcd", Floor: 2 * time.Second, Answers: 3, Transfers: true, start: obtained("etcd")},
	{Name: "consul", Floor: 10 * time.Second, Lapse: 2, Answers: 3, Transfers: true, start: obtained("consul")},
	{Name: "redis", Answers: 2, Transfers: true, start: obtained("redis")},
	{Name: "zookeeper", Answers: 3, Transfers: true, start: obtained("zookeeper")},
	{Name: "postgres", Answers: 5, Transfers: true, start: obtained("postgres")},
	{Name: "kubernetes", Floor: 2 * time.Second, Answers: 3, Transfers: true, start: obtained("kubernetes")},
	{Name: "raft", Peers: true, Transfers: true, ElectionTimeout: 200 * time.Millisecond, Answers: 1},
	{Name: "bully", Peers: true, Unguarded: true, ElectionTimeout: 500 * time.Millisecond, Answers: 1},
}

// BackendNamed finds one.
func BackendNamed(name string) (Backend, error) {
	for _, b := range Backends {
		if b.Name == name {
			return b, nil
		}
	}
	return Backend{}, fmt.Errorf("backend %q is not known: want some of %s", name, strings.Join(backendNames(), ", "))
}

func backendNames() []string {
	var names []string
	for _, b := range Backends {
		names = append(names, b.Name)
	}
	return names
}

// server is a backend's server that runs, shared by all experiments of a run:
// each arm has a group of its own.
type server struct {
	// store is its URL, as nodes take it; empty for peers.
	store string
	// version says what it is, for the result.
	version string
	stop    func() error
}

func nothingToStop() error { return nil }

// starter is what a backend's server is started with.
type starter struct {
	dir      string // of its own
	programs programs
	checkout string
	stores   map[string]string // URLs of servers that run already
}

func (b Backend) open(ctx context.Context, s starter) (*server, error) {
	if b.Peers {
		return &server{version: "no server: the nodes elect among themselves", stop: nothingToStop}, nil
	}
	if url := s.stores[b.Name]; url != "" {
		return &server{store: url, version: b.Name + ", a server that ran already", stop: nothingToStop}, nil
	}
	return b.start(ctx, s)
}

// startBaton starts one server of a cluster of one, with its leases on disk.
func startBaton(ctx context.Context, s starter) (*server, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	p, _, err := startProcess(ctx, s.dir, "baton-server", s.programs.path("baton"),
		"server", "--http", ports[0], "--peer", ports[1], "--data", filepath.Join(s.dir, "data"))
	if err != nil {
		return nil, err
	}
	return &server{store: "http://" + ports[0], version: "baton server, embedded raft store, one server", stop: p.stop}, nil
}
