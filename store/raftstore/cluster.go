package raftstore

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"baton"
	"baton/internal/raftnode"
)

// Member is one server of the cluster.
type Member struct {
	ID      string
	Address string
	Voter   bool
	Leader  bool
	// Applied is the last entry that it has applied; Reached is false if it did not answer.
	Applied uint64
	Reached bool
	// Hash is that of its state at Applied: equal on all servers that have applied the same.
	Hash string
}

// Status is the cluster as this server sees it.
type Status struct {
	Server   string
	Cluster  string
	RaftTerm uint64
	State    string
	// Leader is the server that leads the cluster; empty if this one knows of none.
	Leader      string
	LastContact time.Duration
	Commit      uint64
	Applied     uint64
	LastLog     uint64
	Leases      int
	Served      uint64
	Forwarded   uint64
	Rounds      Steps
	Commits     Steps
	Members     []Member
}

// progress is what a server tells the others about itself.
type progress struct {
	Applied uint64
	Hash    string
}

func (s *Store) progressNow(hash bool) progress {
	s.mu.Lock()
	p := progress{Applied: s.applied}
	if !hash {
		s.mu.Unlock()
		return p
	}
	c := s.copyRecord()
	s.mu.Unlock()
	p.Hash = fmt.Sprintf("%x", sha256.Sum256(c.bytes()))
	return p
}

// Status asks all servers how far they are.
func (s *Store) Status(ctx context.Context) (Status, error) {
	config, err := s.configuration()
	if err != nil {
		return Status{}, err
	}
	_, leader := s.raft.LeaderWithID()
	s.mu.Lock()
	st := Status{
		Server: s.cfg.ID, Cluster: s.cluster, RaftTerm: s.raft.CurrentTerm(), State: s.raft.State().String(),
		Leader: string(leader), Commit: s.raft.CommitIndex(), Applied: s.applied, LastLog: s.raft.LastIndex(),
		Served: s.metrics.served.Load(), Forwarded: s.metrics.forwarded.Load(),
		Rounds: s.metrics.rounds.read(), Commits: s.metrics.commits.read(),
	}
	st.Leases = s.record.Held()
	s.mu.Unlock()
	if contact := s.raft.LastContact(); !contact.IsZero() && st.State != raft.Leader.String() {
		st.LastContact = time.Since(contact)
	}
	for _, server := range config.Servers {
		m := Member{ID: string(server.ID), Address: string(server.Address), Voter: server.Suffrage == raft.Voter, Leader: server.ID == leader}
		if p, err := s.progressOf(ctx, server, true); err == nil {
			m.Reached, m.Applied, m.Hash = true, p.Applied, p.Hash
		}
		st.Members = append(st.Members, m)
	}
	return st, nil
}

func (s *Store) progressOf(ctx context.Context, server raft.Server, hash bool) (progress, error) {
	if server.ID == s.id() {
		return s.progressNow(hash), nil
	}
	path := "/progress"
	if hash {
		path += "?hash"
	}
	var p progress
	return p, s.askServer(ctx, s.addressee(server), path, nil, &p)
}

