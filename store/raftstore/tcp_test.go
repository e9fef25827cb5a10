package raftstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"baton"
	"baton/internal/raftnode"
	"baton/internal/raftnode/raftsim"
	"baton/storetest/drill"
	"baton/storetest/history"
)

// cable is the network between real servers. While a server is cut off,
// what it sends and what is sent to it vanishes, and nobody is told.
type cable struct {
	mu    sync.Mutex
	names map[string]string // by address
	off   map[string]bool   // by name
	conns map[*cabled]bool
}

func newCable() *cable {
	return &cable{names: map[string]string{}, off: map[string]bool{}, conns: map[*cabled]bool{}}
}

type cabled struct {
	net.Conn
	c        *cable
	from, to string
	lost     bool // something vanished: it can only be closed
}

// dialer is that of one server.
func (c *cable) dialer(from string) raftnode.Dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c.mu.Lock()
		to := c.names[address]
		cut := c.off[from] || c.off[to]
		c.mu.Unlock()
		if cut {
			ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		k := &cabled{Conn: conn, c: c, from: from, to: to}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conns[k] = true
		return k, nil
	}
}

func (k *cabled) cut() bool {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	if k.c.off[k.from] || k.c.off[k.to] {
		k.lost = true
	}
	return k.lost
}

func (k *cabled) Write(b []byte) (int, error) {
	if k.cut() {
		return len(b), nil
	}
	return k.Conn.Write(b)
}

func (k *cabled) Read(b []byte) (int, error) {
	for {
		n, err := k.Conn.Read(b)
		if err != nil || !k.cut() {
			return n, err
		}
	}
}

func (k *cabled) Close() error {
	k.c.mu.Lock()
	delete(k.c.conns, k)
	k.c.mu.Unlock()
	return k.Conn.Close()
}

func (c *cable) cutOff(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off[name] = true
}

// heal lets everything through again, over new connections where something vanished.
func (c *cable) heal() {
	c.mu.Lock()
	var lost []*cabled
	for k := range c.conns {
		if k.lost || c.off[k.from] || c.off[k.to] {
			lost = append(lost, k)
		}
	}
	clear(c.off)
	c.mu.Unlock()
	for _, k := range lost {
		_ = k.Close()
	}
}

func newCabledCluster(t *testing.T, size int) (*testCluster, *cable) {
	wire := newCable()
	c := newCluster(t, size, func(cfg *Config) {
		cfg.ElectionTimeout = 200 * time.Millisecond
		cfg.SnapshotEntries = 200
		cfg.dial = wire.dialer(cfg.ID)
		wire.mu.Lock()
		defer wire.mu.Unlock()
		for id, address := range cfg.Cluster {
			wire.names[address] = id
		}
	})
	return c, wire
}

// leader is the id of the server that leads the cluster, other than this one.
func (c *testCluster) leader(t *testing.T, except string) string {
	t.Helper()
	deadline := time.Now().Add(drill.Patience)
	for time.Now().Before(deadline) {
		for id, s := range c.servers {
			if s.serves() && id != except {
				return id
			}
		}
		<-time.After(5 * time.Millisecond)
	}
	t.Fatal("nobody leads the cluster")
	return ""
}

// Servers with real sockets and disks are cut off and reconnected under load. The
// minority refuses, the majority serves, no history is impossible, and all have the same state in
// the end.
func TestPartitionsOverTCP(t *testing.T) {
	c, wire := newCabledCluster(t, 3)
	log := history.NewLog(nil)
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range 4 {
		stores := map[string]baton.Store{}
		for id, s := range c.servers {
			stores[id] = log.Record(fmt.Sprintf("n%d", i), s)
		}
		clients.Go(func() { churn(ctx, fmt.Sprintf("n%d", i), stores, rand.New(rand.NewPCG(7, uint64(i)))) })
	}
	for range 5 {
		alone := c.leader(t, "")
		wire.cutOff(alone)
		for deadline := time.Now().Add(30 * time.Second); ; {
			_, err := c.servers[c.leader(t, alone)].Get(ctx, "g0")
			if errors.Is(err, baton.ErrUnavailable) && time.Now().Before(deadline) {
				continue // this machine was held up, and they elect another
			}
			if err != nil {
				t.Errorf("read through the majority: %v", err)
			}
			break
		}
		limited, stop := context.WithTimeout(ctx, 30*time.Second)
		if _, err := c.servers[alone].Get(limited, "g0"); !errors.Is(err, baton.ErrUnavailable) {
			t.Errorf("read through a server that is cut off: %v", err)
		}
		stop()
		wire.heal()
		for id, s := range c.servers {
			if err := c.awaitReady(s); err != nil {
				t.Fatalf("server %s after the partition: %v", id, err)
			}
		}
	}
	cancel()
	clients.Wait()
	if r := history.Check(log.Ops(), history.Options{}); r.Verdict != history.OK {
		t.Errorf("history of %d requests: %s in group %s", len(log.Ops()), r.Verdict, r.Group)
	}
	c.sameState(t)
}

