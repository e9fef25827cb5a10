package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"baton"
)

// File describes a fleet. It is JSON; paths in it are relative to where it is.
type File struct {
	// Group is what the nodes elect a leader of.
	Group string `json:"group"`
	// Backend is what they elect with, as the flag -backend of the node names it.
	Backend string `json:"backend"`
	// Store is the URL of the backend: scheme://host:port,host:port/... Where
	// the nodes elect among themselves, the hosts are theirs, in their order.
	Store string `json:"store,omitempty"`
	// Resource is the URL of the protected resource.
	Resource string `json:"resource"`
	// Proxy is the address at which the proxy between nodes and backend takes
	// orders; empty if there is none.
	Proxy string `json:"proxy,omitempty"`
	Nodes []Node `json:"nodes"`

	dir string
}

// Node is one node of a fleet.
type Node struct {
	ID string `json:"id"`
	// HTTP is the address that the node serves on.
	HTTP string `json:"http"`
	// PID is the node's process, or PIDFile the file in which it keeps its number.
	PID     int    `json:"pid,omitempty"`
	PIDFile string `json:"pid_file,omitempty"`
	// Via are the addresses at which this node reaches the hosts of the
	// store, in their order: those of a proxy. Empty: it reaches them directly,
	// and cannot be cut off from them.
	Via []string `json:"via,omitempty"`
	// Events is the file that the node logs events to.
	Events string `json:"events,omitempty"`
}

// Load reads a fleet file and checks it.
func Load(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the fleet file: %w", err)
	}
	f := &File{dir: filepath.Dir(path)}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(f); err != nil {
		return nil, fmt.Errorf("read the fleet file %s: %w", path, err)
	}
	if err := f.validate(); err != nil {
		return nil, fmt.Errorf("fleet file %s: %w", path, err)
	}
	return f, nil
}

// Save writes the file whole or not at all, and makes path what its own paths
// are relative to.
func (f *File) Save(path string) error {
	if err := f.validate(); err != nil {
		return fmt.Errorf("fleet file %s: %w", path, err)
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	if err := replace(path, append(text, '\n')); err != nil {
		return fmt.Errorf("write the fleet file: %w", err)
	}
	f.dir = filepath.Dir(path)
	return nil
}

func (f *File) validate() error {
	if err := baton.ValidateID("group", f.Group); err != nil {
		return err
	}
	if f.Backend == "" {
		return errors.New("backend is not set")
	}
	if len(f.Nodes) == 0 {
		return errors.New("it names no nodes")
	}
	if f.Proxy != "" {
		if err := loopback("proxy", f.Proxy); err != nil {
			return err
		}
	}
	seen := map[string]bool{}
	for _, n := range f.Nodes {
		if err := baton.ValidateID("node id", n.ID); err != nil {
			return err
		}
		if _, _, err := net.SplitHostPort(n.HTTP); err != nil {
			return fmt.Errorf("node %s: http is %q: want host:port", n.ID, n.HTTP)
		}
		if seen[n.ID] || seen[n.HTTP] {
			return fmt.Errorf("node %s: its id or its address %s is there twice", n.ID, n.HTTP)
		}
		seen[n.ID], seen[n.HTTP] = true, true
		if _, err := f.StoreFor(n); err != nil {
			return err
		}
	}
	return f.validatePeers()
}

// peerBackends are those without a server: the nodes elect among themselves. The
// hosts of the store are then the nodes', in their order.
var peerBackends = []string{"raft", "bully"}

// Peers reports whether the nodes elect among themselves.
func (f *File) Peers() bool { return slices.Contains(peerBackends, f.Backend) }

func (f *File) validatePeers() error {
	if !f.Peers() {
		return nil
	}
	if hosts, err := StoreHosts(f.Store); err != nil || len(hosts) != len(f.Nodes) {
		return fmt.Errorf("store is %q: want %s://host:port,... with an address for each of the %d nodes, in their order", f.Store, f.Backend, len(f.Nodes))
	}
	return nil
}

func loopback(field, address string) error {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("%s is %q: want an address of this machine alone, such as 127.0.0.1:7420", field, address)
	}
	return nil
}

// Node finds a node by its id.
func (f *File) Node(id string) (Node, bool) {
	for _, n := range f.Nodes {
		if n.ID == id {
			return n, true
		}
	}
	return Node{}, false
}

// Path is a path of the file, seen from here.
func (f *File) Path(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(f.dir, p)
}

// StoreFor is the URL of the store as the node reaches it.
func (f *File) StoreFor(n Node) (string, error) {
	if len(n.Via) == 0 {
		return f.Store, nil
	}
	before, hosts, after, err := splitHosts(f.Store)
	if err != nil {
		return "", err
	}
	if len(hosts) != len(n.Via) {
		return "", fmt.Errorf("node %s: via has %d addresses, the store has %d", n.ID, len(n.Via), len(hosts))
	}
	return before + strings.Join(n.Via, ",") + after, nil
}

// StoreHosts are the addresses in a store's URL.
func StoreHosts(store string) ([]string, error) {
	_, hosts, _, err := splitHosts(store)
	return hosts, err
}

// splitHosts splits scheme://[user@]host,host[/path][?query] around the hosts.
func splitHosts(store string) (before string, hosts []string, after string, err error) {
	scheme, rest, ok := strings.Cut(store, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndex(rest[:end], "@") + 1
	if !ok || scheme == "" || at == end {
		return "", nil, "", fmt.Errorf("store is %q: want a URL such as http://127.0.0.1:7400", store)
	}
	for host := range strings.SplitSeq(rest[at:end], ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			return "", nil, "", fmt.Errorf("store is %q: %q is not host:port", store, host)
		}
		hosts = append(hosts, host)
	}
	return scheme + "://" + rest[:at], hosts, rest[end:], nil
}

// PIDOf is the process of a node, as the file or the node's own PID file names it.
func (f *File) PIDOf(n Node) (int, error) {
	if n.PIDFile == "" {
		if n.PID <= 1 {
			return 0, fmt.Errorf("the fleet file names no process of node %s", n.ID)
		}
		return n.PID, nil
	}
	text, err := os.ReadFile(f.Path(n.PIDFile))
	if err != nil {
		return 0, fmt.Errorf("read the process of node %s: %w", n.ID, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("read the process of node %s: %s holds %q", n.ID, n.PIDFile, text)
	}
	return pid, nil
}

// WritePIDFile writes the number of this process for PIDOf to read.
func WritePIDFile(path string) error {
	if err := replace(path, fmt.Appendln(nil, os.Getpid())); err != nil {
		return fmt.Errorf("write the PID file: %w", err)
	}
	return nil
}

// replace writes a file so that nobody reads half of it.
func replace(path string, text []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, text, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