// askServer asks something that only servers with a port can be asked.
func (s *Store) askServer(ctx context.Context, to raftnode.Addressee, path string, question, answer any) error {
	over, ok := s.peers.(*httpPeers)
	if !ok {
		return errors.New("no way to ask")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	body, err := over.Ask(ctx, to, path, question)
	if err != nil || answer == nil {
		return err
	}
	return json.Unmarshal(body, answer)
}

// Ready is nil while requests are served: here, or by a leader that this server can reach.
func (s *Store) Ready(ctx context.Context) error {
	_, err := s.do(ctx, request{Op: "get", Group: "baton-readiness"})
	return err
}

// Add makes a server part of the cluster, which was started to join it:
// without a vote until it has caught up, then with one. All other servers
// must answer, because they have to know it from any other one of its name. It must be
// called on the server that leads the cluster.
func (s *Store) Add(ctx context.Context, id, address string) error {
	if err := baton.ValidateID("server id", id); err != nil {
		return err
	}
	if s.raft.State() != raft.Leader {
		return s.notRaftLeader("add")
	}
	s.mu.Lock()
	held := s.holding("add", s.clock.Now())
	s.mu.Unlock()
	if held != nil {
		// Nobody else knows of it, and could lead the cluster before its time is over.
		return held
	}
	config, err := s.configuration()
	if err != nil {
		return err
	}
	for _, server := range config.Servers {
		if string(server.ID) == id && (server.Suffrage == raft.Voter || string(server.Address) != address) {
			return &baton.ConflictError{Reason: "member", Message: fmt.Sprintf("server %s is part of the cluster, at %s: remove it first", id, server.Address)}
		}
	}
	if len(config.Servers) >= maxServers {
		return &baton.ConflictError{Reason: "full", Message: fmt.Sprintf("the cluster has %d servers already", len(config.Servers))}
	}
	server := raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(address)}
	if err := s.introduceAll(ctx, server, config); err != nil {
		return err
	}
	if err := s.change("add", s.raft.AddNonvoter(server.ID, server.Address, 0, s.cfg.ElectionTimeout)); err != nil {
		return err
	}
	target := s.raft.CommitIndex()
	for {
		p, err := s.progressOf(ctx, server, false)
		if err == nil && p.Applied >= target {
			break
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("server %s is in the cluster without a vote and has not caught up: %w", id, ctx.Err())
		}
	}
	return s.change("add", s.raft.AddVoter(server.ID, server.Address, 0, s.cfg.ElectionTimeout))
}

// introduceAll makes a new server and those of the cluster known to each other.
func (s *Store) introduceAll(ctx context.Context, server raft.Server, config raft.Configuration) error {
	unreached := func(id raft.ServerID, err error) error {
		return unavailable("add", fmt.Errorf("server %s: %w", id, err))
	}
	to := raftnode.Addressee{ID: string(server.ID), Address: string(server.Address)}
	var newcomer introduction
	if err := s.askServer(ctx, to, "/identity", nil, &newcomer); err != nil {
		return unreached(server.ID, err)
	}
	if cluster := s.addressee(server).Cluster; newcomer.Cluster != "" && newcomer.Cluster != cluster {
		return &baton.ConflictError{Reason: "other_cluster", Message: fmt.Sprintf("server %s has data of another cluster (%s): start it on an empty directory", server.ID, newcomer.Cluster)}
	}
	if err := s.introduce(newcomer); err != nil {
		return unreached(s.id(), err)
	}
	for _, member := range config.Servers {
		if member.ID == s.id() || member.ID == server.ID {
			continue
		}
		if err := s.askServer(ctx, s.addressee(member), "/introduce", newcomer, nil); err != nil {
			return unreached(member.ID, err)
		}
	}
	marks := s.admission.All()
	marks[s.cfg.ID] = s.identity.Mark
	for id, mark := range marks {
		if id == string(server.ID) {
			continue
		}
		if err := s.askServer(ctx, to, "/introduce", introduction{ID: id, Mark: mark}, nil); err != nil {
			return unreached(server.ID, err)
		}
	}
	return nil
}

// Remove takes a server out of the cluster. It must be called on the server that leads the cluster.
func (s *Store) Remove(_ context.Context, id string) error {
	return s.change("remove", s.raft.RemoveServer(raft.ServerID(id), 0, s.cfg.ElectionTimeout))
}

func (s *Store) change(op string, f raft.IndexFuture) error {
	err := f.Error()
	if errors.Is(err, raft.ErrNotLeader) {
		return s.notRaftLeader(op)
	}
	if err != nil {
		return unavailable(op, err)
	}
	return nil
}

// notRaftLeader: nothing was done, or nothing but what the same request goes on from. Whoever leads the cluster can be
// asked: this server may have lost that only since it took the request.
func (s *Store) notRaftLeader(op string) error {
	address, id := s.raft.LeaderWithID()
	return &notServing{unavailable(op, fmt.Errorf("only the server that leads the cluster can do that: ask %q at %q", id, address))}
}