// sameState waits until all servers have applied the same, and compares.
func (c *testCluster) sameState(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(drill.Patience)
	var st Status
	for time.Now().Before(deadline) {
		var err error
		for _, s := range c.servers {
			if st, err = s.Status(t.Context()); err != nil {
				t.Fatal(err)
			}
			break
		}
		same := true
		for _, m := range st.Members {
			same = same && m.Reached && m.Applied == st.Members[0].Applied
		}
		if same {
			for _, m := range st.Members {
				if m.Hash != st.Members[0].Hash {
					t.Errorf("servers %s and %s differ at entry %d", m.ID, st.Members[0].ID, m.Applied)
				}
			}
			return
		}
		<-time.After(20 * time.Millisecond)
	}
	t.Fatalf("the servers do not catch up: %+v", st.Members)
}

// churn takes, keeps and gives up leaderships, through any server.
func churn(ctx context.Context, node string, stores map[string]baton.Store, rng *rand.Rand) {
	any := func() baton.Store { return stores[fmt.Sprintf("s%d", rng.IntN(len(stores))+1)] }
	bounded := func(f func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return f(ctx)
	}
	for i := 0; ctx.Err() == nil; i++ {
		me := baton.Candidate{NodeID: node, InstanceID: fmt.Sprintf("%s-%d", node, i)}
		var lease baton.Lease
		err := bounded(func(ctx context.Context) (err error) {
			lease, err = any().Acquire(ctx, fmt.Sprintf("g%d", rng.IntN(2)), me, 500*time.Millisecond)
			return err
		})
		for range rng.IntN(4) {
			if err == nil {
				err = bounded(func(ctx context.Context) error {
					_, err := any().Renew(ctx, lease.ID(), 500*time.Millisecond)
					return err
				})
			}
		}
		if err == nil && rng.IntN(3) > 0 {
			_ = bounded(func(ctx context.Context) error { return any().Release(ctx, lease.ID()) })
		}
		_ = raftsim.Sleep(ctx, time.Duration(rng.Int64N(int64(30*time.Millisecond))))
	}
}

// A server whose disk was wiped is not let in under its old name, neither as it
// was started before nor as one that wants to join, until it was removed and added.
func TestWipedServerDoesNotVote(t *testing.T) {
	c := newCluster(t, 3, patient)
	leader := c.leader(t, "")
	wiped := "s1"
	if leader == wiped {
		wiped = "s2"
	}
	if err := c.servers[wiped].Close(); err != nil {
		t.Fatal(err)
	}
	delete(c.servers, wiped)
	cfg := c.config(wiped)
	if err := os.RemoveAll(cfg.Dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), drill.Patience)
	defer cancel()
	if _, err := Open(ctx, cfg); !errors.Is(err, raftnode.ErrForgotten) {
		t.Fatalf("wiped, and started again: %v", err)
	}

	cfg.Join = true
	joining, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.servers[wiped] = joining
	// Without the wiped server both others are needed: while this machine is held up, none leads, or the other does.
	lead := func(ask func(leader *Store) error) error {
		return drill.Answer(func() error { return ask(c.servers[c.leader(t, wiped)]) })
	}
	if err := lead(func(s *Store) error {
		_, err := s.Acquire(ctx, "g", baton.Candidate{NodeID: "n", InstanceID: "i"}, time.Minute)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if term := joining.raft.CurrentTerm(); term != 0 || joining.progressNow(false).Applied != 0 {
		t.Errorf("a wiped server was let in: raft term %d", term)
	}
	add := func(s *Store) error { return s.Add(ctx, wiped, c.cluster[wiped]) }
	if err := lead(add); !conflicts(err, "member") {
		t.Errorf("added while it still is a member: %v", err)
	}
	if err := lead(func(s *Store) error { return s.Remove(ctx, wiped) }); err != nil {
		t.Fatal(err)
	}
	unsure := false
	if err := lead(func(s *Store) error {
		err := add(s)
		if unsure && conflicts(err, "member") {
			return nil
		}
		unsure = unsure || errors.Is(err, baton.ErrUnavailable)
		return err
	}); err != nil {
		t.Fatalf("added anew: %v", err)
	}
	if err := c.awaitReady(joining); err != nil {
		t.Errorf("the server that was added: %v", err)
	}
	c.sameState(t)

	// It survives a restart, with or without being told to join.
	if err := joining.Close(); err != nil {
		t.Fatal(err)
	}
	delete(c.servers, wiped)
	if c.servers[wiped], err = Open(ctx, c.config(wiped)); err != nil {
		t.Fatal(err)
	}
	if err := c.awaitReady(c.servers[wiped]); err != nil {
		t.Error(err)
	}
}

func conflicts(err error, reason string) bool {
	var conflict *baton.ConflictError
	return errors.As(err, &conflict) && conflict.Reason == reason
}

// Servers that are not who they are taken for are not listened to.
func TestStrangersAreRefused(t *testing.T) {
	one := newCluster(t, 1, nil)
	two := newCluster(t, 1, nil)
	ctx := t.Context()
	peers := newHTTPPeers((&net.Dialer{}).DialContext)
	defer peers.Close()
	address := one.cluster["s1"]
	one.leader(t, "")
	two.leader(t, "")
	good := one.servers["s1"].addressee(raftServer("s1", address))
	good.Mark = one.servers["s1"].identity.Mark
	if _, err := peers.term(ctx, good); err != nil {
		t.Errorf("asked properly: %v", err)
	}
	for name, to := range map[string]raftnode.Addressee{
		"another name":    {ID: "s2", Address: address},
		"another disk":    {ID: "s1", Mark: "gone", Address: address},
		"another cluster": {ID: "s1", Cluster: two.servers["s1"].addressee(raftServer("s1", "")).Cluster, Address: address},
	} {
		if _, err := peers.term(ctx, to); !errors.Is(err, raftnode.ErrNotMeant) {
			t.Errorf("%s: %v", name, err)
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(to.Header()); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: its raft connection was taken: %v", name, err)
		}
		_ = conn.Close()
	}
}

// A request that was passed on to a leader that says nothing more ends when
// the leader is given up.
func TestForwardedRequestsEndWithTheLeader(t *testing.T) {
	c, wire := newCabledCluster(t, 3)
	// While this machine is held up they elect another: then the wait ends too early, or is at the follower.
	try := func(group string) (waited bool) {
		leader := c.leader(t, "")
		var follower string
		for id := range c.servers {
			if id != leader {
				follower = id
			}
		}
		_, err := c.servers[follower].Acquire(t.Context(), group, baton.Candidate{NodeID: "n", InstanceID: "i"}, baton.MaxTTL)
		if errors.Is(err, baton.ErrUnavailable) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		waits := make(chan error, 1)
		go func() {
			waits <- c.servers[follower].Await(ctx, group, baton.Candidate{NodeID: "w", InstanceID: "w1"})
		}()
		at := ""
		for at == "" && len(waits) == 0 {
			for id, s := range c.servers {
				s.mu.Lock()
				if s.reign != nil && s.reign.line.Len(group) > 0 {
					at = id
				}
				s.mu.Unlock()
			}
			<-time.After(time.Millisecond)
		}
		if at != leader {
			stop()
			<-waits
			return false
		}
		wire.cutOff(leader)
		defer wire.heal()
		select {
		case err := <-waits:
			if !errors.Is(err, baton.ErrUnavailable) {
				t.Errorf("the wait ended with %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("the wait does not end")
		}
		return true
	}
	for group := range drill.Tries(t) {
		if try(group) {
			return
		}
	}
}
